// drover/ipc/barrier.hpp: a place where a number of threads wait for each other.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"

namespace drover {

/// How a wait at a barrier ended.
struct [[nodiscard]] BarrierResult {
  /// The kinds of end.
  enum class Kind {
    passed,     ///< all came
    timed_out,  ///< the deadline passed first, and the barrier is broken by that
    broken,     ///< somebody died, timed out, or called `abort` or `reset`
  };
  Kind kind = Kind::passed;  ///< which
  std::uint32_t index = 0;   ///< if passed: from 0, in the order of arrival, different for each of a round

  /// Whether all came.
  [[nodiscard]] bool is_passed() const noexcept { return kind == Kind::passed; }
  /// True for exactly one of each round that was passed.
  [[nodiscard]] bool is_leader() const noexcept { return is_passed() && index == 0; }
};

/// Lets `parties` threads pass when all of them have come, round after round. It breaks, and stays so until `reset`,
/// when one of them gives up, or when a participant that has it open dies: then nobody waits in vain, neither those
/// who are there nor those who come. A participant that closes it in order breaks nothing; one whose last opening is
/// closed by an exception on its way breaks it as if it had died. All functions are safe for all threads.
class Barrier {
 public:
  /// The most parties.
  static constexpr std::uint32_t kMostParties = 0xFFFF;

  /// Makes one; throws `Errc::invalid_argument` unless `parties` is from 1 to `kMostParties`.
  Barrier(std::shared_ptr<Membership> membership, std::uint32_t parties);
  /// Opens one.
  Barrier(std::shared_ptr<Membership> membership, const ObjectHandle& handle);
  /// Takes over the opening; `other` may only be destroyed or assigned to.
  Barrier(Barrier&& other) noexcept;
  /// Closes what was open, then takes over the opening.
  Barrier& operator=(Barrier&& other) noexcept;
  ~Barrier();

  /// Waits until all parties have come. Throws `Errc::peer_lost` when the session is over.
  BarrierResult wait(Deadline deadline = Deadline::never());
  /// Makes it whole and empty again. Whoever waits gets `broken`.
  void reset();
  /// Breaks it.
  void abort();
  /// Whether it is broken.
  [[nodiscard]] bool is_broken() const noexcept;
  /// How many must come.
  [[nodiscard]] std::uint32_t parties() const noexcept;
  /// How many have come in this round.
  [[nodiscard]] std::uint32_t waiting() const noexcept;
  /// The process that was last to die with the barrier open; 0 if none did. Known a moment after the barrier breaks.
  [[nodiscard]] pid_t last_lost() const noexcept;

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace drover
