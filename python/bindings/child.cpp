// Child processes: started with chosen descriptors only, and ended with this one.
#include <poll.h>

#include <mutex>

#include "drover/process/child_process.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

constexpr int kUnknown = 255;

// A child as Python's classes want it. When this process drops it, it is killed.
class Child {
 public:
  Child(const std::string& executable, const std::vector<std::string>& arguments,
        const std::vector<std::pair<std::string, std::string>>& environment, const std::vector<int>& inherit)
      : child_(ChildProcess::spawn(to_options(executable, arguments, environment, inherit))) {}

  [[nodiscard]] pid_t pid() const noexcept { return child_.pid(); }
  [[nodiscard]] int pidfd() const noexcept { return child_.pidfd(); }
  void kill(int signal) {
    const std::scoped_lock lock(mutex_);
    child_.kill(signal);
  }

  // As subprocess has it: the status, or minus the signal; 255, as multiprocessing has it, if nobody knows. Many
  // threads may wait; all learn it.
  std::optional<int> wait(const Timeout& timeout) {
    const auto status = await(
        timeout, [&](Deadline deadline) { return wait_until(deadline); },
        [](const std::optional<ExitStatus>& ended) { return ended.has_value(); });
    if (!status) return std::nullopt;
    const std::optional<int> signal = status->signal();
    return signal ? -*signal : status->status().value_or(kUnknown);
  }

 private:
  // Only one may reap it, so nobody waits with the mutex held. May be early.
  std::optional<ExitStatus> wait_until(Deadline deadline) {
    pollfd ended{.fd = child_.pidfd(), .events = POLLIN, .revents = 0};
    if (!deadline.has_passed()) static_cast<void>(::poll(&ended, 1, deadline.poll_timeout()));
    const std::scoped_lock lock(mutex_);
    return child_.wait(Deadline::after({}));
  }

  static SpawnOptions to_options(const std::string& executable, const std::vector<std::string>& arguments,
                                 const std::vector<std::pair<std::string, std::string>>& environment,
                                 const std::vector<int>& inherit) {
    SpawnOptions options;
    options.executable = executable;
    options.arguments = arguments;
    options.environment = environment;
    for (const int fd : inherit) options.inherit.emplace_back(fd, fd);
    return options;
  }

  std::mutex mutex_;
  ChildProcess child_;
};

}  // namespace

void bind_child(nb::module_& module) {
  nb::class_<Child>(module, "Child", "A process that this one started.")
      .def(nb::init<const std::string&, const std::vector<std::string>&,
                    const std::vector<std::pair<std::string, std::string>>&, const std::vector<int>&>(),
           nb::arg("executable"), nb::arg("arguments"), nb::arg("environment"), nb::arg("inherit"),
           nb::call_guard<Released>())
      .def_prop_ro("pid", &Child::pid)
      .def_prop_ro("pidfd", &Child::pidfd)
      .def("kill", &Child::kill, nb::arg("signal"))
      .def("wait", &Child::wait, nb::arg("timeout").none(), "Its exit code, negative for a signal; None if it runs.");
}

}  // namespace drover::python
