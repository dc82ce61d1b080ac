// tests/torture/kill_torture.hpp: kills processes at random moments, recovers and replaces them, and checks the
// ledger.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "torture/roles.hpp"

namespace drover::test {

/// A fault that the driver injects after each recovery, to test that the checks notice it.
enum class Mischief {
  none,
  recover_the_living,  ///< recovers processes before they are dead
  steal,               ///< takes a message without recording it
  forge,               ///< puts a message that no producer has put
  tear,                ///< puts a message with a wrong byte
  repeat,              ///< takes a message, records it, and puts it again
  keep_a_block,        ///< allocates memory and never frees it
  enter_a_lock,        ///< changes the data of a lock without holding it
};

/// Options of `torture`.
struct TortureOptions {
  std::uint64_t kills = 1000;
  std::uint64_t seed = 1;
  Mischief mischief = Mischief::none;
  std::function<void(const std::string& line)> progress;  ///< called about once a second
};

/// The result of a mix.
struct TortureReport {
  std::string mix;
  std::uint64_t seed = 0;
  double seconds = 0;
  std::uint64_t rounds = 0;
  std::uint64_t kills = 0;
  std::uint64_t writing_by_dead = 0;  ///< slots that dead producers and flights that dead consumers were writing
  std::uint64_t reading_by_dead = 0;  ///< slots and flights that dead consumers held
  std::uint64_t locks_by_dead = 0;
  std::uint64_t may_be_gone = 0;  ///< messages that killed getters may have taken, as documented for `get`
  Ledger::Sums sums;
  std::uint64_t faults = 0;
  std::vector<std::string> complaints;  ///< violations in words; empty if all was right

  [[nodiscard]] bool is_right() const noexcept { return complaints.empty(); }
  /// A one-line summary, followed by the complaints.
  [[nodiscard]] std::string to_string() const;
};

/// Tortures one mix. Forks, so the process must be single-threaded. Stops at the first violation.
[[nodiscard]] TortureReport torture(const Mix& mix, const TortureOptions& options);

/// All mixes: one to one, many to many, few slots, large messages, loans, locks.
[[nodiscard]] const std::vector<Mix>& all_mixes();

}  // namespace drover::test
