// process/template/template_wire.hpp: what a template is asked for, as it travels.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drover/base/fd.hpp"
#include "process/spawn/spawn_plan.hpp"

namespace drover {

/// A child as it is ordered from a template. The descriptors travel beside it: first the folder in which it begins,
/// then one for each of `targets`.
struct TemplateOrder {
  std::uint64_t start = 0;             ///< which of TemplateCommand::starts it is
  std::vector<std::string> arguments;  ///< all of them, with the program's name, for those who look at the process
  std::uint64_t own_arguments = 0;     ///< how many of them, at the end, come after those of the start
  std::vector<std::string> variables;  ///< its environment
  std::vector<int> targets;            ///< the numbers its descriptors get
  std::uint64_t creation_mask = 0;     ///< umask
  SpawnPlan plan;                      ///< group, parent-death signal, niceness, cpus, folder, limits
};

/// As bytes, and back; `from_bytes` throws `Errc::corrupt` if they are not such.
[[nodiscard]] std::string to_bytes(const TemplateOrder& order);
[[nodiscard]] TemplateOrder order_from_bytes(std::string_view bytes);

/// A message with descriptors.
struct TemplateMessage {
  std::string bytes;
  std::vector<Fd> descriptors;  // closed on exec
};

inline constexpr std::size_t kMostDescriptors = 250;    ///< of one message; the kernel takes 253
inline constexpr std::size_t kMostMessageBytes = 4096;  ///< of one message

/// Sends one message; false if the other end is closed, or the kernel does not take it now, as when too many
/// descriptors are on their way. Waits for room, some seconds at most.
[[nodiscard]] bool send_message(int socket, std::string_view bytes, const std::vector<int>& descriptors) noexcept;
/// Takes one message that is there; nothing at the end of all, or if there is none, as errno tells (0 at the end).
[[nodiscard]] std::optional<TemplateMessage> receive_message(int socket);

/// A file without a name that holds these bytes, since an environment may be larger than a message; and its contents.
[[nodiscard]] Fd file_with(std::string_view bytes);
[[nodiscard]] std::string contents_of(const Fd& file);

/// Two ends of a socket for messages.
[[nodiscard]] std::pair<Fd, Fd> message_sockets();

}  // namespace drover
