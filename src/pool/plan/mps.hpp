// pool/plan/mps.hpp: an MPS daemon for the workers of one pool.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "drover/base/fd.hpp"
#include "drover/process/child_process.hpp"

namespace drover::pool {

/// How an MPS daemon is started.
struct MpsOptions {
  std::string control = "nvidia-cuda-mps-control";  ///< a path, or a name in PATH
  std::vector<std::string> devices;                 ///< UUIDs of the GPUs it serves; empty: all visible ones
  int percentage = 0;                               ///< of multiprocessors that a client may use; 0: all
  std::chrono::milliseconds patience{10'000};       ///< time to become ready
  std::chrono::milliseconds grace{5'000};           ///< time to quit before it is killed
};

/// Owns an MPS control daemon with its own directory for pipes and logs, so that it does not conflict with other
/// daemons. The daemon ends with this object, or with this process however that ends: when this process closes its
/// end of a pipe, a guard process quits the daemon, kills what is left and removes the directory. A forked child that
/// does not exec keeps the pipe open until it exits; its copy of this object owns nothing. Not synchronised.
///
/// Clients share a fault domain: when a kernel of one faults, the MPS server may end all clients of that GPU.
class Mps {
 public:
  /// Starts the daemon and waits until clients can connect. Throws `Errc::not_found` if there is no such program,
  /// `Errc::busy` if it conflicts with another daemon, `Errc::unsupported` with its output if it ends for any other
  /// reason, `Errc::timed_out` if it is not ready in time.
  explicit Mps(const MpsOptions& options);
  Mps(const Mps&) = delete;
  Mps& operator=(const Mps&) = delete;
  /// Ends the daemon and its server, and kills them if they do not quit.
  ~Mps();

  /// Variables that make workers its clients.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& environment() const noexcept {
    return environment_;
  }
  /// The directory of its pipes and logs.
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  /// The pid of the guard.
  [[nodiscard]] pid_t guard() const noexcept { return guard_ ? guard_->pid() : 0; }

 private:
  void start(const MpsOptions& options, const std::string& control);
  void await_ready(const MpsOptions& options);
  std::optional<ExitStatus> finish();
  void end() noexcept;

  pid_t owner_;
  std::chrono::milliseconds grace_;
  std::filesystem::path folder_;
  std::vector<std::pair<std::string, std::string>> environment_;
  std::unique_ptr<ChildProcess> guard_;  // nullptr before start and after the end
  Fd life_;                              // our end of the guard's pipe
};

}  // namespace drover::pool
