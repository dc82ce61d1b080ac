#include "ipc/local_openings.hpp"

#include <unistd.h>

#include <cstdint>
#include <map>
#include <utility>

#include "drover/base/mutex.hpp"

namespace drover {
namespace {

using Key = std::pair<const Membership*, std::uint64_t>;  // of the object: its generation

struct Counts {
  Mutex mutex;
  std::map<Key, std::size_t> handles DROVER_GUARDED_BY(mutex);
};

Counts& counts() {
  static auto* const all = new Counts;  // never destroyed: handles may outlive static destruction
  return *all;
}

Key key_of(const SharedObject& object) { return {&object.membership(), object.handle().generation}; }

}  // namespace

LocalOpening::LocalOpening(const SharedObject& object, const std::function<void()>& when_first,
                           std::function<void()> when_last)
    : object_(object), when_last_(std::move(when_last)), process_(::getpid()) {
  Counts& all = counts();
  const MutexLock lock(all.mutex);
  if (++all.handles[key_of(object)] == 1) when_first();
}

// A forked child has copies of its parent's handles, and nothing to say for them; nor has who has left the session.
LocalOpening::~LocalOpening() {
  if (process_ != ::getpid()) return;
  Counts& all = counts();
  const MutexLock lock(all.mutex);
  const auto at = all.handles.find(key_of(object_));
  if (--at->second > 0) return;
  all.handles.erase(at);
  if (object_.membership().self() != kNobody) when_last_();
}

}  // namespace drover
