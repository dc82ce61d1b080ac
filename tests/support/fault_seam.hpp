// tests/support/fault_seam.hpp: makes system and driver calls fail on demand.
#pragma once

#include <limits>
#include <string>

namespace drover::test {

/// Which calls a FaultSeam fails.
struct FaultOptions {
  int nth = 1;                                  ///< first call to fail, counted from 1
  int times = std::numeric_limits<int>::max();  ///< number of calls to fail from there on
};

/// While it lives, calls that go through drover's seam (src/base/sys.hpp) under the name `call` fail with `error`, in
/// every thread of this process. Several seams may exist; for each call the oldest one that applies decides. Safe to
/// use while other threads make calls.
class FaultSeam {
 public:
  /// FaultSeam fail("mmap", ENOMEM); or FaultSeam fail("recvmsg", EINTR, {.times = 3});
  FaultSeam(std::string call, int error, FaultOptions options = {});
  ~FaultSeam();
  FaultSeam(const FaultSeam&) = delete;
  FaultSeam& operator=(const FaultSeam&) = delete;

  /// Number of calls of that name since construction, failed or not.
  [[nodiscard]] int calls() const;
  /// Number of calls that this seam made fail.
  [[nodiscard]] int strikes() const;

 private:
  static int decide(const char* call) noexcept;

  const std::string call_;
  const int error_;
  const FaultOptions options_;
  int calls_ = 0;
  int strikes_ = 0;
};

}  // namespace drover::test
