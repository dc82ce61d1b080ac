// tests/torture/roles.hpp: the work of the processes until they are killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "drover/ipc/membership.hpp"
#include "drover/ipc/queue.hpp"
#include "torture/ledger.hpp"

namespace drover::test {

enum class Role {
  producer,  ///< puts, by copy or by loan
  consumer,  ///< receives, works, calls done; sometimes gives back
  getter,    ///< gets
  holder,    ///< acquires and releases locks and permits
};
[[nodiscard]] const char* to_string(Role role) noexcept;

/// The participants and parameters of a run.
struct Mix {
  std::string name;
  int producers = 1;
  int consumers = 1;
  int getters = 0;
  int holders = 0;
  QueueOptions queue{.capacity = 256, .bytes = std::uint64_t{1} << 20U, .in_flight = 16};
  std::vector<std::size_t> sizes = {16};  ///< message sizes, chosen at random
  bool has_loans = false;                 ///< half of the messages above 1 KiB are written in place
  unsigned mean_gap_us = 500;             ///< mean time between kills
};

inline constexpr std::uint64_t kPermits = 2;

/// The objects and the ledger, shared by all processes.
struct Stage {
  const Mix& mix;
  const Ledger& ledger;
  ObjectHandle queue;
  ObjectHandle lock;
  ObjectHandle rlock;
  ObjectHandle semaphore;
};

/// Plays a role forever. `index` is the number within the role; `seed` differs each time.
[[noreturn]] void play(const Stage& stage, Role role, std::uint64_t index, std::uint64_t seed,
                       const std::shared_ptr<Membership>& member);

/// Checks a message and records its delivery; nullopt if it is torn.
std::optional<MessageId> take_note(const Ledger& ledger, std::span<const std::byte> bytes, MessageKey key,
                                   bool is_redelivered);

}  // namespace drover::test
