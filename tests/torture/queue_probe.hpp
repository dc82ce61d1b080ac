// tests/torture/queue_probe.hpp: looks into a queue's memory to say what must happen next.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "drover/ipc/queue.hpp"
#include "ipc/queue/queue_layout.hpp"
#include "support/test_session.hpp"

namespace drover::test {

/// A message whose every byte follows from a number, so that a torn or foreign one is recognised.
[[nodiscard]] std::string numbered_message(std::uint64_t number, std::size_t bytes);
/// The same in memory that is there already.
void fill_numbered(std::span<std::byte> message, std::uint64_t number);
/// The number of such a message; throws std::runtime_error, saying what is wrong, if it is not whole.
[[nodiscard]] std::uint64_t number_of(std::span<const std::byte> message);
inline constexpr std::size_t kSmallestMessage = sizeof(std::uint64_t);

/// The queue that a stepped process was invited to.
inline Queue open_queue(const Invited& invited) { return {invited.membership, invited.handles.at(0)}; }

/// Reads the words of a queue directly. For moments at which nobody else changes them.
class QueueProbe {
 public:
  explicit QueueProbe(const OpenObject& object);

  /// Keys of the messages that are to be delivered: published, and not finished.
  [[nodiscard]] std::set<MessageKey> owed() const;
  /// Slots and flights that are not free: empty if all are, else what they are, for people.
  [[nodiscard]] std::string not_free() const;
  /// Blocks in use.
  [[nodiscard]] std::uint64_t used_blocks() const { return view_.pool.used_blocks(); }
  [[nodiscard]] std::uint64_t free_bytes() const { return view_.pool.free_bytes(); }
  /// Slots and flights that `owner` holds in `state`.
  [[nodiscard]] std::uint64_t held(Owner owner, SlotState state) const;
  /// Owner of a slot or flight that is being written or read at this moment, searched from `start` on; `kNobody` if
  /// there is none.
  [[nodiscard]] Owner somebody_busy(std::uint64_t start) const;

 private:
  QueueView view_;
};

}  // namespace drover::test
