#include "process/spawn/child_watch.hpp"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/own_thread.hpp"
#include "base/signals_blocked.hpp"
#include "base/thread.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "process/spawn/child_watch_loop.hpp"
#include "process/spawn/thread_place.hpp"

namespace drover::process {
namespace {

// For a reader of this process's output that is slow or does not read.
constexpr std::chrono::seconds kWatchPatience{1};

struct Instance {
  Mutex mutex;
  std::weak_ptr<ChildWatch> current DROVER_GUARDED_BY(mutex);
};

Instance& the_instance() {
  static auto* const everything = new Instance;  // never destroyed: a Process may be a global
  return *everything;
}

// The options as if the thread at `wanted` started the child. Lowering the niceness below this thread's needs a
// privilege, so it is left alone unless the options ask for it.
SpawnOptions placed(SpawnOptions options, const ThreadPlace& wanted) {
  const ThreadPlace ours = place_of_this_thread();
  Placement& placement = options.placement;
  if (placement.cpus.empty() && wanted.cpus != ours.cpus) placement.cpus = wanted.cpus;
  if (!placement.niceness && wanted.niceness > ours.niceness) placement.niceness = wanted.niceness;
  return options;
}

}  // namespace

std::shared_ptr<ChildWatch> ChildWatch::instance() {
  Instance& everything = the_instance();
  const MutexLock lock(everything.mutex);
  if (auto current = everything.current.lock()) {
    if (current->process_ != ::getpid()) {
      throw Error(Errc::forked,
                  fmt::format("process {} was forked from a process that had started workers", ::getpid()),
                  "start workers from the process that called main, or start this one by exec");
    }
    return current;
  }
  std::shared_ptr<ChildWatch> made(new ChildWatch);
  everything.current = made;
  return made;
}

ChildWatch::ChildWatch() : loop_(std::make_shared<Loop>()), process_(::getpid()) {
  const SignalsBlocked blocked;  // inherited by the thread
  thread_ = start_thread("the thread that watches children", [loop = loop_] {
    const OwnThread own;
    loop->run();
  });
}

ChildWatch::~ChildWatch() {
  if (process_ != ::getpid()) {  // a forked child, which has no such thread
    thread_.detach();
    return;
  }
  loop_->stop(Deadline::after(kWatchPatience));
  thread_.join();
}

// A child of a template does not depend on the calling thread, which may therefore ask for it and wait.
ChildProcess ChildWatch::spawn(const SpawnOptions& options) {
  if (auto forked = ChildProcess::spawn_by_spawner(options)) return std::move(*forked);
  std::optional<ChildProcess> child;
  std::exception_ptr failure;
  const ThreadPlace wanted = place_of_this_thread();
  loop_->do_there([&] {
    try {
      child = ChildProcess::spawn_by_clone(placed(options, wanted));
    } catch (...) {
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
  return std::move(child).value();  // NOLINT(bugprone-unchecked-optional-access): spawned, or thrown above
}

void ChildWatch::add(ChildProcess& child, WatchedChild what) {
  child.mark_ = what.mark;
  loop_->add(child.pid(), child.pidfd(), std::move(what));
}

std::string ChildWatch::tail(pid_t pid) const { return loop_->tail(pid); }

std::string ChildWatch::finish(pid_t pid) { return loop_->finish(pid, Deadline::after(kWatchPatience)); }

void ChildWatch::forget(pid_t pid) { loop_->forget(pid); }

}  // namespace drover::process
