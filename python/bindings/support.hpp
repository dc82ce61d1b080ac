// python/bindings/support.hpp: what all bindings share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "drover/session/session.hpp"
#include "drover/tensor/memory.hpp"
#include "drover/tensor/tensor.hpp"

namespace drover::python {

namespace nb = nanobind;

/// Seconds as Python gives them; nothing: for ever.
using Timeout = std::optional<double>;

/// What every shared object needs: this process in its session, and the memory it uses there.
struct PySession {
  Session session;
  Memory memory;

  explicit PySession(const Session& joined) : session(joined), memory(joined) {}
  PySession(const Session& joined, const Memory& used) : session(joined), memory(used) {}
};

[[nodiscard]] Deadline to_deadline(const Timeout& timeout);

/// Whether signals are handled by this thread, which alone may run their Python handlers.
[[nodiscard]] bool is_main_thread() noexcept;

/// Runs the handlers of signals that came; throws what they raise, such as KeyboardInterrupt.
void handle_signals();

/// Lets other threads of Python run while it lives. Once the interpreter ends, a thread that comes back stands still:
/// it would be unwound otherwise, which code of C++ on its stack does not survive. The main thread goes on.
class Released {
 public:
  Released() : is_main_(is_main_thread()), state_(PyEval_SaveThread()) {}
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;
  Released(Released&&) = delete;
  Released& operator=(Released&&) = delete;
  ~Released();

 private:
  bool is_main_;
  PyThreadState* state_;
};

/// From now on threads that come back stand still. For the main thread, before the interpreter ends.
void close_for_threads();

[[nodiscard]] inline Deadline earlier(Deadline one, Deadline other) noexcept {
  return one.moment() < other.moment() ? one : other;
}

/// How long the main thread waits before it looks for signals.
inline constexpr std::chrono::milliseconds kSlice{100};

/// Waits by `attempt(Deadline)`, which tells by `is_over(result)` whether it need not be repeated, until the timeout,
/// without the interpreter's lock, and so that Ctrl-C ends it. The first attempt, with the lock, does not wait.
template <class Attempt, class IsOver>
auto await(const Timeout& timeout, Attempt attempt, IsOver is_over) {
  auto result = attempt(Deadline::after(std::chrono::seconds(0)));
  if (is_over(result)) return result;
  const Deadline whole = to_deadline(timeout);
  const bool in_slices = is_main_thread();
  while (!whole.has_passed()) {
    {
      const Released free;
      result = attempt(in_slices ? earlier(whole, Deadline::after(kSlice)) : whole);
    }
    if (is_over(result)) return result;
    if (in_slices) handle_signals();
  }
  return result;
}

/// The bytes of anything with the buffer protocol, as long as this lives.
class Bytes {
 public:
  explicit Bytes(nb::handle object);
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  Bytes(Bytes&&) = delete;
  Bytes& operator=(Bytes&&) = delete;
  ~Bytes();

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  Py_buffer view_{};
  bool is_view_ = false;
  std::span<const std::byte> bytes_;
};

/// Tensors of a Python sequence.
[[nodiscard]] std::vector<Tensor> to_tensors(nb::handle sequence);
/// As a Python list; the empty tuple if there are none, which costs nothing.
[[nodiscard]] nb::object from_tensors(std::vector<Tensor>&& tensors);
[[nodiscard]] nb::bytes to_bytes(std::span<const std::byte> bytes);

/// Whether an exception is of the type that is raised for a code.
[[nodiscard]] bool is_raised_for(Errc code, nb::handle exception);

void bind_errors(nb::module_& module);
void bind_session(nb::module_& module);
void bind_tensor(nb::module_& module);
void bind_slabs(nb::module_& module);
void bind_queue(nb::module_& module);
void bind_locks(nb::module_& module);
void bind_events(nb::module_& module);
void bind_child(nb::module_& module);
void bind_pool(nb::module_& module);
void bind_template(nb::module_& module);
void bind_worker(nb::module_& module);

}  // namespace drover::python
