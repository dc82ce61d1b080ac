// base/activity.hpp: the call or wait that a thread is in, visible to other processes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "drover/base/clock.hpp"

namespace drover {

/// Lies in shared memory: written by the one thread it describes, read by any process. For people only: a reader may
/// see a name that mixes two writes.
struct ActivitySlot {
  static constexpr std::size_t kWords = 5;                ///< of the name: 40 bytes with the final zero
  std::atomic<std::uint64_t> since{0};                    ///< nanoseconds of the monotonic clock; 0 if in none
  std::array<std::atomic<std::uint64_t>, kWords> name{};  ///< "cuMemAlloc", "queue.get", ... padded with zeros
};

namespace detail {
/// The slot of this thread, set once; nullptr unless the thread is watched.
inline thread_local constinit ActivitySlot* activity_slot = nullptr;
}  // namespace detail

/// Marks this thread as being in `name` from construction to destruction, if it is watched; otherwise costs a load
/// and a branch. A nested mark hides the outer one until it ends.
class ActivityMark {
 public:
  explicit ActivityMark(const char* name) noexcept : slot_(detail::activity_slot) {
    if (slot_ != nullptr) [[unlikely]]
      enter(name);
  }
  ~ActivityMark() {
    if (slot_ != nullptr) [[unlikely]]
      leave();
  }
  ActivityMark(const ActivityMark&) = delete;
  ActivityMark& operator=(const ActivityMark&) = delete;

 private:
  using Name = std::array<std::uint64_t, ActivitySlot::kWords>;

  void enter(const char* name) noexcept {
    outer_since_ = slot_->since.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < outer_.size(); ++i) outer_.at(i) = slot_->name.at(i).load(std::memory_order_relaxed);
    Name words{};
    std::strncpy(reinterpret_cast<char*>(words.data()), name, sizeof(words) - 1);
    store(words);
    const auto now = Clock::now().time_since_epoch();
    slot_->since.store(static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count()), std::memory_order_release);
  }
  void leave() noexcept {
    slot_->since.store(outer_since_, std::memory_order_release);
    store(outer_);
  }
  void store(const Name& words) noexcept {
    for (std::size_t i = 0; i < words.size(); ++i) slot_->name.at(i).store(words.at(i), std::memory_order_relaxed);
  }

  ActivitySlot* slot_;
  std::uint64_t outer_since_ = 0;
  Name outer_{};
};

}  // namespace drover
