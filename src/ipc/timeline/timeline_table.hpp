// ipc/timeline/timeline_table.hpp: the session's timelines as a participant uses them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "drover/ipc/membership.hpp"
#include "ipc/timeline/timeline_layout.hpp"

namespace drover::ipc {

/// A moment on a timeline: when `word` of slot `slot` reaches `value`. Travels between processes as bytes.
struct TimelinePoint {
  std::uint64_t value = 0;                                ///< never 0
  std::uint32_t slot = 0;                                 ///< index of the timeline
  std::int32_t pid = 0;                                   ///< of its process, for messages
  bool operator==(const TimelinePoint&) const = default;  ///< same moment
};

/// The state of a moment.
enum class PointState {
  pending,  ///< work before it is not done yet
  reached,  ///< all work before it is done
  lost,     ///< its process died before it was reached
};

/// The session's only table of timelines, open in this process. Safe for all threads.
class TimelineTable {
 public:
  /// Opens the table, and makes it if it does not exist.
  explicit TimelineTable(std::shared_ptr<Membership> membership);

  /// The whole pages that contain the words, to be registered for devices.
  [[nodiscard]] std::span<std::byte> memory() const noexcept;
  /// Takes a free timeline; nullopt if there is none.
  [[nodiscard]] std::optional<std::uint32_t> take();
  /// Frees a timeline of this process if its stream has done all its work; otherwise leaves it to the keeper.
  void give_back(std::uint32_t slot) noexcept;

  /// The word that streams write and wait on.
  [[nodiscard]] std::atomic<std::uint64_t>& word(std::uint32_t slot) const noexcept { return at(slot).word; }
  /// The last value submitted to the stream of a timeline.
  [[nodiscard]] std::uint64_t submitted(std::uint32_t slot) const noexcept { return at(slot).submitted.load(); }
  /// Records that `value` was submitted to the stream.
  void note_submitted(std::uint32_t slot, std::uint64_t value) noexcept { at(slot).submitted.store(value); }

  /// Whether a received point is possible: its work was submitted, even if it is lost since.
  [[nodiscard]] bool is_valid(const TimelinePoint& point) const noexcept;
  /// The state of a point. Requires: `is_valid` was true.
  [[nodiscard]] PointState state_of(const TimelinePoint& point) const noexcept;
  /// Declares that the stream of a timeline of this process will store nothing more: its unfinished work is lost, and
  /// waits for it end.
  void lose(std::uint32_t slot) noexcept;
  /// Replaces the keeper in a session that has lost it: if the process of a point is dead, marks the point as lost.
  void recover_without_keeper(const TimelinePoint& point) noexcept;

 private:
  [[nodiscard]] TimelineSlot& at(std::uint32_t slot) const noexcept {
    return reinterpret_cast<TimelineLayout*>(object_.layout())->slots[slot];
  }

  SharedObject object_;
};

}  // namespace drover::ipc
