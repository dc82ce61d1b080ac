// ipc/wake/bridge.hpp: makes descriptors readable when bells ring, for event loops.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "drover/base/fd.hpp"
#include "drover/base/mutex.hpp"
#include "ipc/wake/bell.hpp"

namespace drover {

/// What is watched: a bell, and whether what it announces is there.
struct BridgeTarget {
  Bell* bell = nullptr;
  std::function<bool()> is_ready;          ///< cheap, takes nothing
  std::shared_ptr<Membership> membership;  ///< keeps the bell mapped; told from when the session is over
};

/// One thread of this process that sleeps on many bells and writes eventfds. Started with the first watch, never
/// ended. It dies with its process, so no other process depends on it. Its price is a second wake-up on the way; who
/// waits for bells alone does not need it.
class Bridge {
 public:
  /// The one of this process; another one in a forked child.
  static Bridge& instance();
  /// Whether the caller is a bridge's thread, which asks for others.
  [[nodiscard]] static bool is_this_thread() noexcept;

  /// A descriptor that becomes readable when the target is ready, or its session over; then stays so until `rearm`.
  /// Destruction ends the watch and returns when the thread does not touch the bell any more; of a forked child's
  /// copy it does nothing.
  class Watch {
   public:
    explicit Watch(BridgeTarget target);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    /// For poll.
    [[nodiscard]] int fd() const noexcept;
    /// Makes the descriptor unreadable and watches again. For who has found nothing left to take.
    void rearm();

   private:
    struct Entry;
    friend class Bridge;
    [[nodiscard]] bool is_of_this_process() const noexcept;
    Bridge* bridge_;
    std::shared_ptr<Entry> entry_;
  };

 private:
  Bridge() = default;
  void add(std::shared_ptr<Watch::Entry> entry) DROVER_EXCLUDES(mutex_);
  void remove(const std::shared_ptr<Watch::Entry>& entry) DROVER_EXCLUDES(mutex_);
  void start_thread();
  void look_again() noexcept;
  [[noreturn]] void run();
  void pass();
  void sleep(const std::vector<std::shared_ptr<Watch::Entry>>& entries, std::vector<std::uint32_t>& announced,
             std::uint32_t turn);

  Mutex mutex_;
  ConditionVariable has_passed_;
  std::vector<std::shared_ptr<Watch::Entry>> entries_ DROVER_GUARDED_BY(mutex_);
  std::uint64_t passes_ DROVER_GUARDED_BY(mutex_) = 0;
  bool is_running_ DROVER_GUARDED_BY(mutex_) = false;
  Bell turn_{};  // rung when the entries change
};

}  // namespace drover
