// drover/ipc/barrier.hpp: a point where a fixed number of threads wait for each other.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "drover/base/checked.hpp"
#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"

namespace drover::ipc {
struct ObjectAccess;
}  // namespace drover::ipc

namespace drover {

/// How a wait at a barrier ended.
struct [[nodiscard]] BarrierResult {
  /// The possible outcomes.
  enum class Kind {
    passed,     ///< all parties arrived
    timed_out,  ///< the deadline passed first, which has broken the barrier
    broken,     ///< a party died, timed out, or called `abort` or `reset`; or nobody is left to arrive
  };
  Kind kind = Kind::passed;  ///< the outcome
  std::uint32_t index = 0;   ///< if passed: order of arrival in the round, from 0

  /// Whether all parties arrived.
  [[nodiscard]] bool is_passed() const noexcept { return kind == Kind::passed; }
  /// True for exactly one party of each passed round.
  [[nodiscard]] bool is_leader() const noexcept { return is_passed() && index == 0; }
};

/// Lets `parties` threads pass when all of them have arrived, round after round. It breaks when a party's deadline
/// passes, or when a participant that has it open dies, and stays broken until `reset`; current and later waits then
/// end at once. A participant that closes it in good order does not break it; one whose last opening is closed during
/// stack unwinding breaks it as a death does. All functions are safe for all threads.
class Barrier {
 public:
  /// The most parties.
  static constexpr std::uint32_t kMostParties = 0xFFFF;

  /// Makes one; throws `Errc::invalid_argument` unless `parties` is from 1 to `kMostParties`.
  Barrier(std::shared_ptr<Membership> membership, std::uint32_t parties);
  /// Opens one.
  Barrier(std::shared_ptr<Membership> membership, const ObjectHandle& handle);
  /// Takes over the opening; use of `other` then throws `Errc::invalid_argument`.
  Barrier(Barrier&& other) noexcept;
  /// Closes what was open, then takes over the opening.
  Barrier& operator=(Barrier&& other) noexcept;
  ~Barrier();

  /// Waits until all parties have arrived. Throws `Errc::peer_lost` when the session is over. Without a deadline it
  /// breaks the barrier once nobody is left who could arrive (see Event::wait).
  BarrierResult wait(Deadline deadline = Deadline::never());
  /// Starts a new round and repairs a broken barrier. Current waits return `broken`.
  void reset();
  /// Breaks it.
  void abort();
  /// Whether it is broken.
  [[nodiscard]] bool is_broken() const;
  /// The number of parties.
  [[nodiscard]] std::uint32_t parties() const;
  /// Parties that have arrived in this round.
  [[nodiscard]] std::uint32_t waiting() const;
  /// The last process that died with the barrier open; 0 if none did. Set shortly after the barrier breaks.
  [[nodiscard]] pid_t last_lost() const;

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const;

 private:
  friend struct ipc::ObjectAccess;
  struct State;

  [[nodiscard]] const SharedObject& object() const;

  detail::Checked<std::unique_ptr<State>> state_;
};

}  // namespace drover
