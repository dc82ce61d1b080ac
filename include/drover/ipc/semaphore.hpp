// drover/ipc/semaphore.hpp: counting semaphores.
#pragma once

#include <cstdint>
#include <memory>

#include "drover/base/checked.hpp"
#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"

namespace drover::ipc {
struct Bell;
struct ObjectAccess;
}  // namespace drover::ipc

namespace drover {

/// A number of permits: `acquire` takes one, `release` returns or adds one.
///
/// Deaths. The first `kTokens` of the initial permits are tokens that record the participant that took them; a
/// release returns one of the caller's own tokens first.
/// - Recovered: the keeper frees tokens that a participant held when it died. If the dead had handed the resource
///   over, its new user releases too: for each recovered token, one release by a participant without a token adds
///   nothing. So no permit is invented, and a bounded semaphore does not reject that release.
/// - Not recovered, because their holder is unknown: initial permits beyond `kTokens`, and permits added by releases
///   beyond the initial number.
/// - If one participant acquires and another releases, a permit whose holder died before it handed over is free until
///   the next such release, and then lost, as in a semaphore without owners.
/// - A participant that closes the semaphore in good order, or during stack unwinding, leaves its tokens to be
///   released by others.
///
/// All functions are safe for all threads; threads of one process share its tokens.
class Semaphore {
 public:
  /// The most initial permits that are tokens.
  static constexpr std::uint64_t kTokens = 4096;
  /// The most permits.
  static constexpr std::uint64_t kMostPermits = 0x7FFF'FFFF;

  /// Makes one with `initial` permits; throws `Errc::invalid_argument` for more than `kMostPermits`.
  Semaphore(std::shared_ptr<Membership> membership, std::uint64_t initial);
  /// Opens one, bounded or not; a bounded one stays bounded.
  Semaphore(std::shared_ptr<Membership> membership, const ObjectHandle& handle);
  /// Takes over the opening; use of `other` then throws `Errc::invalid_argument`.
  Semaphore(Semaphore&& other) noexcept;
  /// Closes what was open, then takes over the opening.
  Semaphore& operator=(Semaphore&& other) noexcept;
  ~Semaphore();

  /// Waits for a permit and takes it. Throws `Errc::peer_lost` when the session is over, and if there is no deadline
  /// and nobody is left who could release one (see Event::wait).
  WaitResult acquire(Deadline deadline = Deadline::never());
  /// Takes a permit if there is one.
  [[nodiscard]] bool try_acquire();
  /// Releases `count` permits, one after the other. Throws `Errc::invalid_argument` if all permits of a bounded
  /// semaphore are free and `Errc::limit_reached` beyond `kMostPermits`; earlier ones stay released. Refuses a
  /// `count` above `kMostPermits` at once.
  void release(std::uint64_t count = 1);
  /// Free permits; approximate while others work.
  [[nodiscard]] std::uint64_t value() const;
  /// Whether an excess release is an error.
  [[nodiscard]] bool is_bounded() const;

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const;

 protected:
  /// Makes either kind.
  Semaphore(std::shared_ptr<Membership> membership, std::uint64_t initial, bool is_bounded);

 private:
  friend class WaitSource;  // wait() sleeps on the bells of all its sources
  friend struct ipc::ObjectAccess;
  struct State;

  [[nodiscard]] ipc::Bell& bell() const;
  [[nodiscard]] const SharedObject& object() const;

  detail::Checked<std::unique_ptr<State>> state_;
};

/// A semaphore that never has more than its initial permits: an excess release is an error.
class BoundedSemaphore : public Semaphore {
 public:
  /// Makes one with `initial` permits.
  BoundedSemaphore(std::shared_ptr<Membership> membership, std::uint64_t initial);
  /// Opens one; throws `Errc::invalid_argument` if it is not bounded.
  BoundedSemaphore(std::shared_ptr<Membership> membership, const ObjectHandle& handle);
};

}  // namespace drover
