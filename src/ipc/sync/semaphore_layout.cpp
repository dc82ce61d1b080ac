#include "ipc/sync/semaphore_layout.hpp"

#include <algorithm>
#include <bit>
#include <new>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover::ipc {
namespace {

using Word = std::uint64_t;
constexpr unsigned kLanes = 4;
constexpr unsigned kLaneBits = 11;
constexpr Word kLaneMask = (Word{1} << kLaneBits) - 1;
constexpr Word kLowBits = Word{1} | (Word{1} << kLaneBits) | (Word{1} << 2 * kLaneBits) | (Word{1} << 3 * kLaneBits);
constexpr Word kHighBits = kLowBits << (kLaneBits - 1);
constexpr unsigned kTokenChangesShift = kLanes * kLaneBits;
constexpr unsigned kUnownedChangesShift = 32;
static_assert(kForsakenToken <= kLaneMask && Semaphore::kMostPermits < Word{1} << kUnownedChangesShift);

constexpr Word in_every_lane(Owner stamp) { return kLowBits * stamp; }

// The high bit of each lane that is zero. Exact only for the lowest one, which is the only one used.
constexpr Word zero_lanes(Word word) { return (word - kLowBits) & ~word & kHighBits; }

constexpr Word lanes_with(Word word, Owner stamp) { return zero_lanes(word ^ in_every_lane(stamp)); }

constexpr unsigned first_lane(Word marks) { return static_cast<unsigned>(std::countr_zero(marks)) / kLaneBits; }

constexpr Owner stamp_in(Word word, unsigned lane) {
  return static_cast<Owner>(word >> (lane * kLaneBits) & kLaneMask);
}

constexpr Word with_stamp(Word word, unsigned lane, Owner stamp) {
  const unsigned shift = lane * kLaneBits;
  return (word & ~(kLaneMask << shift)) | (Word{stamp} << shift);
}

// The word after a change of one stamp.
constexpr Word changed(Word word, unsigned lane, Owner stamp) {
  return with_stamp(word, lane, stamp) + (Word{1} << kTokenChangesShift);
}

constexpr Word count_in(Word unowned) { return unowned & ((Word{1} << kUnownedChangesShift) - 1); }

bool replace_in(std::atomic<Word>& word, Owner from, Owner to) noexcept {
  Word seen = word.load();
  for (;;) {
    const Word marks = lanes_with(seen, from);
    if (marks == 0) return false;
    if (word.compare_exchange_weak(seen, changed(seen, first_lane(marks), to))) return true;
  }
}

constexpr bool is_taken(Owner stamp) { return stamp != kNobody && stamp != kNoToken; }

bool free_any_in(std::atomic<Word>& word) noexcept {
  Word seen = word.load();
  for (unsigned lane = 0; lane < kLanes;) {
    if (!is_taken(stamp_in(seen, lane))) {
      ++lane;
    } else if (word.compare_exchange_weak(seen, changed(seen, lane, kNobody))) {
      return true;
    }
  }
  return false;
}

[[noreturn]] void fail_released_too_often(std::uint64_t initial) {
  throw Error(
      Errc::invalid_argument,
      fmt::format("a bounded semaphore of {} permits was released too many times: all of them are free", initial),
      "release once for each acquisition, or use a Semaphore if releases may add permits");
}

[[noreturn]] void fail_too_many() {
  throw Error(Errc::limit_reached,
              fmt::format("a semaphore already has {} permits, its limit", Semaphore::kMostPermits),
              "acquire as often as you release");
}

}  // namespace

ObjectSpec SemaphoreSpec::pack() const {
  return {.kind = ObjectKind::semaphore, .parameters = {initial, is_bounded ? 1U : 0U}};
}

SemaphoreSpec SemaphoreSpec::unpack(const ObjectSpec& spec) {
  return {.initial = spec.parameters[0], .is_bounded = spec.parameters[1] != 0};
}

SemaphoreCore::SemaphoreCore(std::byte* layout, const ObjectSpec& spec)
    : layout_(reinterpret_cast<SemaphoreLayout*>(layout)),
      spec_(SemaphoreSpec::unpack(spec)),
      words_(reinterpret_cast<std::atomic<Word>*>(layout + sizeof(SemaphoreLayout)), spec_.words()) {}

// Starts at a word that depends on the participant, so that participants seldom meet in one word.
bool SemaphoreCore::replace_one(Owner from, Owner to, Owner near) const noexcept {
  for (std::size_t step = 0; step < words_.size(); ++step) {
    if (replace_in(words_[(near + step) % words_.size()], from, to)) return true;
  }
  return false;
}

bool SemaphoreCore::has_token(Owner owner) const noexcept {
  return std::ranges::any_of(words_, [owner](const auto& word) { return lanes_with(word.load(), owner) != 0; });
}

bool SemaphoreCore::free_foreign() const noexcept { return std::ranges::any_of(words_, free_any_in); }

