// ipc/wake/bridge.hpp: makes descriptors readable when bells ring, for event loops.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "drover/base/fd.hpp"
#include "drover/base/mutex.hpp"
#include "ipc/wake/bell.hpp"

namespace drover::ipc {

/// What is watched: a bell, and the condition that it announces.
struct BridgeTarget {
  Bell* bell = nullptr;
  std::function<bool()> is_ready;          ///< cheap, takes nothing
  std::shared_ptr<Membership> membership;  ///< keeps the bell mapped; checked for the end of the session
};

/// One thread of this process that sleeps on many bells and writes eventfds. Starts with the first watch and never
/// ends. No other process depends on it. It costs a second wake-up, so waits on bells alone do not use it.
class Bridge {
 public:
  /// This process's; a forked child has its own.
  static Bridge& instance();
  /// Whether the caller is a bridge's thread, which acts for others.
  [[nodiscard]] static bool is_this_thread() noexcept;

  /// A descriptor that becomes readable when the target is ready or its session is over, and stays so until `rearm`.
  /// Destruction returns once the thread no longer touches the bell; for a forked child's copy it does nothing.
  class Watch {
   public:
    explicit Watch(BridgeTarget target);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    /// For poll.
    [[nodiscard]] int fd() const noexcept;
    /// Makes the descriptor unreadable and watches again. Call when nothing is left to take.
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
  void restart() noexcept;
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

}  // namespace drover::ipc
