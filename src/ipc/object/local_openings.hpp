// ipc/object/local_openings.hpp: how many handles of one object this process has.
#pragma once

#include <sys/types.h>

#include <functional>

#include "drover/ipc/membership.hpp"

namespace drover::ipc {

/// Counts one handle of an object while it lives. For kinds in which a participant registers or deregisters once per
/// process, not once per handle. Does nothing in a forked child, or after the process has left the session. Requires:
/// destroyed before `object` is.
class LocalOpening {
 public:
  /// Calls `when_first` if this process had no handle of the object; `when_last` is called when its last one ends.
  /// Calls of one process exclude each other.
  LocalOpening(const SharedObject& object, const std::function<void()>& when_first, std::function<void()> when_last);
  LocalOpening(const LocalOpening&) = delete;
  LocalOpening& operator=(const LocalOpening&) = delete;
  ~LocalOpening();

 private:
  const SharedObject& object_;
  std::function<void()> when_last_;
  pid_t process_;
};

}  // namespace drover::ipc
