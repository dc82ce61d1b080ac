// device/cuda/entry.hpp: one entry point of a library loaded at run time.
#pragma once

#include "base/sys.hpp"

namespace drover::cuda {

template <class Signature>
class Entry;

/// A function pointer with its name. Calls go through the seam, so that tests can make each of them fail.
template <class... Parameters>
class Entry<int(Parameters...)> {
 public:
  explicit Entry(const char* name) noexcept : name_(name) {}

  [[nodiscard]] const char* name() const noexcept { return name_; }
  [[nodiscard]] bool is_present() const noexcept { return function_ != nullptr; }
  void set(void* address) noexcept { function_ = reinterpret_cast<int (*)(Parameters...)>(address); }

  /// Requires: is_present().
  int operator()(Parameters... arguments) const {
    if (const int error = sys::injected(name_); error != 0) return error;
    return function_(arguments...);
  }

 private:
  const char* name_;
  int (*function_)(Parameters...) = nullptr;
};

}  // namespace drover::cuda
