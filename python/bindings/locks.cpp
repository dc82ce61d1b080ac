// Locks, semaphores and conditions.
#include "drover/ipc/lock.hpp"

#include <exception>

#include "drover/base/error.hpp"
#include "drover/ipc/condition.hpp"
#include "drover/ipc/semaphore.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

template <class Lockable>
LockResult acquire(Lockable& self, const Timeout& timeout) {
  return await(timeout, [&](Deadline deadline) { return self.acquire(deadline); }, is_acquired);
}

// The C++ lock reports this only for waits without a deadline, and the sliced wait has one.
LockResult acquire_lock(Lock& self, const Timeout& timeout) {
  if (!timeout && self.is_own()) {
    throw Error(Errc::invalid_argument, "deadlock: this thread already holds the lock that it waits for",
                "use an RLock, or pass a timeout if another thread will release it");
  }
  return acquire(self, timeout);
}

bool acquire_semaphore(Semaphore& self, const Timeout& timeout) {
  const WaitResult result = await_others(
      self, timeout, [&](Deadline deadline) { return self.acquire(deadline); },
      [](WaitResult got) { return got != WaitResult::timed_out; });
  return result == WaitResult::done;
}

// Not sliced: a notification between two slices would be lost. An exception of a signal handler is rethrown once the
// lock is held again.
bool wait_condition(Condition& self, const Timeout& timeout) {
  const Deadline deadline = to_deadline(timeout);
  const bool handles_signals = is_main_thread();
  std::exception_ptr raised;
  bool is_alone = false;
  const auto is_interrupted = [&] {
    if (!handles_signals) return false;
    const nb::gil_scoped_acquire held;
    try {
      handle_signals();
      is_alone = !timeout && is_left_alone(self);
    } catch (...) {
      raised = std::current_exception();
    }
    return raised != nullptr || is_alone;
  };
  ConditionResult result;
  {
    const Released free;
    result = self.wait_interruptibly(deadline, is_interrupted);
  }
  if (raised != nullptr) std::rethrow_exception(raised);
  if (is_alone && result.wait == WaitResult::timed_out) ipc::fail_left_alone(ipc::ObjectAccess::of(self));
  return result.wait == WaitResult::done;
}

template <class Object>
nb::class_<Object> bind_object(nb::module_& module, const char* name, const char* text) {
  return nb::class_<Object>(module, name, text)
      .def_static(
          "open",
          [](const PySession& session, const std::string& handle) {
            return Object(session.session, ObjectHandle::parse(handle));
          },
          nb::arg("session"), nb::arg("handle"), nb::call_guard<Released>(), "Open an existing one.")
      .def_prop_ro(
          "handle", [](const Object& self) { return self.handle().to_string(); },
          "The name by which other processes open it.");
}

template <class Object>
auto make(nb::class_<Object>& type) {
  type.def_static(
      "make", [](const PySession& session) { return Object(session.session); }, nb::arg("session"),
      nb::call_guard<Released>(), "Create one.");
}

void bind_lock_types(nb::module_& module) {
  auto lock = bind_object<Lock>(module, "Lock", "A lock between processes.");
  make(lock);
  lock.def("acquire", &acquire_lock, nb::arg("timeout").none())
      .def("release", &Lock::force_release, "Release the lock, whichever thread holds it.")
      .def("is_held", &Lock::is_held, "Whether the lock is held.");
  auto rlock = bind_object<RLock>(module, "RLock", "A lock that the thread which holds it may acquire again.");
  make(rlock);
  rlock.def("acquire", &acquire<RLock>, nb::arg("timeout").none())
      .def("release", &RLock::release, "Undo one acquisition.")
      .def("is_held", &RLock::is_held, "Whether the lock is held.");
}

void bind_condition(nb::module_& module) {
  auto condition = bind_object<Condition>(module, "Condition", "A condition variable between processes.");
  condition
      .def_static(
          "make_over_lock",
          [](const PySession& session, const Lock& lock) { return Condition(session.session, lock); },
          nb::arg("session"), nb::arg("lock"), "Create a condition over a Lock.")
      .def_static(
          "make_over_rlock",
          [](const PySession& session, const RLock& lock) { return Condition(session.session, lock); },
          nb::arg("session"), nb::arg("lock"), "Create a condition over an RLock.")
      .def("acquire", &acquire<Condition>, nb::arg("timeout").none(), "Acquire the lock.")
      .def("release", &Condition::release, "Release the lock.")
      .def("wait", &wait_condition, nb::arg("timeout").none(), "Wait for a notification; False at the timeout.")
      .def("notify", &Condition::notify, nb::arg("count") = 1, "Wake at most this many waiters; return how many.")
      .def("notify_all", &Condition::notify_all, "Wake all waiters; return how many.")
      .def("waiting", &Condition::waiting, "The number of waiters.");
}

}  // namespace

void bind_locks(nb::module_& module) {
  nb::enum_<LockResult>(module, "LockResult", "How acquiring a lock ended.")
      .value("acquired", LockResult::acquired)
      .value("acquired_after_death", LockResult::acquired_after_death, "Acquired; the last holder has died.")
      .value("timed_out", LockResult::timed_out);
  bind_lock_types(module);
  auto semaphore = bind_object<Semaphore>(module, "Semaphore", "A semaphore between processes.");
  semaphore
      .def_static(
          "make",
          [](const PySession& session, std::uint64_t initial, bool is_bounded) -> Semaphore {
            if (is_bounded) return BoundedSemaphore(session.session, initial);
            return {session.session, initial};
          },
          nb::arg("session"), nb::arg("initial"), nb::arg("is_bounded"), "Create one.")
      .def("acquire", &acquire_semaphore, nb::arg("timeout").none(), "Take a permit; False at the timeout.")
      .def(
          "release", [](Semaphore& self, std::uint64_t count) { self.release(count); }, nb::arg("count") = 1,
          "Release or add permits.")
      .def("value", &Semaphore::value, "The number of free permits.");
  bind_condition(module);
}

}  // namespace drover::python
