// session/worker/worker_role.hpp: the command line and the life of a worker process.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace drover::session {

/// The first argument of a process in a role: "--drover-role=worker".
inline constexpr std::string_view kRoleArgument = "--drover-role=";

/// Descriptor numbers in a worker.
inline constexpr int kWorkerSession = 3;  ///< from Session::invite; also in DROVER_SESSION_FD
inline constexpr int kWorkerReport = 4;   ///< a Channel to its parent
inline constexpr int kWorkerParent = 5;   ///< a pidfd of its parent

/// The first byte of a worker's messages to its parent.
inline constexpr char kReady = 'R';    ///< it has joined and starts its entry
inline constexpr char kFailure = 'F';  ///< followed by the reason of its end

/// Exit statuses of a failed worker, as in sysexits.h.
inline constexpr int kWorkerMisused = 64;  ///< invalid arguments
inline constexpr int kWorkerFailed = 70;   ///< an exception left its entry, or it could not join

/// The parsed arguments of a worker.
struct WorkerArguments {
  std::string entry;                   ///< name of its entry
  std::string name;                    ///< name of the worker
  pid_t parent = 0;                    ///< for messages
  std::vector<std::string> arguments;  ///< for the entry
};

/// Encodes the arguments after the program's name.
[[nodiscard]] std::vector<std::string> to_arguments(const WorkerArguments& worker);
/// Parses main's arguments. Throws `Errc::invalid_argument` for invalid ones.
[[nodiscard]] WorkerArguments parse_worker_arguments(std::span<char* const> arguments);

/// Runs a worker; returns its exit status.
[[nodiscard]] int run_worker(std::span<char* const> arguments);

}  // namespace drover::session
