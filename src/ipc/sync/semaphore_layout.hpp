// ipc/sync/semaphore_layout.hpp: what a Semaphore is in shared memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <type_traits>

#include "drover/ipc/semaphore.hpp"
#include "ipc/object/object_kind.hpp"
#include "ipc/wake/bell.hpp"

namespace drover {

/// Behind this lie the tokens, four 11-bit stamps to a word, and in the word's other bits how often it was changed.
///
/// 1. A stamp is 0 (free), the number of the participant that took the token, `kForsakenToken` (taken by one that is
///    gone) or `kNoToken` (fills the last word). A token is taken and given back by one compare-and-swap of its word.
/// 2. `unowned` counts free permits that are no tokens, in its low half, and its changes in the high half; changed by
///    compare-and-swap only, so it is right whoever dies.
/// 3. Every change of a word of tokens or of `unowned` raises the number of its changes. So a look at all of them
///    that finds nothing is right if their sum is the same before and after it.
/// 4. `returned` counts tokens that recovery gave back and whose release by another may be on its way: the dead had
///    handed over what they took them for. Recovery raises it before it frees the token. A release by somebody
///    without a token takes one off and is done by that. So there are as many free permits as initial ones and
///    releases less acquisitions, and `returned` more.
struct SemaphoreLayout {
  std::atomic<std::uint64_t> unowned;
  std::atomic<std::uint64_t> returned;
  Bell bell;
};
static_assert(std::is_standard_layout_v<SemaphoreLayout> && sizeof(SemaphoreLayout) % sizeof(std::uint64_t) == 0);

inline constexpr Owner kForsakenToken = 0x7FF;
inline constexpr Owner kNoToken = 0x7FE;
static_assert(kMaxParticipants < kNoToken);

/// The numbers in the spec of a semaphore.
struct SemaphoreSpec {
  std::uint64_t initial = 0;
  bool is_bounded = false;

  [[nodiscard]] ObjectSpec pack() const;
  [[nodiscard]] static SemaphoreSpec unpack(const ObjectSpec& spec);
  [[nodiscard]] std::uint64_t tokens() const { return initial < Semaphore::kTokens ? initial : Semaphore::kTokens; }
  [[nodiscard]] std::uint64_t words() const { return (tokens() + 3) / 4; }
};

/// A semaphore with what is known of it: the operations on shared memory, without waiting.
class SemaphoreCore {
 public:
  SemaphoreCore(std::byte* layout, const ObjectSpec& spec);

  [[nodiscard]] Bell& bell() const noexcept { return layout_->bell; }
  /// Takes a permit as `self`; false if there is none.
  [[nodiscard]] bool take(Owner self) const noexcept;
  /// Gives a permit back as `self` and wakes one who waits; throws as `Semaphore::release`.
  void give(Owner self) const;
  /// Free permits.
  [[nodiscard]] std::uint64_t value() const noexcept;
  /// What the dead held is free again.
  void recover(Owner dead) const noexcept;
  /// What `self` holds is left to be released by others.
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

extern const ObjectKindInfo semaphore_kind;

}  // namespace drover
