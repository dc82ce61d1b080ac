// tests/support/fault_seam.hpp: system and driver calls that fail on demand.
#pragma once

#include <limits>
#include <string>

namespace drover::test {

/// Which calls a FaultSeam fails.
struct FaultOptions {
  int nth = 1;                                  ///< the first call that fails, counted from 1
  int times = std::numeric_limits<int>::max();  ///< how many fail from there on
};

/// While it lives, calls that go through drover's seam (src/base/sys.hpp) under the name `call` fail with
/// `error`, in every thread of this process. Several may live at once; for one call the oldest that strikes
/// decides. Safe to use while other threads make calls.
class FaultSeam {
 public:
  /// FaultSeam fail("mmap", ENOMEM); or FaultSeam fail("recvmsg", EINTR, {.times = 3});
  FaultSeam(std::string call, int error, FaultOptions options = {});
  ~FaultSeam();
  FaultSeam(const FaultSeam&) = delete;
  FaultSeam& operator=(const FaultSeam&) = delete;

  /// How many calls of that name were made since, struck or not.
  [[nodiscard]] int calls() const;
  /// How many of them failed because of this.
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
