#include "support.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "drover/base/mutex.hpp"

#ifdef Py_LIMITED_API
// In every CPython, although the limited interface does not declare it.
extern "C" int PyGILState_Check(void);
#endif

namespace drover::python {
namespace {

constexpr double kLongest = 1e9;  // seconds; more would overflow the clock, and means no timeout

// A thread increments a count, then checks is_closing; close_for_threads sets is_closing, then waits for the counts
// to be 0.
std::atomic<bool> is_closing{false};
std::atomic<int> returning{0};  // threads that take the GIL again
std::atomic<int> calling{0};    // scopes of threads, other than the main one, that run Python code below C++ frames
thread_local int calls_of_thread = 0;  // those of this thread; not in `calling` while it has released the GIL
// Code of the program, such as a callback, may take any time.
constexpr std::chrono::seconds kClosePatience{1};

// A forked child has only one thread.
[[maybe_unused]] const int kAtFork = ::pthread_atfork(nullptr, nullptr, [] { returning = calling = 0; });

[[noreturn]] void stand_still() {
  for (;;) ::pause();
}

// What was dropped without the GIL. Never freed: drops continue while the interpreter ends.
struct Dropped {
  Mutex mutex;
  std::vector<std::shared_ptr<void>> all DROVER_GUARDED_BY(mutex);

  static Dropped& instance() {
    static auto* const made = new Dropped();
    return *made;
  }
  void add(std::shared_ptr<void> content) DROVER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    all.push_back(std::move(content));
  }
  std::vector<std::shared_ptr<void>> take_all() DROVER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    return std::exchange(all, {});
  }
};

int drop_all(void* /*unused*/) {
  Dropped::instance().take_all().clear();
  return 0;
}

// If too many pending calls wait, the next drop tries again.
void drop(std::shared_ptr<void> content) {
  if (Py_IsInitialized() == 0) {
    static_cast<void>(new std::shared_ptr<void>(std::move(content)));
  } else if (PyGILState_Check() != 0) {
    content.reset();
  } else {
    Dropped::instance().add(std::move(content));
    static_cast<void>(Py_AddPendingCall(&drop_all, nullptr));
  }
}

void drop(PyObject* object) {
  const auto release = [](void* held) { Py_DECREF(static_cast<PyObject*>(held)); };
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) return release(object);
  drop(std::shared_ptr<void>(object, release));
}

}  // namespace

std::shared_ptr<void> dropped_with_lock(std::shared_ptr<void> content) {
  auto* const held = content.get();
  return {held == nullptr ? &Dropped::instance() : held,
          [content = std::move(content)](void*) mutable { drop(std::move(content)); }};
}

std::shared_ptr<void> dropped_with_lock(nb::object content) {
  return {content.release().ptr(), [](void* held) { drop(static_cast<PyObject*>(held)); }};
}

Deadline to_deadline(const Timeout& timeout) {
  if (!timeout || !(*timeout < kLongest)) return Deadline::never();
  const double seconds = std::max(0.0, *timeout);
  return Deadline::after(std::chrono::duration<double>(seconds));
}

bool is_main_thread() noexcept {
  static const unsigned long main = [] {
    const nb::object thread = nb::module_::import_("threading").attr("main_thread")();
    return nb::cast<unsigned long>(thread.attr("ident"));
  }();
  return PyThread_get_thread_ident() == main;
}

Released::Released() : is_main_(is_main_thread()), state_(PyEval_SaveThread()) { calling -= calls_of_thread; }

Released::~Released() {
  ++returning;
  if (is_closing && !is_main_) {
    --returning;
    stand_still();
  }
  calling += calls_of_thread;
  PyEval_RestoreThread(state_);
  --returning;
}

CallsPython::CallsPython() : is_main_(is_main_thread()) {
  if (is_main_) return;
  ++calling;
  ++calls_of_thread;
  if (!is_closing) return;
  calling -= calls_of_thread;
  PyEval_SaveThread();
  stand_still();
}

// Python may have ended the thread by unwinding it, if its code took too long.
CallsPython::~CallsPython() {
  if (is_main_) return;
  if (is_closing) {
    calling -= calls_of_thread;
    if (PyGILState_Check() != 0) PyEval_SaveThread();
    stand_still();
  }
  --calls_of_thread;
  --calling;
}

Acquired::Acquired() {
  ++calling;
  if (is_closing || Py_IsInitialized() == 0) {
    --calling;
    return;
  }
  state_ = PyGILState_Ensure();
  is_held_ = true;
}

Acquired::~Acquired() {
  if (!is_held_) return;
  PyGILState_Release(state_);
  --calling;
}

void close_for_threads() {
  is_closing = true;
  const Released free;
  const auto end = Clock::now() + kClosePatience;
  while (returning > 0 || (calling > 0 && Clock::now() < end)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void handle_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

bool can_python_end_wait() {
  const CallsPython scope;
  return nb::cast<bool>(nb::module_::import_("drover._waiting").attr("can_be_ended_here")());
}

Bytes::Bytes(nb::handle object) {
  if (PyBytes_Check(object.ptr())) {
    char* data = nullptr;
    Py_ssize_t size = 0;
    PyBytes_AsStringAndSize(object.ptr(), &data, &size);
    bytes_ = std::as_bytes(std::span(data, static_cast<std::size_t>(size)));
    return;
  }
  if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  is_view_ = true;
  bytes_ = std::span(static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len));
}

Bytes::~Bytes() {
  if (is_view_) PyBuffer_Release(&view_);
}

std::span<const Tensor> tensors_of(nb::handle sequence, std::vector<Tensor>& made) {
  if (nb::isinstance<Tensors>(sequence)) return nb::inst_ptr<Tensors>(sequence)->all;
  const std::size_t count = nb::len(sequence);
  made.reserve(count);
  for (std::size_t i = 0; i < count; ++i) made.push_back(nb::cast<Tensor>(sequence[i]));
  return made;
}

std::vector<Tensor> to_tensors(nb::handle sequence) {
  std::vector<Tensor> made;
  const auto tensors = tensors_of(sequence, made);
  return made.empty() ? std::vector<Tensor>(tensors.begin(), tensors.end()) : std::move(made);
}

// NOLINTNEXTLINE(cppcoreguidelines-rvalue-reference-param-not-moved): its elements are moved
nb::object from_tensors(std::vector<Tensor>&& tensors) {
  return tensors.empty() ? nb::object(nb::tuple()) : nb::cast(Tensors{std::move(tensors)});
}

nb::object interned(const char* name) { return nb::steal(PyUnicode_InternFromString(name)); }

nb::object call_method(nb::handle object, const nb::object& name) {
  PyObject* const self = object.ptr();
  return nb::steal(PyObject_VectorcallMethod(name.ptr(), &self, 1, nullptr));
}

nb::bytes to_bytes(std::span<const std::byte> bytes) { return nb::bytes(bytes.data(), bytes.size()); }

}  // namespace drover::python
