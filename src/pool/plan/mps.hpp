// pool/plan/mps.hpp: an MPS daemon for the workers of one pool; private to the library.
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

namespace drover {

/// How an MPS daemon is started.
struct MpsOptions {
  std::string control = "nvidia-cuda-mps-control";  ///< a path, or a name to be found in PATH
  std::vector<std::string> devices;                 ///< UUIDs of the GPUs it serves; empty: all that are visible
  int percentage = 0;                               ///< of the multiprocessors that a client may use; 0: all
  std::chrono::milliseconds patience{10'000};       ///< for it to be ready
  std::chrono::milliseconds grace{5'000};           ///< for it to quit before it is killed
};

/// Owns an MPS control daemon with pipes and logs in a folder of its own, so that it meets no other daemon. The
/// daemon ends with this object, and with this process however that ends: a guard reads a pipe of which this process
/// has the other end, and when that is closed it tells the daemon to quit, kills what is left and removes the folder.
/// A forked child that does not exec keeps the pipe open until it ends too; its copy of this object owns nothing. Not
/// synchronised.
///
/// One fault domain: where a client's kernel faults, the MPS server may end all clients of that GPU.
class Mps {
 public:
  /// Starts it and waits until clients can connect. Throws `Errc::not_found` if there is no such program,
  /// `Errc::busy` if it says that another daemon is in the way, `Errc::unsupported` with its words if it ends for
  /// any other reason, `Errc::timed_out` if it is not ready in time.
  explicit Mps(const MpsOptions& options);
  Mps(const Mps&) = delete;
  Mps& operator=(const Mps&) = delete;
  /// Ends the daemon and its server, at the latest by killing them.
  ~Mps();

  /// What workers need to become its clients.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& environment() const noexcept {
    return environment_;
  }
  /// Where its pipes and logs lie.
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  /// The guard above the daemon.
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
  std::unique_ptr<ChildProcess> guard_;  // empty before it is started and after it has ended
  Fd life_;                              // our end of the guard's pipe
};

}  // namespace drover
