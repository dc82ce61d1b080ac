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

}  // namespace drover::process
