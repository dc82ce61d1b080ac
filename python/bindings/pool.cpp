// Pools of workers that run Python functions.
#include "drover/pool/pool.hpp"

#include <chrono>

#include "calls.hpp"
#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "drover/pool/results.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

Duration to_duration(double seconds) { return std::chrono::duration<double>(seconds); }

TaskOptions task_options(int priority, std::optional<int> retry, double timeout, double grace,
                         std::optional<std::size_t> worker) {
  TaskOptions options;
  options.priority = priority;
  if (retry) options.retry = *retry < 0 ? Retry::never() : Retry::times(*retry);
  options.timeout = to_duration(timeout);
  options.grace = to_duration(grace);
  options.worker = worker;
  return options;
}

WorkerOutput to_output(const std::string& text) {
  if (text == "inherited") return WorkerOutput::inherited();
  if (text == "forwarded") return WorkerOutput::forwarded();
  if (text == "discarded") return WorkerOutput::discarded();
  return WorkerOutput::file(text);
}

// Releases the GIL in its destructor, which waits for threads that may need it.
class PyPool {
 public:
  PyPool(const PySession& session, const WorkerPlanOptions& plan, const PoolOptions& options)
      : pool_(std::make_shared<Pool>(session.session, plan, options)) {}
  PyPool(const PyPool&) = delete;
  PyPool& operator=(const PyPool&) = delete;
  ~PyPool() {
    const Released free;
    pool_.reset();
  }

  [[nodiscard]] Pool& pool() const noexcept { return *pool_; }
  [[nodiscard]] const std::shared_ptr<Pool>& shared() const noexcept { return pool_; }

 private:
  std::shared_ptr<Pool> pool_;  // Calls hold weak references
};

bool is_done(WaitResult result) { return result == WaitResult::done; }

nb::dict describe(const PoolWorkerInfo& worker) {
  nb::dict info;
  info["index"] = worker.index;
  info["name"] = worker.name;
  info["pid"] = worker.pid;
  info["device"] = worker.place;
  info["device_uuid"] = worker.device_uuid;
  info["is_ready"] = worker.is_ready;
  info["done"] = worker.done;
  info["starts"] = worker.starts;
  return info;
}

nb::list describe_workers(const PyPool& self) {
  std::vector<PoolWorkerInfo> workers;
  {
    const Released free;
    workers = self.pool().workers();
  }
  nb::list all;
  for (const auto& worker : workers) all.append(describe(worker));
  return all;
}

nb::dict describe_statistics(const PyPool& self) {
  PoolStatistics now;
  {
    const Released free;
    now = self.pool().statistics();
  }
  nb::dict info;
  info["pending"] = now.pending;
  info["in_flight"] = now.in_flight;
  info["finished"] = now.finished;
  info["failed"] = now.failed;
  info["retried"] = now.retried;
  info["restarts"] = now.restarts;
  info["moved"] = now.moved;
  return info;
}

// Not by await, whose first attempt holds the GIL: the tasks that this waits for may need it.
bool join(PyPool& self, const Timeout& timeout) {
  const Deadline whole = to_deadline(timeout);
  while (true) {
    {
      const Released free;
      if (is_done(self.pool().join(earlier(whole, Deadline::after(kSlice))))) return true;
    }
    if (is_main_thread()) handle_signals();
    if (whole.has_passed()) return false;
  }
}

void bind_options(nb::module_& module) {
  nb::class_<WorkerPlanOptions>(module, "WorkerPlan", "How workers are placed on devices and CPUs.")
      .def(nb::init<>())
      .def_rw("workers", &WorkerPlanOptions::workers)
      .def_rw("devices", &WorkerPlanOptions::devices)
      .def_rw("per_device", &WorkerPlanOptions::per_device)
      .def_rw("exclusive", &WorkerPlanOptions::exclusive)
      .def_rw("sees_all", &WorkerPlanOptions::sees_all)
      .def_rw("memory_budget", &WorkerPlanOptions::memory_budget)
      .def_rw("threads", &WorkerPlanOptions::threads)
      .def_rw("affinity", &WorkerPlanOptions::affinity)
      .def_rw("mps", &WorkerPlanOptions::mps)
      .def_rw("mps_percentage", &WorkerPlanOptions::mps_percentage);
  nb::class_<TaskOptions>(module, "TaskOptions", "How a task runs.")
      .def(
          "__init__",
          [](TaskOptions* self, int priority, std::optional<int> retry, double timeout, double grace,
             std::optional<std::size_t> worker) {
            new (self) TaskOptions(task_options(priority, retry, timeout, grace, worker));
          },
          nb::arg("priority") = 0, nb::arg("retry").none() = nb::none(), nb::arg("timeout") = 0.0,
          nb::arg("grace") = 1.0, nb::arg("worker").none() = nb::none());
  nb::class_<PoolOptions>(module, "PoolOptions", "How a pool behaves.")
      .def("__init__",
           [](PoolOptions* self) {
             // Retries already bound deaths, and Python handles Ctrl-C.
             new (self) PoolOptions{.quarantine_after = 0, .handles_interrupts = false};
           })
      .def_rw("name", &PoolOptions::name)
      .def_rw("opens_device", &PoolOptions::opens_device)
      .def_rw("recycle_after", &PoolOptions::recycle_after)
      .def(
          "set_limits",
          [](PoolOptions& self, double start, double idle, double stall) {
            self.start_limit = to_duration(start);
            self.idle_limit = to_duration(idle);
            self.stall_report_after = to_duration(stall);
          },
          nb::arg("start"), nb::arg("idle"), nb::arg("stall"))
      .def(
          "set_output", [](PoolOptions& self, const std::string& text) { self.output = to_output(text); },
          nb::arg("output"))
      .def(
          "set_start",
          [](PoolOptions& self, const nb::bytes& payload, nb::handle tensors) {
            const Bytes bytes(payload);
            self.init = Call(python_start_task(), Packet{.payload = bytes.bytes(), .tensors = to_tensors(tensors)});
          },
          nb::arg("payload"), nb::arg("tensors"), "Set the arguments of drover._worker.start in each worker.");
}

