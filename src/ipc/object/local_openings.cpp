#include "ipc/object/local_openings.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <utility>

#include "drover/base/mutex.hpp"

namespace drover::ipc {
namespace {

using Key = std::pair<const Membership*, std::uint64_t>;  // the object's generation

// A forked child starts without counts: those of its parent mean nothing there, and a membership of the child may
// reuse the address of one of the parent's.
struct Counts {
  Mutex mutex;
  std::map<Key, std::size_t> handles DROVER_GUARDED_BY(mutex);

  static Counts& instance() {
    static auto* const all = new Counts;  // never destroyed: handles may outlive static destruction
    return *all;
  }

  Counts() { ::pthread_atfork(before, in_parent, in_child); }

  // Locked before the fork and unlocked after it on both sides; the analysis sees one function at a time.
  static void before() DROVER_NO_THREAD_ANALYSIS { instance().mutex.lock(); }
  static void in_parent() DROVER_NO_THREAD_ANALYSIS { instance().mutex.unlock(); }
  static void in_child() DROVER_NO_THREAD_ANALYSIS {
    instance().handles.clear();
    instance().mutex.unlock();
  }
};

Key key_of(const SharedObject& object) { return {&object.membership(), object.handle().generation}; }

}  // namespace

LocalOpening::LocalOpening(const SharedObject& object, const std::function<void()>& when_first,
                           std::function<void()> when_last)
    : object_(object), when_last_(std::move(when_last)), process_(::getpid()) {
  Counts& all = Counts::instance();
  const MutexLock lock(all.mutex);
  if (++all.handles[key_of(object)] == 1) when_first();
}

// Neither a forked child, which has copies of its parent's handles, nor a process that left the session deregisters.
LocalOpening::~LocalOpening() {
  if (process_ != ::getpid()) return;
  Counts& all = Counts::instance();
  const MutexLock lock(all.mutex);
  const auto at = all.handles.find(key_of(object_));
  if (--at->second > 0) return;
  all.handles.erase(at);
  if (object_.membership().self() != kNobody) when_last_();
}

}  // namespace drover::ipc
