// tests/torture/kill_torture.hpp: kills processes at random moments, buries and replaces them, and keeps the account.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "torture/roles.hpp"

namespace drover::test {

/// Something wrong that the driver does after each burial, to see that the account notices.
enum class Mischief {
  none,
  bury_the_living,  ///< recovers processes before they are dead
  steal,            ///< takes a message and says nothing
  forge,            ///< puts a message that no producer has put
  tear,             ///< puts a message with a wrong byte
  repeat,           ///< takes a message, enters it, and puts it again
  keep_a_block,     ///< takes memory and never gives it back
  enter_a_lock,     ///< changes what a lock guards without holding it
};

/// How much of it.
struct TortureOptions {
  std::uint64_t kills = 1000;
  std::uint64_t seed = 1;
  Mischief mischief = Mischief::none;
  std::function<void(const std::string& line)> progress;  ///< called about once a second
};

/// What came of a mix.
struct TortureReport {
  std::string mix;
  std::uint64_t seed = 0;
  double seconds = 0;
  std::uint64_t rounds = 0;
  std::uint64_t kills = 0;
  std::uint64_t writing_by_dead = 0;  ///< slots that a dead producer, flights that a dead consumer was filling
  std::uint64_t reading_by_dead = 0;  ///< slots and flights that a dead consumer had
  std::uint64_t locks_by_dead = 0;
  std::uint64_t may_be_gone = 0;  ///< messages that a killed getter may have taken along, as `get` says
  Ledger::Sums sums;
  std::uint64_t faults = 0;
  std::vector<std::string> complaints;  ///< what was wrong, for people; empty if all was right

  [[nodiscard]] bool is_right() const noexcept { return complaints.empty(); }
  /// One line.
  [[nodiscard]] std::string to_string() const;
};

/// Tortures one mix. Forks, so call it in a process that has one thread. Ends early if something is wrong.
[[nodiscard]] TortureReport torture(const Mix& mix, const TortureOptions& options);

/// The mixes that are tried: one to one, many to many, few slots, large messages, loans, locks.
[[nodiscard]] const std::vector<Mix>& all_mixes();

}  // namespace drover::test
