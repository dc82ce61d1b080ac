// The stand-in itself: this file has no tests, but takes over the test program before main if that is started as one.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"
#include "drover/process/child_process.hpp"
#include "process/spawn/remote_status.hpp"
#include "process/template/stand_in_template.hpp"
#include "process/template/template_server.hpp"
#include "process/template/template_wire.hpp"

namespace drover::test {
namespace {

constexpr std::string_view kTemplate = "--stand-in-template";
constexpr const char* kShell = "-c";

[[noreturn]] void run_shell(const std::string& command) {
  ::execl("/bin/sh", "sh", kShell, command.c_str(), nullptr);
  ::_exit(126);
}

class StandIn {
 public:
  explicit StandIn(std::string manner) : manner_(std::move(manner)), server_(process::kTemplateControl) {}

  [[noreturn]] void run() {
    if (const char* const notes = std::getenv("STAND_IN_NOTES_STARTS")) {
      std::ofstream(notes, std::ios::app) << "started\n";
    }
    if (manner_ == "ends") ::_exit(1);
    sigset_t blocked{};
    ::sigemptyset(&blocked);
    ::sigaddset(&blocked, SIGUSR1);
    ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
    static_cast<void>(std::signal(SIGINT, SIG_IGN));
    server_.say_ready(first_word());
    while (is_open_ || !children_.empty()) serve_some();
    ::_exit(0);
  }

 private:
  struct Child {
    Fd socket;
    bool is_reported = false;
  };

  std::string first_word() {
    if (!manner_.starts_with("waits")) return "a note";
    const auto patience = std::chrono::milliseconds(manner_.ends_with("moment") ? 10 : 600'000);
    try {
      if (auto word = server_.await_word(Deadline::after(patience))) return *word;
    } catch (const Error&) {
      ::_exit(0);  // nobody is left to tell one
    }
    ::_exit(0);
  }

  // A process that becomes the child of the next order; returns its socket.
  static std::pair<pid_t, Fd> await_elsewhere() {
    auto [ours, theirs] = process::message_sockets();
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid != 0) return {pid, std::move(ours)};
    ours.reset();
    const process::TemplateServer server(theirs.get());
    for (;;) {
      pollfd news{.fd = theirs.get(), .events = POLLIN, .revents = 0};
      ::poll(&news, 1, -1);
      auto order = server.take();
      if (!order) continue;
      static_cast<void>(theirs.release());  // become closes it
      order->become(parent);
      run_shell(order->arguments().at(0));
    }
  }

  // Looks often instead of being woken; it is a stand-in.
  void serve_some() {
    pollfd control{.fd = is_open_ ? process::kTemplateControl : -1, .events = POLLIN, .revents = 0};
    ::poll(&control, 1, 1);
    if (control.revents != 0) take();
    for (auto child = children_.begin(); child != children_.end();) {
      child = look_at(child->first, child->second) ? children_.erase(child) : std::next(child);
    }
  }

  void take() {
    try {
      if (auto order = server_.take()) fork_for(*order);
    } catch (const Error&) {
      is_open_ = false;
    }
  }

  void fork_for(process::TemplateOrderTaken& order) {
    if (manner_ == "dies at an order") ::_exit(1);
    if (manner_ == "stops at an order") std::raise(SIGSTOP);
    if (manner_ == "hands over") {
      auto [pid, socket] = await_elsewhere();
      if (order.forward(socket.get())) children_[pid].socket = Fd(order.take_socket());
      return;
    }
    if (manner_ == "refuses") return order.refuse("not in the mood");
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid != 0) {
      children_[pid].socket = Fd(order.take_socket());
      return;
    }
    if (manner_ == "loses its children") ::_exit(3);
    if (manner_ == "stops its children")
      std::this_thread::sleep_for(std::chrono::seconds(1));  // longer than any wait
    order.become(parent);
    for (const auto& entry : order.variables()) ::putenv(::strdup(entry.c_str()));
    if (manner_ != "stays") run_shell(order.arguments().at(0));
    for (;;) ::pause();
  }

  // Whether there is nothing more to do for it.
  static bool look_at(pid_t pid, Child& child) {
    siginfo_t info{};
    const bool has_ended =
        ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid == pid;
    if (has_ended && !child.is_reported) {
      child.is_reported = true;
      const process::remote_status::EndedMessage message{.code = info.si_code, .status = info.si_status};
      [[maybe_unused]] const auto sent = ::send(child.socket.get(), &message, sizeof message, MSG_NOSIGNAL);
    }
    std::array<char, 1> byte{};
    if (::recv(child.socket.get(), byte.data(), byte.size(), MSG_DONTWAIT) < 0) return false;
    ::waitpid(pid, nullptr, 0);
    return true;
  }

  std::string manner_;
  process::TemplateServer server_;
  std::map<pid_t, Child> children_;
  bool is_open_ = true;
};

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  for (std::string text; std::getline(file, text, '\0');) arguments.push_back(text);
  return arguments;
}

// Before main, which belongs to the tests.
const bool took_over = [] {
  const auto arguments = own_arguments();
  if (arguments.size() > 2 && arguments[1] == kTemplate) StandIn(arguments[2]).run();
  if (arguments.size() == 3 && arguments[1] == kShell) run_shell(arguments[2]);
  return false;
}();

}  // namespace

process::TemplateCommand stand_in(const std::string& manner) {
  static_cast<void>(took_over);
  return {.executable = own_executable(),
          .arguments = {std::string(kTemplate), manner},
          .environment = {},
          .starts = {{kShell}}};
}

SpawnOptions shell(const std::string& command) {
  return {.executable = own_executable(), .arguments = {kShell, command}};
}

}  // namespace drover::test
