// ipc/queue/queue_use.hpp: which threads of this process use a queue, and for what.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "drover/ipc/shared_object.hpp"

namespace drover {

/// Who of this process's threads did one half of a queue's work: nobody so far, one, or several. A thread that did it
/// may do it again.
class Doers {
 public:
  /// The calling thread did it. One load when it did so before.
  void note() noexcept {
    if (who_.load(std::memory_order_relaxed) != this_thread()) note_new();  // relaxed: a hint for this process alone
  }
  /// Whether a thread other than the calling one did it.
  [[nodiscard]] bool has_other() const noexcept { return has_other_than(this_thread()); }
  /// The same for the bridge, whose thread asks for whoever does the `counterpart`.
  [[nodiscard]] bool has_other_than_doers_of(const Doers& counterpart) const noexcept {
    return has_other_than(counterpart.who_.load(std::memory_order_relaxed));  // relaxed: a hint
  }

 private:
  static constexpr std::uintptr_t kSeveral = 1;  // no address
  // Where a thread keeps its own variables is a name for it.
  static std::uintptr_t this_thread() noexcept { return reinterpret_cast<std::uintptr_t>(&mark); }
  static inline thread_local char mark = 0;
  void note_new() noexcept;
  [[nodiscard]] bool has_other_than(std::uintptr_t thread) const noexcept;

  std::atomic<std::uintptr_t> who_{0};
};

/// How this process uses a queue, by whichever of its handles.
struct QueueUse {
  Doers putters;
  Doers getters;
};

/// The one of this process and queue, as long as any handle keeps it.
[[nodiscard]] std::shared_ptr<QueueUse> use_of(const SharedObject& queue);

}  // namespace drover
