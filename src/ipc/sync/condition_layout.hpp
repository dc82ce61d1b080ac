// ipc/sync/condition_layout.hpp: what a Condition is in shared memory.
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

namespace drover {

/// Each waiter has a cell: state (2 bits), a mark that it sleeps, its participant (13 bits) and a ticket (48 bits).
///
/// 1. free -> waiting, with owner and ticket, by the waiter, before it releases the lock, in one compare-and-swap.
/// 2. waiting -> notified by whoever notifies or passes on, to the lowest ticket there is; waiting -> free by a
/// waiter
///    that gives up. One compare-and-swap decides between the two, so a notification is used or goes to another.
/// 3. notified -> free by the waiter once it holds the lock. Until then its death passes the notification on.
/// 4. A waiter sets the mark and sleeps on the low half of its cell, in which the state lies. Whoever notifies a cell
///    with the mark wakes it.
/// 5. Cells are taken from the first on, and `used` is raised before; no cell from `used` on was ever taken.
struct ConditionLayout {
  alignas(kCacheLine) std::atomic<std::uint64_t> next_ticket;
  std::atomic<std::uint32_t> used;
  alignas(kCacheLine) std::array<std::atomic<std::uint64_t>, Condition::kMostWaiters> cells;
};
static_assert(std::is_standard_layout_v<ConditionLayout>);

/// A cell that was taken, as the waiter has it.
class ConditionPlace {
 public:
  /// What a wait needs to know.
  struct Waiting {
    const Membership& membership;
    Deadline deadline;
    Patience& patience;
    const std::function<bool()>& is_interrupted;  ///< asked likewise; the place is then given up
    std::function<bool()> is_woken_otherwise;     ///< asked whenever the sleep is interrupted
  };

  ConditionPlace(std::atomic<std::uint64_t>& cell, std::uint64_t word) noexcept : cell_(&cell), word_(word) {}

  /// Waits for a notification or another reason to wake. Gives the place up when the deadline has passed, and when
  /// `membership.check()` throws.
  [[nodiscard]] WaitResult await(const Waiting& waiting) const;
  /// Frees the cell, unless that has happened.
  void leave() const noexcept;

 private:
  [[nodiscard]] bool look(Patience& patience) const;
  [[nodiscard]] WaitResult sleep(const Waiting& waiting) const;
  [[nodiscard]] bool give_up() const noexcept;

  std::atomic<std::uint64_t>* cell_;
  std::uint64_t word_;
};

/// The operations on it, without the lock.
class ConditionCore {
 public:
  explicit ConditionCore(std::byte* layout) : layout_(reinterpret_cast<ConditionLayout*>(layout)) {}

  /// Takes a cell as `self`; nothing if all are taken.
  [[nodiscard]] std::optional<ConditionPlace> take_place(Owner self) const;
  /// Notifies the one who has waited longest; false if nobody waits.
  [[nodiscard]] bool notify_one() const noexcept;
  /// Notifies everybody.
  [[nodiscard]] std::uint32_t notify_all() const noexcept;
  /// How many wait.
  [[nodiscard]] std::uint32_t waiting() const noexcept;
  /// Frees the cells of the dead, and passes on what they had been told.
  void recover(Owner dead) const noexcept;
  /// Wakes everybody without notifying.
  void wake_all() const noexcept;

 private:
  [[nodiscard]] std::uint32_t used() const noexcept;

  ConditionLayout* layout_;
};

extern const ObjectKindInfo condition_kind;

}  // namespace drover
