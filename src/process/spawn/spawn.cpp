#include "process/spawn/spawn.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "process/spawn/limit_names.hpp"
#include "process/spawn/spawn_plan.hpp"
#include "process/spawn/standard_streams.hpp"

#if defined(__SANITIZE_THREAD__)
#define DROVER_UNDER_TSAN
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DROVER_UNDER_TSAN
#endif
#endif

#ifdef DROVER_UNDER_TSAN
// The thread sanitizer treats every clone as a fork and would reset its own state, which is the parent's here. The C
// library's posix_spawn bypasses it in the same way.
extern "C" int drover_clone(int (*function)(void*), void* stack, int flags, void* argument, ...) __asm__("__clone");
#endif

namespace drover::process {
namespace {

// Stack of the child until exec. It needs a fraction of this.
constexpr std::size_t kStackBytes = 64 * std::size_t{1024};

// Starts a process in the memory of this one; returns once it has called exec or ended. Stores the pidfd.
pid_t clone_into_plan(std::byte* stack_top, SpawnPlan* plan, int* pidfd) {
#ifdef DROVER_UNDER_TSAN
  constexpr auto kClone = drover_clone;
#else
  constexpr auto kClone = ::clone;
#endif
  return kClone(run_spawn_plan, stack_top, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, plan, pidfd);
}

// For a process in between, which ends at once, so that its child has no parent here.
struct BetweenPlan {
  SpawnPlan* plan = nullptr;
  std::byte* stack_top = nullptr;
  int* pidfd = nullptr;
  pid_t pid = -1;
  int error = 0;
};

// Like run_spawn_plan, in the memory of the suspended parent.
__attribute__((no_sanitize("address", "thread", "undefined"))) int run_between(void* shared) {
  BetweenPlan& between = *static_cast<BetweenPlan*>(shared);
  between.pid = clone_into_plan(between.stack_top, between.plan, between.pidfd);
  between.error = between.pid < 0 ? errno : 0;
  return 0;
}

// Without a signal at its end, so that only a wait with __WALL sees it, and with these descriptors, so that the pidfd
// of its child is there.
pid_t clone_between(std::byte* stack_top, BetweenPlan* between) {
#ifdef DROVER_UNDER_TSAN
  constexpr auto kClone = drover_clone;
#else
  constexpr auto kClone = ::clone;
#endif
  return kClone(run_between, stack_top, CLONE_VM | CLONE_VFORK | CLONE_FILES, between);
}

// Blocks every signal, including those that the C library reserves: no handler may run in the child while it shares
// this memory.
class BlockedSignals {
 public:
  BlockedSignals() noexcept { set(~0UL, &before_); }
  ~BlockedSignals() { set(before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  static void set(unsigned long mask, unsigned long* before) noexcept {
    ::syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, before, sizeof mask);
  }
  unsigned long before_ = 0;
};

std::vector<int> numbers_in(const std::vector<unsigned long>& bits) {
  constexpr std::size_t kWidth = 8 * sizeof(unsigned long);
  std::vector<int> numbers;
  for (std::size_t i = 0; i < bits.size() * kWidth; ++i) {
    if ((bits[i / kWidth] >> (i % kWidth) & 1U) != 0) numbers.push_back(static_cast<int>(i));
  }
  return numbers;
}

// The subject of the failed step.
std::string subject_of(const SpawnPlan& plan) {
  switch (plan.failed_step) {
    case SpawnStep::niceness: return fmt::format(", niceness {}", plan.niceness);
    case SpawnStep::cpus: return fmt::format(", CPUs {}", fmt::join(numbers_in(plan.cpus), ","));
    case SpawnStep::folder: return fmt::format(", working directory '{}'", plan.folder);
    case SpawnStep::descriptors: return fmt::format(", its descriptor {}", plan.moves[plan.failed_item].second);
    case SpawnStep::limits: {
      const auto& [resource, limit] = plan.limits[plan.failed_item];
      return fmt::format(", {} of {} and {}", limit_name(resource), limit.soft, limit.hard);
    }
    default: return "";
  }
}

[[noreturn]] void report_failure(const SpawnPlan& plan) {
  throw error_from_errno(plan.error, call_of(plan.failed_step, plan.group),
                         fmt::format("program '{}'{}", plan.program, subject_of(plan)));
}

void reap_failed_child(pid_t pid) noexcept {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) != 0 && errno == EINTR) continue;
}

void reap_between(pid_t pid) noexcept {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | __WALL) != 0 && errno == EINTR) continue;
}

}  // namespace

Spawned spawn(const SpawnOptions& options) {
  SpawnPreparation preparation(options);
  SpawnPlan& plan = preparation.plan();
  const Mapping stack = Mapping::anonymous(kStackBytes);
  Spawned spawned;
  int pidfd = -1;
  {
    const BlockedSignals blocked;
    spawned.pid = sys::call("clone", clone_into_plan, stack.data() + stack.size(), &plan, &pidfd);
  }
  if (spawned.pid < 0) throw_errno("clone", fmt::format("program '{}'", plan.program));
  spawned.pidfd = above_standard_streams(Fd(pidfd));
  if (plan.error != 0) {
    reap_failed_child(spawned.pid);
    report_failure(plan);
  }
  spawned.pipes = preparation.take_pipes();
  return spawned;
}

Spawned spawn_detached(const SpawnOptions& options) {
  require(options.parent_death_signal == 0, "a detached process has no parent whose death could be signalled");
  SpawnPreparation preparation(options);
  SpawnPlan& plan = preparation.plan();
  const Mapping stack = Mapping::anonymous(kStackBytes);
  const Mapping stack_between = Mapping::anonymous(kStackBytes);
  int pidfd = -1;
  BetweenPlan between{.plan = &plan, .stack_top = stack.data() + stack.size(), .pidfd = &pidfd};
  pid_t pid = -1;
  {
    const BlockedSignals blocked;
    pid = sys::call("clone", clone_between, stack_between.data() + stack_between.size(), &between);
  }
  if (pid < 0) throw_errno("clone", fmt::format("program '{}'", plan.program));
  reap_between(pid);
  if (between.pid < 0) throw error_from_errno(between.error, "clone", fmt::format("program '{}'", plan.program));
  Spawned spawned;
  spawned.pid = between.pid;
  spawned.pidfd = above_standard_streams(Fd(pidfd));
  if (plan.error != 0) report_failure(plan);
  spawned.pipes = preparation.take_pipes();
  return spawned;
}

}  // namespace drover::process
