// session/wire/process_identity.hpp: distinguishes a process from later ones with the same pid.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "drover/base/fd.hpp"

namespace drover::session {

/// The variable whose value differs for each worker, and is inherited by all that it starts.
inline constexpr const char* kMarkVariable = "DROVER_WORKER";

/// The start time of a process in clock ticks since boot; nullopt if it is gone.
[[nodiscard]] std::optional<std::uint64_t> process_start_time(pid_t pid);

/// Parses the start time from /proc/PID/stat, whose program name may be anything; nullopt for other texts.
[[nodiscard]] std::optional<std::uint64_t> parse_start_time(std::string_view stat);

/// Opens a pidfd, which is readable once the process has ended. Throws `Errc::limit_reached` if too many files are
/// open, `Errc::peer_lost` if the process has already ended.
[[nodiscard]] Fd open_pidfd(pid_t pid);

/// Whether the process of a pidfd has ended.
[[nodiscard]] bool has_ended(const Fd& pidfd) noexcept;

/// Kills the process of a pidfd; does nothing if it has ended.
void kill_process(const Fd& pidfd) noexcept;

/// The file name of the running program, cut to the length of a participant's name, with '?' for invalid
/// characters.
[[nodiscard]] std::string program_name();

}  // namespace drover::session
