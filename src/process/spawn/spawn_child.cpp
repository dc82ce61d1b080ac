// The child between clone and exec. It runs in its parent's memory with the calling thread's thread-local storage,
// while that thread is suspended and all others run. Therefore: raw system calls only, since wrappers and the
// interceptors of sanitizers keep state of the parent; no allocation, no lock, no exception, no instrumentation.
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "process/spawn/spawn_plan.hpp"

#define DROVER_BARE __attribute__((no_sanitize("address", "thread", "undefined")))

namespace drover::process {
namespace {

constexpr int kHighestSignal = 64;
constexpr std::size_t kSignalSetBytes = 8;  // size of the kernel's sigset_t
constexpr int kNotStarted = 127;

[[noreturn]] DROVER_BARE void leave() noexcept {
  for (;;) ::syscall(SYS_exit_group, kNotStarted);
}

[[noreturn]] DROVER_BARE void fail(SpawnPlan& plan, SpawnStep step, int error, std::size_t item = 0) noexcept {
  plan.failed_step = step;
  plan.failed_item = item;
  plan.error = error;
  leave();
}

// The error that a test injects, or that the call returned.
DROVER_BARE void check(SpawnPlan& plan, SpawnStep step, long result, std::size_t item = 0) noexcept {
  if (result < 0) fail(plan, step, errno, item);
}

DROVER_BARE void begin(SpawnPlan& plan, SpawnStep step) noexcept {
  const int fault = plan.faults[static_cast<std::size_t>(step)];
  if (fault != 0) fail(plan, step, fault);
}

// A handler of the parent must never run here, and the program must not ignore a signal because the parent does.
DROVER_BARE void reset_signal_handlers() noexcept {
  const std::array<unsigned long, 8> by_default = {};  // the kernel's struct sigaction, all zero
  for (int signal = 1; signal <= kHighestSignal; ++signal) {
    ::syscall(SYS_rt_sigaction, signal, by_default.data(), nullptr,
              kSignalSetBytes);  // fails for SIGKILL and SIGSTOP
  }
}

DROVER_BARE void unblock_signals() noexcept {
  const std::array<unsigned long, 2> none = {};
  ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, none.data(), nullptr, kSignalSetBytes);
}

DROVER_BARE void set_group(SpawnPlan& plan) noexcept {
  if (plan.group == ChildGroup::ours) return;
  begin(plan, SpawnStep::group);
  const long result = plan.group == ChildGroup::own_session ? ::syscall(SYS_setsid) : ::syscall(SYS_setpgid, 0, 0);
  check(plan, SpawnStep::group, result);
}

// A parent that died before the call would go unnoticed, hence the check of the parent's id.
DROVER_BARE void set_parent_death_signal(SpawnPlan& plan) noexcept {
  if (plan.parent_death_signal == 0) return;
  begin(plan, SpawnStep::parent_death);
  check(plan, SpawnStep::parent_death, ::syscall(SYS_prctl, PR_SET_PDEATHSIG, plan.parent_death_signal, 0, 0, 0));
  if (::syscall(SYS_getppid) != plan.parent) leave();
}

DROVER_BARE void set_place(SpawnPlan& plan) noexcept {
  if (plan.has_niceness) {
    begin(plan, SpawnStep::niceness);
    check(plan, SpawnStep::niceness, ::syscall(SYS_setpriority, PRIO_PROCESS, 0, plan.niceness));
  }
  if (!plan.cpus.empty()) {
    begin(plan, SpawnStep::cpus);
    const auto bytes = plan.cpus.size() * sizeof(unsigned long);
    check(plan, SpawnStep::cpus, ::syscall(SYS_sched_setaffinity, 0, bytes, plan.cpus.data()));
  }
  if (!plan.folder.empty()) {
    begin(plan, SpawnStep::folder);
    check(plan, SpawnStep::folder, ::syscall(SYS_chdir, plan.folder.c_str()));
  }
}

DROVER_BARE void set_descriptors(SpawnPlan& plan) noexcept {
  if (!plan.moves.empty()) begin(plan, SpawnStep::descriptors);
  for (std::size_t i = 0; i < plan.moves.size(); ++i) {
    const auto& [from, to] = plan.moves[i];
    check(plan, SpawnStep::descriptors, ::syscall(SYS_dup3, from, to, 0), i);
  }
  begin(plan, SpawnStep::closing);
  for (std::size_t i = 0; i < plan.closings.size(); ++i) {
    const auto& [first, last] = plan.closings[i];
    check(plan, SpawnStep::closing, ::syscall(SYS_close_range, first, last, 0), i);
  }
}

// After the descriptors, since a low RLIMIT_NOFILE would refuse high numbers.
DROVER_BARE void set_limits(SpawnPlan& plan) noexcept {
  if (!plan.limits.empty()) begin(plan, SpawnStep::limits);
  for (std::size_t i = 0; i < plan.limits.size(); ++i) {
    const auto& [resource, limit] = plan.limits[i];
    check(plan, SpawnStep::limits, ::syscall(SYS_prlimit64, 0, resource, &limit, nullptr), i);
  }
}

}  // namespace

DROVER_BARE void apply_spawn_plan(SpawnPlan& plan) noexcept {
  reset_signal_handlers();
  set_group(plan);
  set_parent_death_signal(plan);
  set_place(plan);
  set_descriptors(plan);
  set_limits(plan);
  begin(plan, SpawnStep::program);
  unblock_signals();
}

DROVER_BARE int run_spawn_plan(void* shared) noexcept {
  SpawnPlan& plan = *static_cast<SpawnPlan*>(shared);
  apply_spawn_plan(plan);
  ::syscall(SYS_execve, plan.program.c_str(), plan.arguments.data(), plan.variables.data());
  fail(plan, SpawnStep::program, errno);
}

}  // namespace drover::process
