// session/keeper/keeper_arguments.hpp: how a process learns that it is a keeper, and of what.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "session/keeper/keeper.hpp"

namespace drover {

/// The descriptor through which a keeper tells its starter that it is ready, or why not.
inline constexpr int kKeeperChannel = 3;

/// What stands on a keeper's command line.
struct KeeperArguments {
  KeeperSettings settings;   ///< of the session
  bool is_launcher = false;  ///< it only starts the keeper, as nobody's child
};

/// The arguments behind the program's name; the first is "--drover-role=keeper".
[[nodiscard]] std::vector<std::string> to_arguments(const KeeperArguments& arguments);

/// Reads main's arguments. Throws `Errc::invalid_argument`, naming it, for one that is not known or makes no sense.
[[nodiscard]] KeeperArguments parse_keeper_arguments(std::span<char* const> arguments);

}  // namespace drover
