// device/cuda/entry.hpp: one entry point of a library loaded at run time.
#pragma once

#include "base/activity.hpp"
#include "base/sys.hpp"
#include "device/fork_guard.hpp"

namespace drover::device::cuda {

template <class Signature>
class Entry;

/// Whether the library may be called after a fork.
enum class AfterFork {
  allowed,  ///< any call
  refused,  ///< none: even destroying calls may crash in the child, so all return 3 (not initialised)
};

/// A function pointer with its name. Calls go through the seam of base/sys.hpp, so that tests can make each of them
/// fail, and mark the thread's activity.
template <class... Parameters>
class Entry<int(Parameters...)> {
 public:
  Entry(const char* name, AfterFork after_fork) noexcept : name_(name), after_fork_(after_fork) {}

  [[nodiscard]] const char* name() const noexcept { return name_; }
  [[nodiscard]] bool is_present() const noexcept { return function_ != nullptr; }
  void set(void* address) noexcept { function_ = reinterpret_cast<int (*)(Parameters...)>(address); }

  /// Requires: is_present().
  int operator()(Parameters... arguments) const {
    constexpr int kNotInitializedCode = 3;
    if (after_fork_ == AfterFork::refused && fork_guard::is_forked_child()) return kNotInitializedCode;
    if (const int error = sys::injected(name_); error != 0) return error;
    const ActivityMark mark(name_);
    return function_(arguments...);
  }

 private:
  const char* name_;
  AfterFork after_fork_;
  int (*function_)(Parameters...) = nullptr;
};

}  // namespace drover::device::cuda
