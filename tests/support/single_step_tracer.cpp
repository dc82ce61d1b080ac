// The peer's side: forks and traces processes that run a body. x86-64 only.
#include <dlfcn.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "support/build.hpp"
#include "support/single_step.hpp"

namespace drover::test {
namespace {

using Address = std::uint64_t;

std::map<std::string, SteppedBody>& stepped_bodies() {
  static std::map<std::string, SteppedBody> registered;
  return registered;
}

#if defined(__x86_64__)

constexpr std::uint64_t kInt3 = 0xcc;

template <class... Arguments>
long trace(__ptrace_request request, pid_t pid, Arguments... arguments) {
  errno = 0;
  const long result = ::ptrace(request, pid, arguments...);
  if (errno != 0)
    throw std::system_error(errno, std::generic_category(), fmt::format("ptrace({})", static_cast<int>(request)));
  return result;
}

// A traced process. Destruction kills and reaps it.
class Traced {
 public:
  explicit Traced(pid_t pid) : pid_(pid) {}
  ~Traced() { kill(); }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;

  enum class Event { stopped, sleeps, ended };

  // Waits until it stops, ends, or sleeps in a system call.
  Event wait() {
    for (;;) {
      int status = 0;
      const pid_t changed = ::waitpid(pid_, &status, __WALL | WNOHANG);
      if (changed == pid_) return note(status);
      sigset_t child;
      ::sigemptyset(&child);
      ::sigaddset(&child, SIGCHLD);
      constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 2'000'000};
      if (::sigtimedwait(&child, nullptr, &kPause) < 0 && errno == EAGAIN && is_asleep()) return Event::sleeps;
    }
  }

  [[nodiscard]] Address next_instruction() const {
    return static_cast<Address>(trace(PTRACE_PEEKUSER, pid_, offsetof(user, regs.rip), nullptr));
  }
  void step() const { trace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr); }
  void go_on() const { trace(PTRACE_CONT, pid_, nullptr, nullptr); }
  [[nodiscard]] std::uint64_t peek(Address address) const {
    return static_cast<std::uint64_t>(trace(PTRACE_PEEKTEXT, pid_, address, nullptr));
  }
  void poke(Address address, std::uint64_t word) const { trace(PTRACE_POKETEXT, pid_, address, word); }
  void set_next_instruction(Address address) const {
    trace(PTRACE_POKEUSER, pid_, offsetof(user, regs.rip), address);
  }

  void kill() {
    if (is_ended_) return;
    ::kill(pid_, SIGKILL);
    int status = 0;
    while (!is_ended_ && ::waitpid(pid_, &status, __WALL) == pid_) note(status);
    is_ended_ = true;
  }
  [[nodiscard]] int status() const { return status_; }

 private:
  Event note(int status) {
    status_ = status;
    if (WIFSTOPPED(status)) return Event::stopped;
    is_ended_ = true;
    return Event::ended;
  }

  [[nodiscard]] bool is_asleep() const {
    std::ifstream file(fmt::format("/proc/{}/stat", pid_));
    std::string text;
    std::getline(file, text);
    const auto name_end = text.rfind(')');
    return name_end != std::string::npos && text.size() > name_end + 2 && text[name_end + 2] == 'S';
  }

  pid_t pid_;
  int status_ = 0;
  bool is_ended_ = false;
};