void bind_calls(nb::module_& module) {
  nb::class_<Calls>(module, "Calls", "The tasks of one call, in order.")
      .def("submit", &Calls::submit, nb::arg("argument"), "Submit one task.")
      .def("set_items", &Calls::set_items, nb::arg("iterator"), "Set the iterator from which feed takes arguments.")
      .def("feed", &Calls::feed, nb::arg("is_bounded") = true,
           "Submit tasks until enough are in flight; True once the items are exhausted.")
      .def("close", &Calls::close, nb::arg("callback").none(), "No more tasks follow; call back when all are done.")
      .def("wait_room", &Calls::wait_room, "Wait until feed can submit more.")
      .def("wait_all", &Calls::wait_all, nb::arg("timeout").none(), "Wait for all tasks; False at the timeout.")
      .def("wait_one", &Calls::wait_one, nb::arg("index"), nb::arg("timeout").none(),
           "Wait for one task; False at the timeout.")
      .def("wait_next", &Calls::wait_next, nb::arg("timeout").none(),
           "The index of the next task to finish; None at the timeout.")
      .def("take", &Calls::take, nb::arg("index"), "Take a result: bytes, or (is_error, payload, tensors).")
      .def("take_all", &Calls::take_all, "Take all results.")
      .def("cancel", &Calls::cancel, "Cancel the tasks that have not started; True if those are all.")
      .def("is_running", &Calls::is_running, nb::arg("index"), "Whether a worker is running the task.")
      .def("is_done", &Calls::is_done, nb::arg("index"))
      .def_prop_ro("is_exhausted", &Calls::is_exhausted)
      .def_prop_ro(
          "is_good", [](const Calls& self) { return self.group().is_good(); },
          "Whether no task has failed so far, and no result has tensors.")
      .def_prop_ro("in_flight", [](const Calls& self) { return self.group().in_flight(); })
      .def("__len__", &Calls::size);
}

}  // namespace

void bind_pool(nb::module_& module) {
  bind_options(module);
  module.def(
      "describe_progress",
      [](const std::string& title, std::uint64_t done, std::uint64_t total, double seconds, bool is_over,
         std::size_t columns) {
        const auto now = Clock::now();
        const auto began = now - std::min(to_duration(seconds), Duration(now.time_since_epoch()));
        return describe_progress(title, {.done = done, .total = total, .began = began, .is_over = is_over}, now,
                                 columns);
      },
      nb::arg("title"), nb::arg("done"), nb::arg("total"), nb::arg("seconds"), nb::arg("is_over"), nb::arg("columns"),
      "The text of a progress bar.");
  bind_calls(module);
  nb::class_<PyPool>(module, "Pool", "Workers that run Python functions.")
      .def(nb::init<const PySession&, const WorkerPlanOptions&, const PoolOptions&>(), nb::arg("session"),
           nb::arg("plan"), nb::arg("options"), nb::call_guard<Released>())
      .def(
          "calls",
          [](const PyPool& self, const std::string& title, const nb::bytes& function, nb::handle tensors,
             const TaskOptions& options, bool is_ordered) {
            const Bytes bytes(function);
            CalledFunction called{.title = title, .options = options};
            called.bytes.assign(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size());
            called.tensors = to_tensors(tensors);
            return new Calls(self.shared(), std::move(called), is_ordered);
          },
          nb::arg("title"), nb::arg("function"), nb::arg("tensors"), nb::arg("options"), nb::arg("is_ordered") = true,
          nb::rv_policy::take_ownership, "Create the tasks of a call, which all run one function.")
      .def(
          "wait_ready",
          [](PyPool& self, const Timeout& timeout) {
            return is_done(
                await(timeout, [&](Deadline deadline) { return self.pool().wait_ready(deadline); }, is_done));
          },
          nb::arg("timeout").none(), "Wait until all workers are ready; False at the timeout.")
      .def("join", &join, nb::arg("timeout").none(),
           "Wait until all tasks are done, then end the workers; False at the timeout.")
      .def(
          "end", [](PyPool& self, double grace) { self.pool().end(to_duration(grace)); }, nb::arg("grace"),
          nb::call_guard<Released>(), "End the pool now.")
      .def(
          "resize", [](PyPool& self, std::size_t workers) { self.pool().resize(workers); }, nb::arg("workers"),
          nb::call_guard<Released>(), "Change the number of workers.")
      .def(
          "numbers", [](const PyPool& self) { return self.pool().numbers(); }, nb::call_guard<Released>(),
          "The indexes of the workers.")
      .def("workers", &describe_workers, "A description of each worker.")
      .def("statistics", &describe_statistics, "Counts of tasks and restarts.")
      .def(
          "stall_report", [](const PyPool& self) { return self.pool().stall_report(); }, nb::call_guard<Released>(),
          "A report of what each worker does and waits for.");
}

}  // namespace drover::python
