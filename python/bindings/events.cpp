// Events and barriers.
#include "drover/ipc/event.hpp"

#include <future>
#include <system_error>

#include "drover/base/error.hpp"
#include "drover/ipc/barrier.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

bool wait_event(Event& self, const Timeout& timeout) {
  const WaitResult result = await_others(
      self, timeout, [&](Deadline deadline) { return self.wait(deadline); },
      [](WaitResult got) { return got != WaitResult::timed_out; });
  return result == WaitResult::done;
}

BarrierResult wait_free(Barrier& barrier, Deadline deadline) {
  const Released free;
  return barrier.wait(deadline);
}

std::future<BarrierResult> start_waiting(Barrier& barrier, Deadline deadline) {
  try {
    return std::async(std::launch::async, [&barrier, deadline] { return barrier.wait(deadline); });
  } catch (const std::system_error& error) {
    throw error_from_errno(error.code().value(), "pthread_create", "a wait for a barrier");
  }
}

// A timed-out wait breaks a barrier for all, so the wait cannot be sliced: on the main thread, which must handle
// signals, another thread waits. A handler that raises breaks the barrier, and so does being left alone.
BarrierResult wait_beside(Barrier& barrier, Deadline deadline) {
  auto waiting = start_waiting(barrier, deadline);
  const auto is_done = [&] {
    const Released free;
    return waiting.wait_for(kSlice) == std::future_status::ready;
  };
  while (!is_done()) {
    try {
      handle_signals();
      if (deadline.is_never() && is_left_alone(barrier)) barrier.abort();
    } catch (...) {
      barrier.abort();
      throw;
    }
  }
  return waiting.get();
}

int wait_barrier(Barrier& self, const Timeout& timeout) {
  const Deadline deadline = to_deadline(timeout);
  const BarrierResult result = is_main_thread() ? wait_beside(self, deadline) : wait_free(self, deadline);
  return result.is_passed() ? static_cast<int>(result.index) : -1;
}

}  // namespace

void bind_events(nb::module_& module) {
  nb::class_<Event>(module, "Event", "A flag that can be waited for.")
      .def_static(
          "make", [](const PySession& session) { return Event(session.session); }, nb::arg("session"))
      .def_static(
          "open",
          [](const PySession& session, const std::string& handle) {
            return Event(session.session, ObjectHandle::parse(handle));
          },
          nb::arg("session"), nb::arg("handle"))
      .def_prop_ro("handle", [](const Event& self) { return self.handle().to_string(); })
      .def("set", &Event::set)
      .def("clear", &Event::clear)
      .def("is_set", &Event::is_set)
      .def("wait", &wait_event, nb::arg("timeout").none());
  nb::class_<Barrier>(module, "Barrier", "A barrier between processes.")
      .def_static(
          "make", [](const PySession& session, std::uint32_t parties) { return Barrier(session.session, parties); },
          nb::arg("session"), nb::arg("parties"))
      .def_static(
          "open",
          [](const PySession& session, const std::string& handle) {
            return Barrier(session.session, ObjectHandle::parse(handle));
          },
          nb::arg("session"), nb::arg("handle"))
      .def_prop_ro("handle", [](const Barrier& self) { return self.handle().to_string(); })
      .def("wait", &wait_barrier, nb::arg("timeout").none(),
           "Wait for all parties; return this thread's index, or -1 if the barrier is broken.")
      .def("reset", &Barrier::reset)
      .def("abort", &Barrier::abort)
      .def("is_broken", &Barrier::is_broken)
      .def("parties", &Barrier::parties)
      .def("waiting", &Barrier::waiting);
}

}  // namespace drover::python
