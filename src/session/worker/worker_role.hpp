// session/worker/worker_role.hpp: how a worker process is told what it is.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// The first argument of a process in a role: "--drover-role=worker".
inline constexpr std::string_view kRoleArgument = "--drover-role=";

/// The descriptors of a worker, under the numbers it finds them.
inline constexpr int kWorkerSession = 3;  ///< what Session::invite gave; also in DROVER_SESSION_FD
inline constexpr int kWorkerReport = 4;   ///< a Channel to its parent
inline constexpr int kWorkerParent = 5;   ///< a pidfd of its parent

/// The first byte of a worker's messages to its parent.
inline constexpr char kReady = 'R';    ///< it has joined and begins its entry
inline constexpr char kFailure = 'F';  ///< the rest says why it ends

/// Exit statuses of a worker that fails; those of sysexits.h with the same meaning.
inline constexpr int kWorkerMisused = 64;  ///< its arguments are not those of a worker
inline constexpr int kWorkerFailed = 70;   ///< an exception left its entry, or it could not join

/// What a worker is told in its arguments.
struct WorkerArguments {
  std::string entry;                   ///< the name of what it runs
  std::string name;                    ///< its own
  pid_t parent = 0;                    ///< for messages
  std::vector<std::string> arguments;  ///< for the entry
};

/// The arguments behind the program's name.
[[nodiscard]] std::vector<std::string> to_arguments(const WorkerArguments& worker);
/// Reads all of a program's arguments; throws `Errc::invalid_argument` if they are not such.
[[nodiscard]] WorkerArguments parse_worker_arguments(std::span<char* const> arguments);

/// The whole life of a worker; returns its exit status.
[[nodiscard]] int run_worker(std::span<char* const> arguments);

}  // namespace drover
