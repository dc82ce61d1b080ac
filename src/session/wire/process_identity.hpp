// session/wire/process_identity.hpp: what tells a process from a later one with the same pid.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "drover/base/fd.hpp"

namespace drover {

/// When the process was started, in clock ticks since the machine was; nothing if it is gone.
[[nodiscard]] std::optional<std::uint64_t> process_start_time(pid_t pid);

/// The same from the text of /proc/PID/stat; nothing if that is not one. The program's name in it may be anything.
[[nodiscard]] std::optional<std::uint64_t> parse_start_time(std::string_view stat);

/// A descriptor that is readable when the process has ended. Throws `Errc::limit_reached` when too many files are
/// open, `Errc::peer_lost` when the process is gone already.
[[nodiscard]] Fd open_pidfd(pid_t pid);

/// Whether the process behind the pidfd has ended.
[[nodiscard]] bool has_ended(const Fd& pidfd) noexcept;

/// SIGKILL to exactly that process; one that has ended is no error.
void kill_process(const Fd& pidfd) noexcept;

/// The file name of the running program, for people; cut to what a participant's name may have, with '?' for what it
/// may not.
[[nodiscard]] std::string program_name();

}  // namespace drover