// Serves the test: one process for each command.
class Tracer {
 public:
  explicit Tracer(Peer& peer) : peer_(peer), body_(stepped_bodies().at(peer.parameter("body"))) {
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &child, nullptr);
    stay_on_one_core();
  }

  void serve() {
    for (std::string command = peer_.receive_text(); command != "end"; command = peer_.receive_text()) {
      Traced process(start());
      wait_for_begin(process);
      if (command.starts_with(kPause)) {
        pause(process, std::stoul(command.substr(kPause.size())));
        continue;
      }
      const std::string answer = command == "measure" ? measure(process) : run_to(process, std::stoul(command));
      process.kill();
      peer_.channel().send(answer);
    }
  }

 private:
  static constexpr std::string_view kPause = "pause ";
  static constexpr std::string_view kFinished = "finished";

  // On a single core, tracer and traced process alternate without waking another core, and operations sleep instead
  // of spinning.
  static void stay_on_one_core() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
    ::sched_setaffinity(0, sizeof(one), &one);
  }

  pid_t start() {
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid == 0) run_body(parent);
    return pid;
  }

  [[noreturn]] void run_body(pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    try {
      const Invited invited = accept_invitation(peer_.channel());
      ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      body_(invited);
    } catch (const std::exception& error) {
      fmt::print(stderr, "a stepped process failed: {}\n", error.what());
      ::_exit(2);
    }
    ::_exit(0);
  }

  static void wait_for_begin(Traced& process) {
    auto event = process.wait();
    while (event == Traced::Event::sleeps) event = process.wait();
    if (event == Traced::Event::stopped) return;
    throw std::runtime_error(
        fmt::format("a stepped process ended before its begin mark: status {}", process.status()));
  }

  // Asks the test to wake a sleeping process. Returns `sleeps` if the test declines.
  Traced::Event wait_through_sleeps(Traced& process) {
    for (;;) {
      const auto event = process.wait();
      if (event != Traced::Event::sleeps) return event;
      peer_.channel().send("sleeps");
      if (peer_.receive_text() == "stop") return event;
    }
  }

  // Steps to the end mark and records the path.
  std::string measure(Traced& process) {
    way_.clear();
    for (Address at = process.next_instruction();;) {
      way_.push_back(at);
      process.step();
      const auto event = wait_through_sleeps(process);
      if (event == Traced::Event::ended) throw std::runtime_error("a stepped process ended before its end mark");
      if (event == Traced::Event::sleeps) break;
      const Address next = process.next_instruction();
      if (next == at + 1 && (process.peek(at) & 0xffU) == kInt3) {
        way_.pop_back();  // the mark itself
        break;
      }
      at = next;
    }
    return fmt::format("{}", way_.size());
  }

  // Lets the test act while the process is stopped, then resumes it to its end.
  void pause(Traced& process, std::size_t instructions) {
    const std::string place = run_to(process, instructions);
    peer_.channel().send(place);
    if (peer_.receive_text() != "resume") throw std::runtime_error("expected `resume` for a paused process");
    bool is_right = true;
    if (place != kFinished) {
      process.go_on();
      const auto event = wait_through_sleeps(process);
      is_right = event == Traced::Event::stopped && WSTOPSIG(process.status()) == SIGTRAP;
    }
    process.kill();
    peer_.channel().send(is_right ? std::string(kFinished) : fmt::format("failed with status {}", process.status()));
  }

  // Reaches an instruction of the measured path by a breakpoint, with one stop per earlier execution of that address
  // instead of one per instruction.
  std::string run_to(Traced& process, std::size_t instructions) {
    const Address target = way_.at(instructions);
    auto arrivals = std::count(way_.begin(), way_.begin() + static_cast<std::ptrdiff_t>(instructions), target);
    const std::uint64_t original = process.peek(target);
    const std::uint64_t broken = (original & ~std::uint64_t{0xff}) | kInt3;
    bool is_there = process.next_instruction() == target;
    for (;;) {
      if (is_there && arrivals-- == 0) return place_of(target);
      if (is_there) process.step();
      if (is_there && wait_through_sleeps(process) != Traced::Event::stopped) break;
      is_there = process.next_instruction() == target;
      if (is_there) continue;
      process.poke(target, broken);
      process.go_on();
      const auto event = wait_through_sleeps(process);
      if (event == Traced::Event::sleeps) return fmt::format("sleep on the path to {}", place_of(target));
      if (event == Traced::Event::ended) throw std::runtime_error("a stepped process ended before its end mark");
      if (process.next_instruction() != target + 1) break;
      process.poke(target, original);
      process.set_next_instruction(target);
      is_there = true;
    }
    return std::string(kFinished);
  }

  // Parent and child have the same addresses.
  static std::string place_of(Address address) {
    Dl_info info{};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this program
    if (::dladdr(reinterpret_cast<void*>(address), &info) == 0 || info.dli_fbase == nullptr) {
      return fmt::format("{:#x}", address);
    }
    const auto base = reinterpret_cast<Address>(info.dli_fbase);
    const std::string file = info.dli_fname == nullptr ? "" : info.dli_fname;
    return fmt::format("{}+{:#x}{}{}", file.substr(file.rfind('/') + 1), address - base,
                       info.dli_sname == nullptr ? "" : " in ", info.dli_sname == nullptr ? "" : info.dli_sname);
  }

  Peer& peer_;
  SteppedBody body_;
  std::vector<Address> way_;
};

bool may_trace() {
  const pid_t pid = ::fork();
  if (pid < 0) return false;
  if (pid == 0) {
    const bool is_traced = ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 && ::raise(SIGSTOP) == 0;
    ::_exit(is_traced ? 0 : 1);
  }
  int status = 0;
  const bool is_stopped = ::waitpid(pid, &status, 0) == pid && WIFSTOPPED(status);
  const bool can_step = is_stopped && ::ptrace(PTRACE_SINGLESTEP, pid, nullptr, nullptr) == 0 &&
                        ::waitpid(pid, &status, 0) == pid && WIFSTOPPED(status);
  ::kill(pid, SIGKILL);
  if (!is_stopped || can_step || WIFSTOPPED(status)) ::waitpid(pid, &status, 0);
  return can_step;
}

#endif

}  // namespace

bool register_stepped_body(const char* name, SteppedBody body) {
  if (!stepped_bodies().emplace(name, body).second)
    throw std::logic_error(fmt::format("two stepped bodies are named {}", name));
  return true;
}

#if defined(__x86_64__)

void StepMarks::begin() { asm volatile("int3" ::: "memory"); }
void StepMarks::end() { asm volatile("int3" ::: "memory"); }

DROVER_PEER_BODY(probe_tracing) { peer.channel().send(may_trace() ? "yes" : "no"); }
DROVER_PEER_BODY(step_processes) { Tracer(peer).serve(); }

std::string why_no_single_steps() {
  if (kIsSanitized) return "sanitizers add many instructions";
  PeerGroup probe("probe_tracing", {.mode = PeerMode::processes, .size = 1});
  probe.start();
  const bool can_trace = probe.receive_text(0) == "yes";
  probe.expect_success();
  return can_trace ? "" : "this system does not allow a process to trace its children";
}

#else

void StepMarks::begin() {}
void StepMarks::end() {}

std::string why_no_single_steps() { return "single-stepping is implemented for x86-64 only"; }

#endif

}  // namespace drover::test
