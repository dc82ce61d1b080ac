// ipc/sync/semaphore_layout.hpp: a Semaphore in shared memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <type_traits>

#include "drover/ipc/semaphore.hpp"
#include "ipc/object/object_kind.hpp"
#include "ipc/wake/bell.hpp"

namespace drover::ipc {

/// The tokens follow: four 11-bit stamps per word, and in the word's other bits the number of its changes.
///
/// 1. A stamp is 0 (free), the number of the participant that took the token, `kForsakenToken` (taken by one that has
///    closed the semaphore) or `kNoToken` (fills the last word). One compare-and-swap of its word takes or returns a
///    token.
/// 2. `unowned` counts free permits that are not tokens in its low half, and its changes in the high half. It is
///    changed by compare-and-swap only, so it is right after any death.
/// 3. Every change of a word of tokens or of `unowned` increases its number of changes. So a search of all of them
///    that finds nothing is right if the sum of these numbers is the same before and after it.
/// 4. `returned` counts tokens that recovery has freed although another participant may still release them, because
///    the dead had handed over the resource. Recovery increases it before it frees the token. A release by a
///    participant without a token decreases it and does nothing else. So the free permits are the initial ones plus
///    releases minus acquisitions plus `returned`.
struct SemaphoreLayout {
  std::atomic<std::uint64_t> unowned;
  std::atomic<std::uint64_t> returned;
  Bell bell;
};
static_assert(std::is_standard_layout_v<SemaphoreLayout> && sizeof(SemaphoreLayout) % sizeof(std::uint64_t) == 0);

inline constexpr Owner kForsakenToken = 0x7FF;
inline constexpr Owner kNoToken = 0x7FE;
static_assert(kMaxParticipants < kNoToken);

/// The parameters of a semaphore.
struct SemaphoreSpec {
  std::uint64_t initial = 0;
  bool is_bounded = false;

  [[nodiscard]] ObjectSpec pack() const;
  [[nodiscard]] static SemaphoreSpec unpack(const ObjectSpec& spec);
  [[nodiscard]] std::uint64_t tokens() const { return initial < Semaphore::kTokens ? initial : Semaphore::kTokens; }
  [[nodiscard]] std::uint64_t words() const { return (tokens() + 3) / 4; }
};

/// The operations on a semaphore in shared memory, without waiting.
class SemaphoreCore {
 public:
  SemaphoreCore(std::byte* layout, const ObjectSpec& spec);

  [[nodiscard]] Bell& bell() const noexcept { return layout_->bell; }
  /// Takes a permit as `self`; false if there is none.
  [[nodiscard]] bool take(Owner self) const noexcept;
  /// Returns a permit as `self` and wakes one waiter; throws as `Semaphore::release`.
  void give(Owner self) const;
  /// Free permits.
  [[nodiscard]] std::uint64_t value() const noexcept;
  /// Frees the tokens of the dead.
  void recover(Owner dead) const noexcept;
  /// Leaves the tokens of `self` to be released by others.
  void forsake(Owner self) const noexcept;

 private:
  [[nodiscard]] bool has_token(Owner owner) const noexcept;
  [[nodiscard]] bool replace_one(Owner from, Owner to, Owner near) const noexcept;
  [[nodiscard]] bool free_foreign() const noexcept;
  [[nodiscard]] bool add_unowned(std::uint64_t limit) const noexcept;
  [[nodiscard]] bool take_unowned() const noexcept;
  [[nodiscard]] bool take_returned() const noexcept;
  [[nodiscard]] bool give_foreign() const noexcept;
  [[nodiscard]] std::uint64_t changes() const noexcept;
  template <class Attempt>
  [[nodiscard]] bool succeeds(Attempt attempt) const noexcept;

  SemaphoreLayout* layout_;
  SemaphoreSpec spec_;
  std::span<std::atomic<std::uint64_t>> words_;
};

}  // namespace drover::ipc
