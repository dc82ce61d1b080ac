#include "ipc/queue/queue_use.hpp"

#include <pthread.h>

#include <map>
#include <utility>

#include "drover/base/mutex.hpp"

namespace drover {
namespace {

// By membership and generation. An entry whose last handle is gone is replaced when its name comes again: a later
// membership may have the address of an earlier one.
struct Uses {
  using Key = std::pair<const Membership*, std::uint64_t>;

  static Uses& instance() {
    static auto* const uses = new Uses;  // never destroyed: queues may outlive static destruction
    return *uses;
  }

  Uses() { ::pthread_atfork(before_fork, after_fork, after_fork); }

  // Taken before a fork and given back after it, on both sides; the analysis sees one function at a time.
  static void before_fork() DROVER_NO_THREAD_ANALYSIS { instance().mutex.lock(); }
  static void after_fork() DROVER_NO_THREAD_ANALYSIS { instance().mutex.unlock(); }

  Mutex mutex;
  std::map<Key, std::weak_ptr<QueueUse>> all DROVER_GUARDED_BY(mutex);
};

}  // namespace

void Doers::note_new() noexcept {
  std::uintptr_t nobody = 0;
  if (!who_.compare_exchange_strong(nobody, this_thread())) who_.store(kSeveral, std::memory_order_relaxed);
}

bool Doers::has_other_than(std::uintptr_t thread) const noexcept {
  const std::uintptr_t who = who_.load(std::memory_order_relaxed);  // relaxed: a hint for this process alone
  return who == kSeveral || (who != 0 && who != thread);
}

std::shared_ptr<QueueUse> use_of(const SharedObject& queue) {
  Uses& uses = Uses::instance();
  const MutexLock lock(uses.mutex);
  std::erase_if(uses.all, [](const auto& each) { return each.second.expired(); });
  auto& known = uses.all[{&queue.membership(), queue.handle().generation}];
  auto use = known.lock();
  if (use == nullptr) known = use = std::make_shared<QueueUse>();
  return use;
}

}  // namespace drover
