// tests/torture/queue_probe.hpp: inspects the memory of a queue to predict what must happen next.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "drover/ipc/queue.hpp"
#include "ipc/queue/queue_layout.hpp"
#include "support/test_session.hpp"

namespace drover::test {

/// A message whose bytes all depend on `number`, so that torn or foreign messages are recognised.
[[nodiscard]] std::string numbered_message(std::uint64_t number, std::size_t bytes);
/// The same, in existing memory.
void fill_numbered(std::span<std::byte> message, std::uint64_t number);
/// The number of such a message; throws std::runtime_error with the reason if it is not intact.
[[nodiscard]] std::uint64_t number_of(std::span<const std::byte> message);
inline constexpr std::size_t kSmallestMessage = sizeof(std::uint64_t);

/// The queue that a stepped process was invited to.
inline Queue open_queue(const Invited& invited) { return {invited.membership, invited.handles.at(0)}; }

/// Reads the words of a queue directly. Use only while no other process changes them.
class QueueProbe {
 public:
  explicit QueueProbe(const OpenObject& object);

  /// Keys of the pending messages: published, but not finished.
  [[nodiscard]] std::set<MessageKey> owed() const;
  /// A description of the slots and flights that are not free; empty if all are.
  [[nodiscard]] std::string not_free() const;
  /// Blocks in use.
  [[nodiscard]] std::uint64_t used_blocks() const { return view_.pool.used_blocks(); }
  [[nodiscard]] std::uint64_t free_bytes() const { return view_.pool.free_bytes(); }
  /// Number of slots and flights that `owner` holds in `state`.
  [[nodiscard]] std::uint64_t held(Owner owner, ipc::RingSlotState state) const;
  /// Owner of a slot or flight that is being written or read right now, searching from `start`; or `kNobody`.
  [[nodiscard]] Owner somebody_busy(std::uint64_t start) const;

 private:
  ipc::QueueView view_;
};

}  // namespace drover::test
