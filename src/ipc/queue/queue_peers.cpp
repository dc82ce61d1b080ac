#include "ipc/queue/queue_peers.hpp"

#include <pthread.h>

#include <map>
#include <utility>

#include "drover/base/mutex.hpp"
#include "ipc/object/left_alone.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/queue/queue_layout.hpp"
#include "ipc/wake/bridge.hpp"

namespace drover::ipc {
namespace {

// By membership and generation. Expired entries are replaced: a later membership may reuse an address.
struct Uses {
  using Key = std::pair<const Membership*, std::uint64_t>;

  static Uses& instance() {
    static auto* const uses = new Uses;  // never destroyed: queues may outlive static destruction
    return *uses;
  }

  Uses() { ::pthread_atfork(before_fork, after_fork, after_fork); }

  // Locked before a fork and unlocked after it on both sides; the analysis sees one function at a time.
  static void before_fork() DROVER_NO_THREAD_ANALYSIS { instance().mutex.lock(); }
  static void after_fork() DROVER_NO_THREAD_ANALYSIS { instance().mutex.unlock(); }

  Mutex mutex;
  std::map<Key, std::weak_ptr<QueueUse>> all DROVER_GUARDED_BY(mutex);
};

// The same for all openings of `queue` in this process.
std::shared_ptr<QueueUse> use_of(const SharedObject& queue) {
  Uses& uses = Uses::instance();
  const MutexLock lock(uses.mutex);
  std::erase_if(uses.all, [](const auto& each) { return each.second.expired(); });
  auto& entry = uses.all[{&queue.membership(), queue.handle().generation}];
  auto use = entry.lock();
  if (use == nullptr) entry = use = std::make_shared<QueueUse>();
  return use;
}

bool has_other_users(const ThreadUse& half, const ThreadUse& other_half) noexcept {
  return Bridge::is_this_thread() ? other_half.has_other_than_users_of(half) : other_half.has_other();
}

}  // namespace

void ThreadUse::note_new() noexcept {
  std::uintptr_t none = 0;
  if (!thread_.compare_exchange_strong(none, this_thread())) thread_.store(kSeveral, std::memory_order_relaxed);
}

bool ThreadUse::has_other_than(std::uintptr_t thread) const noexcept {
  const std::uintptr_t noted = thread_.load(std::memory_order_relaxed);  // relaxed: a hint for this process
  return noted == kSeveral || (noted != 0 && noted != thread);
}

QueuePeers::QueuePeers(const SharedObject& queue) : queue_(queue), use_(use_of(queue)) {}

// Nobody is left to do the other half if there were others, nobody else has the queue open or is starting, all
// present participants have closed it, this process does not start participants by itself, and no other thread of it
// does that half. The population is read
// before the openers are read again, so that a participant which joins and opens the queue meanwhile is counted.
bool QueuePeers::is_alone(const ThreadUse& half, const ThreadUse& other_half) const noexcept {
  if (pipe_rule_) return pipe_rule_();
  const ObjectHeader& header = header_of(queue_.data());
  if (header.openers.load() > 1 || waits_alone(queue_.spec()) || has_other_users(half, other_half)) return false;
  const Population population = queue_.membership().population();
  if (expects_peers() || population.starting > 0 || header.acquainted.load() < population.present ||
      header.openers.load() > 1)
    return false;
  return header.ever_opened.load() > 1 || population.departed != header.departed_before;
}

}  // namespace drover::ipc
