#include "process/spawn/child_watch.hpp"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/signals_blocked.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "process/spawn/child_watch_loop.hpp"
#include "process/spawn/thread_place.hpp"

namespace drover {
namespace {

// For a reader of our own output who is slow or does not read at all.
constexpr std::chrono::seconds kWatchPatience{1};

struct Instance {
  Mutex mutex;
  std::weak_ptr<ChildWatch> current DROVER_GUARDED_BY(mutex);
};

Instance& the_instance() {
  static auto* const everything = new Instance;  // never destroyed: a Process may be a global too
  return *everything;
}

// As if the thread whose place this is made the child. A lower niceness than this thread's is a privilege, so it is
// not asked for unless the options do.
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
      throw Error(Errc::forked, fmt::format("process {} was forked from one that had started workers", ::getpid()),
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
  thread_ = std::thread([loop = loop_] { loop->run(); });
}

ChildWatch::~ChildWatch() {
  if (process_ != ::getpid()) {  // a forked child: there is no such thread here
    thread_.detach();
    return;
  }
  loop_->stop(Deadline::after(kWatchPatience));
  thread_.join();
}

// What a template starts does not end with the thread that asked for it, and may be waited for a while.
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

void ChildWatch::add(const ChildProcess& child, WatchedChild what) {
  loop_->add(child.pid(), child.pidfd(), std::move(what));
}

std::string ChildWatch::tail(pid_t pid) const { return loop_->tail(pid); }

std::string ChildWatch::finish(pid_t pid) { return loop_->finish(pid, Deadline::after(kWatchPatience)); }

void ChildWatch::forget(pid_t pid) { loop_->forget(pid); }

}  // namespace drover
