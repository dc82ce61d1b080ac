// drover/ipc/semaphore.hpp: permits that participants take and give back.
#pragma once

#include <cstdint>
#include <memory>

#include "drover/base/clock.hpp"
#include "drover/ipc/membership.hpp"

namespace drover {

struct Bell;

/// A number of permits. To acquire is to take one, or to wait for one; to release is to give one back, or to add one.
///
/// What a death does. The first `kTokens` of the initial permits are tokens that bear the number of the participant
/// that took them; a release gives back one of the caller's own tokens first.
/// - Healed: tokens that a participant held when it died are given back by the keeper. If the dead had handed over
///   what it took them for, others release them too: for each token so given back, one release by a participant that
///   holds no token adds nothing. So no permit is invented, and a bounded semaphore calls nobody wrong for it.
/// - Not healed, since it cannot be known whose they are: initial permits beyond `kTokens`, and permits added by
///   releases beyond the initial number.
/// - The price where one takes and another releases: a permit whose taker died before it handed anything over is free
///   until the next such release, and then gone, as in a semaphore that knows no owners.
/// - Whoever closes the semaphore in order, also by an exception, leaves what it took to be released by others.
///
/// All functions are safe for all threads; threads of one process share its tokens.
class Semaphore {
 public:
  /// How many of the initial permits are tokens at most.
  static constexpr std::uint64_t kTokens = 4096;
  /// The most permits there can be.
  static constexpr std::uint64_t kMostPermits = 0x7FFF'FFFF;

  /// Makes one with `initial` permits; throws `Errc::invalid_argument` for more than `kMostPermits`.
  Semaphore(std::shared_ptr<Membership> membership, std::uint64_t initial);
  /// Opens one, bounded or not; a bounded one stays bounded.
  Semaphore(std::shared_ptr<Membership> membership, const ObjectHandle& handle);
  /// Takes over the opening; `other` may only be destroyed or assigned to.
  Semaphore(Semaphore&& other) noexcept;
  /// Closes what was open, then takes over the opening.
  Semaphore& operator=(Semaphore&& other) noexcept;
  ~Semaphore();

  /// Waits for a permit and takes it. Throws `Errc::peer_lost` when the session is over.
  WaitResult acquire(Deadline deadline = Deadline::never());
  /// Takes a permit if there is one.
  [[nodiscard]] bool try_acquire();
  /// Gives back `count` permits, one after the other. Throws `Errc::invalid_argument` where a bounded semaphore has
  /// all its permits already and `Errc::limit_reached` beyond `kMostPermits`; those given back before stay so. A
  /// `count` that is larger by itself is refused at once.
  void release(std::uint64_t count = 1);
  /// Permits that are free now; a count over moving parts while others work.
  [[nodiscard]] std::uint64_t value() const noexcept;
  /// Whether more releases than acquisitions are an error.
  [[nodiscard]] bool is_bounded() const noexcept;

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const noexcept;

 protected:
  /// Makes either kind.
  Semaphore(std::shared_ptr<Membership> membership, std::uint64_t initial, bool is_bounded);

 private:
  friend class WaitSource;  // a wait over many things sleeps on the bells of all of them
  struct State;

  [[nodiscard]] Bell& bell() const noexcept;

  std::unique_ptr<State> state_;
};

/// A semaphore that never has more permits than at first: one release too many is an error.
class BoundedSemaphore : public Semaphore {
 public:
  /// Makes one with `initial` permits.
  BoundedSemaphore(std::shared_ptr<Membership> membership, std::uint64_t initial);
  /// Opens one; throws `Errc::invalid_argument` if it is not bounded.
  BoundedSemaphore(std::shared_ptr<Membership> membership, const ObjectHandle& handle);
};

}  // namespace drover
