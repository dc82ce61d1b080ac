#include "ipc/semaphore_layout.hpp"

#include <bit>
#include <new>

#include <fmt/format.h>

#include "drover/base/error.hpp"

namespace drover {
namespace {

using Word = std::uint64_t;
constexpr unsigned kLanes = 4;
constexpr unsigned kLaneBits = 16;
constexpr Word kLowBits = 0x0001'0001'0001'0001;
constexpr Word kHighBits = kLowBits << (kLaneBits - 1);

constexpr Word in_every_lane(Owner stamp) { return kLowBits * stamp; }

// The high bit of each lane that is zero; of the lowest one exactly, which is the only one used.
constexpr Word zero_lanes(Word word) { return (word - kLowBits) & ~word & kHighBits; }

constexpr unsigned first_lane(Word marks) { return static_cast<unsigned>(std::countr_zero(marks)) / kLaneBits; }

constexpr Owner stamp_in(Word word, unsigned lane) { return static_cast<Owner>(word >> (lane * kLaneBits)); }

constexpr Word with_stamp(Word word, unsigned lane, Owner stamp) {
  const unsigned shift = lane * kLaneBits;
  return (word & ~(Word{0xFFFF} << shift)) | (Word{stamp} << shift);
}

bool replace_in(std::atomic<Word>& word, Owner from, Owner to) noexcept {
  Word seen = word.load();
  for (;;) {
    const Word marks = zero_lanes(seen ^ in_every_lane(from));
    if (marks == 0) return false;
    if (word.compare_exchange_weak(seen, with_stamp(seen, first_lane(marks), to))) return true;
  }
}

constexpr bool is_taken(Owner stamp) { return stamp != kNobody && stamp != kNoToken; }

bool free_any_in(std::atomic<Word>& word) noexcept {
  Word seen = word.load();
  for (unsigned lane = 0; lane < kLanes;) {
    if (!is_taken(stamp_in(seen, lane))) {
      ++lane;
    } else if (word.compare_exchange_weak(seen, with_stamp(seen, lane, kNobody))) {
      return true;
    }
  }
  return false;
}

[[noreturn]] void fail_released_too_often(std::uint64_t initial) {
  throw Error(
      Errc::invalid_argument,
      fmt::format("a bounded semaphore of {} permits was released too many times: all of them are free", initial),
      "release once for each acquisition, or use a Semaphore if releases are to add permits");
}

[[noreturn]] void fail_too_many() {
  throw Error(Errc::limit_reached, fmt::format("a semaphore has {} permits already", Semaphore::kMostPermits),
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

// Begins where the participant's number points, so that participants meet in one word late.
bool SemaphoreCore::replace_one(Owner from, Owner to, Owner near) const noexcept {
  for (std::size_t step = 0; step < words_.size(); ++step) {
    if (replace_in(words_[(near + step) % words_.size()], from, to)) return true;
  }
  return false;
}

bool SemaphoreCore::free_foreign() const noexcept {
  if (replace_one(kForsakenToken, kNobody, 0)) return true;
  for (auto& word : words_) {
    if (free_any_in(word)) return true;
  }
  return false;
}

bool SemaphoreCore::add_unowned(std::uint64_t limit) const noexcept {
  std::uint64_t seen = layout_->unowned.load();
  while (seen < limit) {
    if (layout_->unowned.compare_exchange_weak(seen, seen + 1)) return true;
  }
  return false;
}

bool SemaphoreCore::take(Owner self) const noexcept {
  if (replace_one(kNobody, self, self)) return true;
  std::uint64_t seen = layout_->unowned.load();
  while (seen > 0) {
    if (layout_->unowned.compare_exchange_weak(seen, seen - 1)) return true;
  }
  return false;
}

// The caller's own token; else what is missing of the permits without owner; else another's token; else one more.
void SemaphoreCore::give(Owner self) const {
  if (!replace_one(self, kNobody, self)) {
    if (layout_->carries_signals.load() == 0 && spec_.tokens() > 0) layout_->carries_signals.store(1);
    if (!add_unowned(spec_.initial - spec_.tokens()) && !free_foreign()) {
      if (spec_.is_bounded) fail_released_too_often(spec_.initial);
      if (!add_unowned(Semaphore::kMostPermits - spec_.tokens())) fail_too_many();
    }
  }
  ring_one(layout_->bell);
}

std::uint64_t SemaphoreCore::value() const noexcept {
  std::uint64_t free = layout_->unowned.load();
  for (const auto& word : words_) {
    const Word seen = word.load();
    for (unsigned lane = 0; lane < kLanes; ++lane) free += stamp_in(seen, lane) == kNobody ? 1U : 0U;
  }
  return free;
}

// Looks at the mark for each token: who sets it has not released yet, so what is freed before is not freed twice.
void SemaphoreCore::recover(Owner dead) const noexcept {
  while (replace_one(dead, layout_->carries_signals.load() == 0 ? kNobody : kForsakenToken, dead)) {
  }
  ring_always(layout_->bell);
}

void SemaphoreCore::forsake(Owner self) const noexcept {
  while (replace_one(self, kForsakenToken, self)) {
  }
}

const ObjectKindInfo semaphore_kind = {
    .layout_bytes =
        [](const ObjectSpec& spec) {
          const SemaphoreSpec unpacked = SemaphoreSpec::unpack(spec);
          require(unpacked.initial <= Semaphore::kMostPermits, "a semaphore has at most 2147483647 permits",
                  "ask for fewer");
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
    .wake_all = [](std::byte* layout, const ObjectSpec& spec) { ring_always(SemaphoreCore(layout, spec).bell()); }};

}  // namespace drover
