// base/sys.hpp: the seam through which system calls are made, so that tests can make them fail.
#pragma once

#include <cerrno>
#include <concepts>
#include <type_traits>

namespace drover::sys {

/// Decides whether a call fails: returns the error to fail with (an errno, or a code of the foreign API), or 0 to let
/// the call through. Called from any thread.
using Fault = int (*)(const char* call) noexcept;

/// Installs `fault` for the process; nullptr removes it. For tests.
void set_fault(Fault fault) noexcept;

/// The error with which `call` must fail now, or 0. One relaxed load if no fault is installed.
[[nodiscard]] int injected(const char* call) noexcept;

/// The return value of a failed system call: -1, or MAP_FAILED if it returns a pointer.
template <class Result>
[[nodiscard]] Result failure() noexcept {
  if constexpr (std::is_pointer_v<Result>) {
    return reinterpret_cast<Result>(-1);  // NOLINT(performance-no-int-to-ptr): MAP_FAILED is defined so
  } else {
    return static_cast<Result>(-1);
  }
}

/// Makes one system call: sys::call("mmap", ::mmap, ...). A call whose failure tests must be able to provoke goes
/// through here or through `retry`.
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

/// Like `call`, but repeats the call if a signal interrupts it.
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
