// Child processes: they inherit only chosen descriptors, and end with this process.
#include <poll.h>

#include <mutex>

#include "drover/process/child_process.hpp"
#include "support.hpp"

namespace drover::python {
namespace {

constexpr int kUnknown = 255;

// A child for Python's Popen. Dropping it kills the child.
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

  // The exit status, or minus the signal, as in subprocess; 255, as in multiprocessing, if it is unknown; nullopt at
  // the timeout. Any number of threads may wait.
  std::optional<int> wait(const Timeout& timeout) {
    const auto status = await(
        timeout, [&](Deadline deadline) { return wait_until(deadline); },
        [](const std::optional<ExitStatus>& ended) { return ended.has_value(); });
    if (!status) return std::nullopt;
    const std::optional<int> signal = status->signal();
    return signal ? -*signal : status->status().value_or(kUnknown);
  }

 private:
  // Only one thread may reap the child, so none waits with the mutex held. May return nullopt early.
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
  nb::class_<Child>(module, "Child", "A child of this process.")
      .def(nb::init<const std::string&, const std::vector<std::string>&,
                    const std::vector<std::pair<std::string, std::string>>&, const std::vector<int>&>(),
           nb::arg("executable"), nb::arg("arguments"), nb::arg("environment"), nb::arg("inherit"),
           nb::call_guard<Released>())
      .def_prop_ro("pid", &Child::pid)
      .def_prop_ro("pidfd", &Child::pidfd)
      .def("kill", &Child::kill, nb::arg("signal"))
      .def("wait", &Child::wait, nb::arg("timeout").none(),
           "Wait for the exit code, negative for a signal; None at the timeout.");
}

}  // namespace drover::python
