// session/keeper/keeper_arguments.hpp: the command line of a keeper.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "session/keeper/keeper.hpp"

namespace drover::session {

/// The descriptor through which a keeper reports success or failure to its starter.
inline constexpr int kKeeperChannel = 3;

/// The parsed command line of a keeper.
struct KeeperArguments {
  KeeperSettings settings;   ///< of the session
  bool is_launcher = false;  ///< only starts the keeper as a daemon and exits
};

/// The arguments after the program's name; the first is "--drover-role=keeper".
[[nodiscard]] std::vector<std::string> to_arguments(const KeeperArguments& arguments);

/// Parses main's arguments. Throws `Errc::invalid_argument`, with the argument, for an unknown or invalid one.
[[nodiscard]] KeeperArguments parse_keeper_arguments(std::span<char* const> arguments);

}  // namespace drover::session