bool SemaphoreCore::add_unowned(std::uint64_t limit) const noexcept {
  constexpr Word kOneMore = (Word{1} << kUnownedChangesShift) + 1;
  Word seen = layout_->unowned.load();
  while (count_in(seen) < limit) {
    if (layout_->unowned.compare_exchange_weak(seen, seen + kOneMore)) return true;
  }
  return false;
}

bool SemaphoreCore::take_unowned() const noexcept {
  constexpr Word kOneLess = (Word{1} << kUnownedChangesShift) - 1;
  Word seen = layout_->unowned.load();
  while (count_in(seen) > 0) {
    if (layout_->unowned.compare_exchange_weak(seen, seen + kOneLess)) return true;
  }
  return false;
}

bool SemaphoreCore::take_returned() const noexcept {
  std::uint64_t seen = layout_->returned.load();
  while (seen > 0) {
    if (layout_->returned.compare_exchange_weak(seen, seen - 1)) return true;
  }
  return false;
}

std::uint64_t SemaphoreCore::changes() const noexcept {
  std::uint64_t sum = layout_->unowned.load() >> kUnownedChangesShift;
  for (const auto& word : words_) sum += word.load() >> kTokenChangesShift;
  return sum;
}

// A permit that moves during the search of the words can be missed; then one of the words has changed.
template <class Attempt>
bool SemaphoreCore::succeeds(Attempt attempt) const noexcept {
  if (attempt()) return true;
  for (;;) {
    const std::uint64_t before = changes();
    if (attempt()) return true;
    if (changes() == before) return false;
  }
}

bool SemaphoreCore::take(Owner self) const noexcept {
  return succeeds([&] { return replace_one(kNobody, self, self) || take_unowned(); });
}

// A release by a participant without a token. First what only such a release can give back: a permit without owner, a
// token left behind. Then a token that a dead participant may have handed over, which is free already. Then another's
// token.
bool SemaphoreCore::give_foreign() const noexcept {
  return succeeds([&] {
    return add_unowned(spec_.initial - spec_.tokens()) || replace_one(kForsakenToken, kNobody, 0) ||
           take_returned() || free_foreign();
  });
}

void SemaphoreCore::give(Owner self) const {
  if (!succeeds([&] { return replace_one(self, kNobody, self); }) && !give_foreign()) {
    if (spec_.is_bounded) fail_released_too_often(spec_.initial);
    if (!add_unowned(Semaphore::kMostPermits - spec_.tokens())) fail_too_many();
  }
  wake_one(layout_->bell);
}

std::uint64_t SemaphoreCore::value() const noexcept {
  std::uint64_t free = count_in(layout_->unowned.load());
  for (const auto& word : words_) {
    const Word seen = word.load();
    for (unsigned lane = 0; lane < kLanes; ++lane) free += stamp_in(seen, lane) == kNobody ? 1U : 0U;
  }
  return free;
}

// If another participant released the token meanwhile, the count is taken back. If a release has already used the
// count, that release is made up for.
void SemaphoreCore::recover(Owner dead) const noexcept {
  while (has_token(dead)) {
    layout_->returned.fetch_add(1);
    if (replace_one(dead, kNobody, dead) || take_returned() || give_foreign() || spec_.is_bounded) continue;
    static_cast<void>(add_unowned(Semaphore::kMostPermits - spec_.tokens()));
  }
  wake_always(layout_->bell);
}

void SemaphoreCore::forsake(Owner self) const noexcept {
  while (replace_one(self, kForsakenToken, self)) {
  }
}

const ObjectKindInfo semaphore_kind = {
    .layout_bytes =
        [](const ObjectSpec& spec) {
          const SemaphoreSpec unpacked = SemaphoreSpec::unpack(spec);
          require(unpacked.initial <= Semaphore::kMostPermits, "a semaphore can have at most 2147483647 permits",
                  "pass a smaller number");
          return sizeof(SemaphoreLayout) + unpacked.words() * sizeof(Word);
        },
    .format =
        [](std::byte* layout, const ObjectSpec& spec) {
          const SemaphoreSpec unpacked = SemaphoreSpec::unpack(spec);
          auto* const made = new (layout) SemaphoreLayout{};
          made->unowned = unpacked.initial - unpacked.tokens();
          auto* const words = reinterpret_cast<std::atomic<Word>*>(layout + sizeof(SemaphoreLayout));
          for (std::uint64_t token = unpacked.tokens(); token < unpacked.words() * kLanes; ++token) {
            auto& word = words[token / kLanes];
            word = with_stamp(word, token % kLanes, kNoToken);
          }
        },
    .recover = [](std::byte* layout, const ObjectSpec& spec,
                  Owner dead) { SemaphoreCore(layout, spec).recover(dead); },
    .wake_all = [](std::byte* layout, const ObjectSpec& spec) { wake_always(SemaphoreCore(layout, spec).bell()); }};

}  // namespace drover::ipc
