// Locks, semaphores and conditions.
#include "drover/ipc/lock.hpp"

#include <exception>

#include "drover/base/error.hpp"
#include "drover/ipc/condition.hpp"
#include "drover/ipc/rlock.hpp"
#include "drover/ipc/semaphore.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

// 0 not in time, 1 acquired, 2 the same after its holder had died.
int to_code(LockResult result) {
  if (result == LockResult::timed_out) return 0;
  return result == LockResult::acquired ? 1 : 2;
}

template <class Lockable>
int acquire(Lockable& self, const Timeout& timeout) {
  const LockResult result = await(
      timeout, [&](Deadline deadline) { return self.acquire(deadline); },
      [](LockResult got) { return got != LockResult::timed_out; });
  return to_code(result);
}

// The wait in slices below would never say it.
int acquire_lock(Lock& self, const Timeout& timeout) {
  if (!timeout && self.is_own()) {
    throw Error(Errc::invalid_argument, "this thread holds the lock and would wait for ever for itself",
                "use an RLock, or give a timeout if another thread is to release it");
  }
  return acquire(self, timeout);
}

bool acquire_semaphore(Semaphore& self, const Timeout& timeout) {
  const WaitResult result = await(
      timeout, [&](Deadline deadline) { return self.acquire(deadline); },
      [](WaitResult got) { return got != WaitResult::timed_out; });
  return result == WaitResult::done;
}

// Not in slices, between which a notification could go by. What a handler of signals raises is kept until the lock is
// held again.
bool wait_condition(Condition& self, const Timeout& timeout) {
  const Deadline deadline = to_deadline(timeout);
  const bool handles_signals = is_main_thread();
  std::exception_ptr raised;
  const auto is_interrupted = [&] {
    if (!handles_signals) return false;
    const nb::gil_scoped_acquire held;
    try {
      handle_signals();
    } catch (...) {
      raised = std::current_exception();
    }
    return raised != nullptr;
  };
  ConditionResult result;
  {
    const Released free;
    result = self.wait_interruptibly(deadline, is_interrupted);
  }
  if (raised != nullptr) std::rethrow_exception(raised);
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
          nb::arg("session"), nb::arg("handle"), nb::call_guard<Released>(), "One that another made.")
      .def_prop_ro(
          "handle", [](const Object& self) { return self.handle().to_string(); }, "By this name others open it.");
}

template <class Object>
auto make(nb::class_<Object>& type) {
  type.def_static(
      "make", [](const PySession& session) { return Object(session.session); }, nb::arg("session"),
      nb::call_guard<Released>(), "A new one.");
}

void bind_lock_types(nb::module_& module) {
  auto lock = bind_object<Lock>(module, "Lock", "A lock between processes.");
  make(lock);
  lock.def("acquire", &acquire_lock, nb::arg("timeout").none(), "0 not in time, 1 acquired, 2 after a death.")
      .def("release", &Lock::force_release, "Give it back, whoever holds it.")
      .def("is_held", &Lock::is_held, "Whether anybody holds it.");
  auto rlock = bind_object<RLock>(module, "RLock", "A lock that its holder may acquire again.");
  make(rlock);
  rlock.def("acquire", &acquire<RLock>, nb::arg("timeout").none(), "0 not in time, 1 acquired, 2 after a death.")
      .def("release", &RLock::release, "Give back one acquisition.")
      .def("is_held", &RLock::is_held, "Whether anybody holds it.")
      .def("is_own", &RLock::is_own, "Whether this thread holds it.");
}

void bind_condition(nb::module_& module) {
  auto condition = bind_object<Condition>(module, "Condition", "Waiting until another says that something changed.");
  condition
      .def_static(
          "make_over_lock",
          [](const PySession& session, const Lock& lock) { return Condition(session.session, lock); },
          nb::arg("session"), nb::arg("lock"), "A new one over a Lock.")
      .def_static(
          "make_over_rlock",
          [](const PySession& session, const RLock& lock) { return Condition(session.session, lock); },
          nb::arg("session"), nb::arg("lock"), "A new one over an RLock.")
      .def("acquire", &acquire<Condition>, nb::arg("timeout").none(), "As of the lock.")
      .def("release", &Condition::release, "As of the lock.")
      .def("is_own", &Condition::is_own, "Whether this thread holds the lock.")
      .def("wait", &wait_condition, nb::arg("timeout").none(), "Whether it was notified in time.")
      .def("notify", &Condition::notify, nb::arg("count") = 1, "Notify some of those who wait.")
      .def("notify_all", &Condition::notify_all, "Notify all of them.")
      .def("waiting", &Condition::waiting, "How many wait.");
}

}  // namespace

void bind_locks(nb::module_& module) {
  bind_lock_types(module);
  auto semaphore = bind_object<Semaphore>(module, "Semaphore", "Permits that are taken and given back.");
  semaphore
      .def_static(
          "make",
          [](const PySession& session, std::uint64_t initial, bool is_bounded) -> Semaphore {
            if (is_bounded) return BoundedSemaphore(session.session, initial);
            return {session.session, initial};
          },
          nb::arg("session"), nb::arg("initial"), nb::arg("is_bounded"), "A new one.")
      .def("acquire", &acquire_semaphore, nb::arg("timeout").none(), "Whether a permit was taken in time.")
      .def(
          "release", [](Semaphore& self, std::uint64_t count) { self.release(count); }, nb::arg("count") = 1,
          "Give permits back, or add them.")
      .def("value", &Semaphore::value, "Permits that are free.");
  bind_condition(module);
}

}  // namespace drover::python
