#include "ipc/object/local_openings.hpp"

#include <pthread.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <utility>

#include "drover/base/mutex.hpp"

namespace drover {
namespace {

using Key = std::pair<const Membership*, std::uint64_t>;  // of the object: its generation

// A forked child begins without handles of its own: those of its parent say nothing there, and a membership of the
// child may get the address of one of the parent's.
struct Counts {
  Mutex mutex;
  std::map<Key, std::size_t> handles DROVER_GUARDED_BY(mutex);

  static Counts& instance() {
    static auto* const all = new Counts;  // never destroyed: handles may outlive static destruction
    return *all;
  }

  Counts() { ::pthread_atfork(before, in_parent, in_child); }

  // Taken before the fork and given back after it, on both sides; the analysis sees one function at a time.
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

// A forked child has copies of its parent's handles, and nothing to say for them; nor has who has left the session.
LocalOpening::~LocalOpening() {
  if (process_ != ::getpid()) return;
  Counts& all = Counts::instance();
  const MutexLock lock(all.mutex);
  const auto at = all.handles.find(key_of(object_));
  if (--at->second > 0) return;
  all.handles.erase(at);
  if (object_.membership().self() != kNobody) when_last_();
}

}  // namespace drover
