// drover/ipc/rlock.hpp: a lock that its holder may acquire again.
#pragma once

#include <cstdint>
#include <memory>

#include "drover/ipc/lock.hpp"

namespace drover {

/// A `Lock` that the thread which holds it may acquire again; it is free when released as often. A holder's death
/// frees it at once, however often it was acquired. A thread that ends while it holds the lock leaves it held; once
/// 65535 further threads of its process have used locks, one of them has its number and is taken for the holder. All
/// functions are safe for all threads.
class RLock {
 public:
  /// Makes one.
  explicit RLock(std::shared_ptr<Membership> membership);
  /// Opens one.
  RLock(std::shared_ptr<Membership> membership, const ObjectHandle& handle);
  /// Takes over the opening; `other` may only be destroyed or assigned to.
  RLock(RLock&& other) noexcept;
  /// Closes what was open, then takes over the opening.
  RLock& operator=(RLock&& other) noexcept;
  ~RLock();

  /// Waits until the calling thread holds the lock once more. The death of the last holder is told to the first
  /// acquisition after it. Throws `Errc::peer_lost` when the session is over.
  LockResult acquire(Deadline deadline = Deadline::never());
  /// Takes the lock if it is free or this thread's.
  LockResult try_acquire();
  /// Takes back one acquisition. Throws `Errc::invalid_argument`, naming the holder, if this thread does not hold it.
  void release();
  /// The same if this thread holds it, and says whether it did; for destructors.
  bool release_if_own() noexcept;
  /// Whether anybody holds it now.
  [[nodiscard]] bool is_held() const noexcept;
  /// Whether this thread holds it.
  [[nodiscard]] bool is_own() const noexcept;
  /// How often this thread has acquired it and not released it.
  [[nodiscard]] std::uint32_t depth() const noexcept;

  /// The name by which others open it.
  [[nodiscard]] const ObjectHandle& handle() const noexcept { return object_.handle(); }

 private:
  friend class Condition;

  // For a wait: frees the lock whatever its depth; takes it to that depth again, the latter only if its holder has
  // died and nobody was told yet.
  std::uint32_t release_whole();
  LockResult acquire_whole(std::uint32_t depth);
  LockResult acquire_from_dead(std::uint32_t depth);
  [[nodiscard]] CellLockLayout& cell() const noexcept;

  SharedObject object_;
  std::unique_ptr<Patience> patience_;
};

}  // namespace drover
