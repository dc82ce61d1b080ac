// ipc/timeline/timeline_table.hpp: the session's timelines, as a participant uses them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "drover/ipc/shared_object.hpp"
#include "ipc/timeline/timeline_layout.hpp"

namespace drover {

/// A moment on a timeline: when `word` of slot `slot` reaches `value`. Travels between processes as bytes.
struct TimelinePoint {
  std::uint64_t value = 0;                                ///< never 0
  std::uint32_t slot = 0;                                 ///< which timeline
  std::int32_t pid = 0;                                   ///< whose, for messages
  bool operator==(const TimelinePoint&) const = default;  ///< same moment
};

/// What has become of a moment.
enum class PointState {
  pending,  ///< it has not come yet
  reached,  ///< all work before it is done
  lost,     ///< it will never come: its process died before
};

/// The one table of timelines that a session has, open in this process. Safe for all threads.
class TimelineTable {
 public:
  /// Opens it; the first one who does makes it.
  explicit TimelineTable(std::shared_ptr<Membership> membership);

  /// The whole pages in which the words lie, to be made known to devices.
  [[nodiscard]] std::span<std::byte> memory() const noexcept;
  /// Takes a free timeline; nothing if there is none.
  [[nodiscard]] std::optional<std::uint32_t> take();
  /// Frees one of this process, whose stream has done all that it was told; else it is left to the keeper.
  void give_back(std::uint32_t slot) noexcept;

  /// The word that streams write and wait on.
  [[nodiscard]] std::atomic<std::uint64_t>& word(std::uint32_t slot) const noexcept { return at(slot).word; }
  /// The last value that the stream of a timeline was told to store.
  [[nodiscard]] std::uint64_t submitted(std::uint32_t slot) const noexcept { return at(slot).submitted.load(); }
  /// Says that the stream was told to store `value`.
  void note_submitted(std::uint32_t slot, std::uint64_t value) noexcept { at(slot).submitted.store(value); }

  /// Whether a point that came from elsewhere can be one: its work was submitted, or is lost since.
  [[nodiscard]] bool is_valid(const TimelinePoint& point) const noexcept;
  /// What has become of it. Requires: `is_valid`, now or once.
  [[nodiscard]] PointState state_of(const TimelinePoint& point) const noexcept;
  /// Says that the stream of a timeline of this process will store nothing more: what it has not reached is lost, and
  /// whoever waits goes on.
  void lose(std::uint32_t slot) noexcept;
  /// Does the keeper's work in a session that has none any more: if the process of a point is dead, the point is
  /// lost.
  void bury_without_keeper(const TimelinePoint& point) noexcept;

 private:
  [[nodiscard]] TimelineSlot& at(std::uint32_t slot) const noexcept {
    return reinterpret_cast<TimelineLayout*>(object_.layout())->slots[slot];
  }

  SharedObject object_;
};

}  // namespace drover
