// ipc/queue/queue_peers.hpp: whether anybody is left to do the other half of a queue's work.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "drover/ipc/membership.hpp"

namespace drover::ipc {

/// Which threads of this process have put, or have got: none, one, or several. A thread that did so may do so again.
class ThreadUse {
 public:
  /// Notes the calling thread. One load if it was the last to be noted.
  void note() noexcept {
    if (thread_.load(std::memory_order_relaxed) != this_thread()) note_new();  // relaxed: a hint for this process
  }
  /// Whether a thread other than the calling one was noted.
  [[nodiscard]] bool has_other() const noexcept { return has_other_than(this_thread()); }
  /// Whether a thread other than the one noted in `counterpart` was noted. For the bridge, whose thread asks on
  /// behalf of that one.
  [[nodiscard]] bool has_other_than_users_of(const ThreadUse& counterpart) const noexcept {
    return has_other_than(counterpart.thread_.load(std::memory_order_relaxed));  // relaxed: a hint for this process
  }

 private:
  static constexpr std::uintptr_t kSeveral = 1;  // not an address
  // The address of a thread-local variable identifies the thread.
  static std::uintptr_t this_thread() noexcept { return reinterpret_cast<std::uintptr_t>(&mark); }
  static inline thread_local char mark = 0;
  void note_new() noexcept;
  [[nodiscard]] bool has_other_than(std::uintptr_t thread) const noexcept;

  std::atomic<std::uintptr_t> thread_{0};
};

/// How this process uses a queue, through all of its handles.
struct QueueUse {
  ThreadUse putters;
  ThreadUse getters;
};

/// The other users of a queue, as one opening of it sees them. Safe for all threads. Requires: destroyed before
/// `queue` is.
class QueuePeers {
 public:
  explicit QueuePeers(const SharedObject& queue);

  /// Replaces the rule for "nobody is left"; pipes have their own. Call before first use.
  void set_pipe_rule(std::function<bool()> is_gone) { pipe_rule_ = std::move(is_gone); }
  [[nodiscard]] bool is_pipe() const noexcept { return pipe_rule_ != nullptr; }
  /// Whether this is a pipe whose other end is gone.
  [[nodiscard]] bool is_pipe_end_gone() const noexcept { return pipe_rule_ && pipe_rule_(); }

  /// Notes that the calling thread puts, or gets.
  void note_put() noexcept { use_->putters.note(); }
  void note_get() noexcept { use_->getters.note(); }
  /// Whether nobody but the caller can make room, or put a message.
  [[nodiscard]] bool are_getters_gone() const noexcept { return is_alone(use_->putters, use_->getters); }
  [[nodiscard]] bool are_putters_gone() const noexcept { return is_alone(use_->getters, use_->putters); }

 private:
  [[nodiscard]] bool is_alone(const ThreadUse& half, const ThreadUse& other_half) const noexcept;

  const SharedObject& queue_;
  std::function<bool()> pipe_rule_;
  std::shared_ptr<QueueUse> use_;  // shared: with other openings of the queue in this process
};

}  // namespace drover::ipc
