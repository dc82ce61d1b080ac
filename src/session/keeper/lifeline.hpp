// session/keeper/lifeline.hpp: wakes stopped workers at the death of the keeper.
#pragma once

#include <sys/types.h>

#include "drover/base/fd.hpp"

namespace drover::session {

/// A pipe that ends with this process, in whatever way. Nothing is ever written to it. A process whose end of it is
/// tied then gets SIGCONT from the kernel, so that it can notice the death even if it is stopped.
class Lifeline {
 public:
  /// Throws `Errc::limit_reached` if too many files are open.
  Lifeline();

  /// An end of the pipe that is tied to `process`, which must keep it open. Empty if /proc is not mounted or too many
  /// files are open.
  [[nodiscard]] Fd tie_to(pid_t process) const noexcept;

 private:
  Fd theirs_;
  Fd ours_;
};

}  // namespace drover::session
