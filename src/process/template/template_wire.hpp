// process/template/template_wire.hpp: the messages between application and template.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drover/base/fd.hpp"
#include "process/spawn/spawn_plan.hpp"

namespace drover::process {

/// An order for a child. Its descriptors are sent beside it: first the working directory, then one for each of
/// `targets`.
struct TemplateOrder {
  std::uint64_t start = 0;             ///< index in TemplateCommand::starts
  std::vector<std::string> arguments;  ///< all, with the program's name, for /proc
  std::uint64_t own_arguments = 0;     ///< number of the last arguments, after those of the start
  std::vector<std::string> variables;  ///< environment
  std::vector<int> targets;            ///< descriptor numbers in the child
  std::uint64_t creation_mask = 0;     ///< umask
  SpawnPlan plan;                      ///< group, parent-death signal, niceness, cpus, directory, limits
};

/// Encode and decode an order; `from_bytes` throws `Errc::corrupt` for malformed bytes.
[[nodiscard]] std::string to_bytes(const TemplateOrder& order);
[[nodiscard]] TemplateOrder order_from_bytes(std::string_view bytes);

/// A message with descriptors.
struct TemplateMessage {
  std::string bytes;
  std::vector<Fd> descriptors;  // closed on exec
};

/// The bytes of a message whose descriptor is a file with a text: RunningTemplate::tell.
inline constexpr std::string_view kWord = "word";

inline constexpr std::size_t kMostDescriptors = 250;    ///< per message; the kernel allows 253
inline constexpr std::size_t kMostMessageBytes = 4096;  ///< per message

/// Sends a message; false if the other end is closed or the kernel refuses it, as when too many descriptors are in
/// flight. Waits a few seconds at most for room.
[[nodiscard]] bool send_message(int socket, std::string_view bytes, const std::vector<int>& descriptors) noexcept;
/// Receives a pending message; nullopt at end of file (errno 0) or if none is pending.
[[nodiscard]] std::optional<TemplateMessage> receive_message(int socket);

/// Write bytes to an unnamed file, since an environment may be larger than a message, and read them back.
[[nodiscard]] Fd file_with(std::string_view bytes);
[[nodiscard]] std::string contents_of(const Fd& file);

/// A connected pair of message sockets.
[[nodiscard]] std::pair<Fd, Fd> message_sockets();

}  // namespace drover::process
