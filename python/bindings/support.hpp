// python/bindings/support.hpp: shared by all bindings.
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
#include "ipc/object/left_alone.hpp"
#include "ipc/sync/object_access.hpp"

namespace drover::python {

namespace nb = nanobind;

/// Seconds, as in Python; nullopt for no timeout.
using Timeout = std::optional<double>;

/// A session with this process's memory in it, which every shared object needs.
struct PySession {
  Session session;
  Memory memory;

  explicit PySession(const Session& joined) : session(joined), memory(joined) {}
  PySession(const Session& joined, const Memory& used) : session(joined), memory(used) {}
};

[[nodiscard]] Deadline to_deadline(const Timeout& timeout);

/// Whether this is the thread that runs the Python handlers of signals.
[[nodiscard]] bool is_main_thread() noexcept;

/// Runs the Python handlers of pending signals; throws what they raise, such as KeyboardInterrupt.
void handle_signals();

/// Releases the GIL for a scope. Once the interpreter ends, all threads but the main one block forever in the
/// destructor: Python would otherwise unwind them through C++ frames, which is undefined.
class Released {
 public:
  Released();
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;
  Released(Released&&) = delete;
  Released& operator=(Released&&) = delete;
  ~Released();

 private:
  bool is_main_;
  PyThreadState* state_;
};

/// A scope in which C++ calls Python code. While the interpreter ends, Python ends its other threads in the middle of
/// such code, and would unwind them through C++ frames, whose objects need the GIL. So all threads but the main one
/// block forever at both ends of the scope then, and `close_for_threads` waits for those in between. Requires the
/// GIL.
class CallsPython {
 public:
  CallsPython();
  CallsPython(const CallsPython&) = delete;
  CallsPython& operator=(const CallsPython&) = delete;
  CallsPython(CallsPython&&) = delete;
  CallsPython& operator=(CallsPython&&) = delete;
  ~CallsPython();

 private:
  bool is_main_;
};

/// The GIL for a thread that Python has not started. Not held once the interpreter ends: then the thread must not
/// even drop a reference.
class Acquired {
 public:
  Acquired();
  Acquired(const Acquired&) = delete;
  Acquired& operator=(const Acquired&) = delete;
  Acquired(Acquired&&) = delete;
  Acquired& operator=(Acquired&&) = delete;
  ~Acquired();

  [[nodiscard]] explicit operator bool() const noexcept { return is_held_; }

 private:
  bool is_held_ = false;
  PyGILState_STATE state_{};
};

/// Blocks all other threads at the end of their `Released` scopes, and at both ends of `CallsPython`; waits for a
/// second at most for Python code in the latter. For the main thread, before the interpreter ends.
void close_for_threads();

[[nodiscard]] inline Deadline earlier(Deadline one, Deadline other) noexcept {
  return one.moment() < other.moment() ? one : other;
}

/// How long the main thread waits between checks for signals.
inline constexpr std::chrono::milliseconds kSlice{100};

/// Repeats `attempt(Deadline)` until `is_over(result)` or the timeout; Ctrl-C interrupts it. The first attempt does
/// not wait and holds the GIL, the others release it.
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

/// Whether another Python thread, or a Python handler of a signal, could end a wait of the calling thread. Requires
/// the GIL.
[[nodiscard]] bool can_python_end_wait();

/// Whether a wait without a timeout on `object`, a primitive of drover/ipc, would never end. A host of its own:
/// unlike the library's rule it does not count threads that run no Python. Requires the GIL.
template <class Object>
[[nodiscard]] bool is_left_alone(const Object& object) {
  return ipc::are_others_gone(ipc::ObjectAccess::of(object)) && !can_python_end_wait();
}

/// Like `await`, but throws `Errc::peer_lost` if there is no timeout and nobody is left who could end the wait.
template <class Object, class Attempt, class IsOver>
auto await_others(const Object& object, const Timeout& timeout, Attempt attempt, IsOver is_over) {
  if (timeout || !is_main_thread()) return await(timeout, attempt, is_over);
  for (;;) {
    auto result = await(std::chrono::duration<double>(kSlice).count(), attempt, is_over);
    if (is_over(result)) return result;
    if (!is_left_alone(object)) continue;
    result = attempt(Deadline::after(std::chrono::seconds(0)));  // what the departed did is visible by now
    if (is_over(result)) return result;
    ipc::fail_left_alone(ipc::ObjectAccess::of(object));
  }
}

/// Payloads of at least this size are passed to Python as a view instead of a copy.
inline constexpr std::size_t kViewed = 4096;

/// The bytes of an object with the buffer protocol, valid as long as this lives.
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

/// A Python sequence of tensors: a message may have a thousand, and only those that Python code asks for become
/// objects.
struct Tensors {
  std::vector<Tensor> all;
};

/// The tensors of a Python sequence; they lie in `made` unless the sequence is a `Tensors`, and live as long as both.
[[nodiscard]] std::span<const Tensor> tensors_of(nb::handle sequence, std::vector<Tensor>& made);
/// A copy of the tensors of a Python sequence.
[[nodiscard]] std::vector<Tensor> to_tensors(nb::handle sequence);
/// A `Tensors`; the empty tuple, which is not allocated, if there are none.
[[nodiscard]] nb::object from_tensors(std::vector<Tensor>&& tensors);
/// A Python string for a name that is looked up often.
[[nodiscard]] nb::object interned(const char* name);
/// The result of a method without arguments; not valid if it raised, and the exception is set.
[[nodiscard]] nb::object call_method(nb::handle object, const nb::object& name);

[[nodiscard]] nb::bytes to_bytes(std::span<const std::byte> bytes);

/// Wraps what must be dropped with the GIL, such as memory of other libraries. The wrapper may be dropped on any
/// thread, and never waits for the GIL: without it, the main thread drops the content soon, and nothing does after
/// the interpreter's end.
[[nodiscard]] std::shared_ptr<void> dropped_with_lock(std::shared_ptr<void> content);
/// The same for a reference to a Python object.
[[nodiscard]] std::shared_ptr<void> dropped_with_lock(nb::object content);

/// Whether an exception has the type registered for a code.
[[nodiscard]] bool is_raised_for(Errc code, nb::handle exception);

void bind_errors(nb::module_& module);
void bind_plain(nb::module_& module);
void bind_session(nb::module_& module);
void bind_tensor(nb::module_& module);
void bind_arrays(nb::module_& module);
void bind_message_tensors(nb::module_& module);
void bind_slabs(nb::module_& module);
void bind_queue(nb::module_& module);
void bind_locks(nb::module_& module);
void bind_events(nb::module_& module);
void bind_child(nb::module_& module);
void bind_pool(nb::module_& module);
void bind_template(nb::module_& module);
void bind_worker(nb::module_& module);

}  // namespace drover::python
