// base/sys.hpp: the one seam between drover and the system; private to the library and its tests.
#pragma once

#include <cerrno>
#include <concepts>
#include <type_traits>

namespace drover::sys {

/// Decides whether a call fails: returns the error number (an errno, or the foreign API's own code) to fail
/// with, or 0 to let the call through. Called from any thread.
using Fault = int (*)(const char* call) noexcept;

/// Installs `fault` for the whole process; nullptr removes it. For tests.
void set_fault(Fault fault) noexcept;

/// The error with which `call` must fail now, or 0. One relaxed load when no fault is installed.
[[nodiscard]] int injected(const char* call) noexcept;

/// What a system call returns on failure: -1, or MAP_FAILED where it returns a pointer.
template <class Result>
[[nodiscard]] Result failure() noexcept {
  if constexpr (std::is_pointer_v<Result>) {
    return reinterpret_cast<Result>(-1);  // NOLINT(performance-no-int-to-ptr): MAP_FAILED is defined so
  } else {
    return static_cast<Result>(-1);
  }
}

/// Makes one system call: sys::call("mmap", ::mmap, ...). Every system call whose failure drover handles
/// goes through here or through `retry`, so that tests can make it fail.
template <class Function, class... Arguments>
  requires std::invocable<Function, Arguments...>
auto call(const char* name, Function function, Arguments... arguments) noexcept {
  using Result = std::invoke_result_t<Function, Arguments...>;
  if (const int error = injected(name); error != 0) {
    errno = error;
    return failure<Result>();
  }
  // NOLINTNEXTLINE(clang-analyzer-unix.StdCLibraryFunctions): it does not see that require() checked them
  return function(arguments...);
}

/// As `call`, and again for as long as a signal interrupts it.
template <class Function, class... Arguments>
  requires std::invocable<Function, Arguments...>
auto retry(const char* name, Function function, Arguments... arguments) noexcept {
  using Result = std::invoke_result_t<Function, Arguments...>;
  for (;;) {
    const Result result = call(name, function, arguments...);
    if (result != failure<Result>() || errno != EINTR) return result;
  }
}

}  // namespace drover::sys
