// ipc/object/local_openings.hpp: how many handles of one object this process has.
#pragma once

#include <sys/types.h>

#include <functional>

#include "drover/ipc/shared_object.hpp"

namespace drover {

/// Counts one handle of an object while it lives; for kinds on whose shared memory a participant registers, or to
/// which it says good-bye, once and not per handle. Says nothing in a forked child, or after the process has left the
/// session. Requires: destroyed before `object` is.
class LocalOpening {
 public:
  /// Calls `when_first` if this process had no handle of the object; keeps `when_last` for the end of the last one.
  /// Neither runs at the same time as another of the same process.
  LocalOpening(const SharedObject& object, const std::function<void()>& when_first, std::function<void()> when_last);
  LocalOpening(const LocalOpening&) = delete;
  LocalOpening& operator=(const LocalOpening&) = delete;
  ~LocalOpening();

 private:
  const SharedObject& object_;
  std::function<void()> when_last_;
  pid_t process_;
};

}  // namespace drover
