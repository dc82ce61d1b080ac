// ipc/sync/condition_layout.hpp: a Condition in shared memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>

#include "drover/ipc/condition.hpp"
#include "ipc/object/object_kind.hpp"
#include "ipc/wake/bell.hpp"

namespace drover::ipc {

/// Each waiter has a cell: state (2 bits), a mark that it sleeps, its participant (13 bits) and a ticket (48 bits).
///
/// 1. free -> waiting, with owner and ticket: by the waiter before it releases the lock, in one compare-and-swap.
/// 2. waiting -> notified: by a notifier, or a death that passes a notification on, for the lowest ticket. waiting ->
///    free: by a waiter that gives up. One compare-and-swap decides, so a notification is used or goes to another.
/// 3. notified -> free: by the waiter once it holds the lock. Until then its death passes the notification on.
/// 4. A waiter sets the mark and sleeps on the low half of its cell, which has the state. The notifier of a cell with
///    the mark wakes it.
/// 5. Cells are taken from the first on, and `used` is raised before; no cell from `used` on was ever taken.
struct ConditionLayout {
  alignas(kCacheLine) std::atomic<std::uint64_t> next_ticket;
  std::atomic<std::uint32_t> used;
  alignas(kCacheLine) std::array<std::atomic<std::uint64_t>, Condition::kMostWaiters> cells;
};
static_assert(std::is_standard_layout_v<ConditionLayout>);

/// A waiter's cell.
class ConditionPlace {
 public:
  /// What a wait needs to know.
  struct Waiting {
    const Membership& membership;
    Deadline deadline;
    Patience& patience;
    const std::function<bool()>& is_interrupted;  ///< called after each sleep; ends the wait as a deadline does
    std::function<bool()> is_woken_otherwise;     ///< called after each sleep; ends the wait as a notification does
  };

  ConditionPlace(std::atomic<std::uint64_t>& cell, std::uint64_t word) noexcept : cell_(&cell), word_(word) {}

  /// Waits for a notification or another reason to wake. Leaves the cell when the deadline has passed, and when
  /// `membership.check()` throws.
  [[nodiscard]] WaitResult await(const Waiting& waiting) const;
  /// Frees the cell, unless it was freed already.
  void leave() const noexcept;

 private:
  [[nodiscard]] bool spin(Patience& patience) const;
  [[nodiscard]] WaitResult sleep(const Waiting& waiting) const;
  [[nodiscard]] bool give_up() const noexcept;

  std::atomic<std::uint64_t>* cell_;
  std::uint64_t word_;
};

/// The operations on a condition, without its lock.
class ConditionCore {
 public:
  explicit ConditionCore(std::byte* layout) : layout_(reinterpret_cast<ConditionLayout*>(layout)) {}

  /// Takes a cell as `self`; nullopt if all are taken.
  [[nodiscard]] std::optional<ConditionPlace> take_place(Owner self) const;
  /// Notifies the waiter that has waited longest; false if nobody waits.
  [[nodiscard]] bool notify_one() const noexcept;
  /// Notifies all waiters; returns their number.
  [[nodiscard]] std::uint32_t notify_all() const noexcept;
  /// Number of waiters that were not notified.
  [[nodiscard]] std::uint32_t waiting() const noexcept;
  /// Frees the cells of the dead, and passes their notifications on.
  void recover(Owner dead) const noexcept;
  /// Wakes all waiters without notifying them.
  void wake_all() const noexcept;

 private:
  [[nodiscard]] std::uint32_t used() const noexcept;

  ConditionLayout* layout_;
};

}  // namespace drover::ipc
