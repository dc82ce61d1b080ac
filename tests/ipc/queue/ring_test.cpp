// The ring alone, step by step, in private memory.
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "ipc/queue/ring.hpp"
#include "support/expect_error.hpp"

namespace drover::ipc {
namespace {

constexpr Owner kProducer = 1;
constexpr Owner kConsumer = 2;
constexpr Owner kWitness = 3;

// A ring in private memory, with the cursors of one process.
struct PrivateRing {
  explicit PrivateRing(std::uint64_t capacity)
      : slots(new RingSlot[capacity]()), ring(*head, slots.get(), capacity) {}

  std::optional<Position> write(Owner owner = kProducer) {
    const auto position = ring.claim_for_writing(cursors, owner);
    if (position) ring.publish(*position, owner);
    return position;
  }
  std::optional<Position> read(Owner owner = kConsumer) {
    ReadScan scan;
    return ring.claim_for_reading(cursors, owner, scan);
  }
  void recover(Owner dead) const {
    ring.recover(dead, [](std::uint64_t, std::uint64_t) { return false; });
    ++head->returned_epoch;
  }
  [[nodiscard]] RingSlotState state(Position position) const { return state_of(ring.slot(position).word.load()); }

  std::unique_ptr<RingHead> head = std::make_unique<RingHead>();
  std::unique_ptr<RingSlot[]> slots;
  RingCursors cursors;
  Ring ring;
};

class RingOf : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(RingOf, records_stay_in_order_over_many_laps) {
  PrivateRing ring(GetParam());
  for (Position expected = 0; expected < GetParam() * 5 + 3; ++expected) {
    ASSERT_EQ(ring.write(), expected);
    ASSERT_EQ(ring.read(), expected);
    ring.ring.finish(expected, kConsumer);
  }
}

TEST_P(RingOf, holds_exactly_its_capacity) {
  PrivateRing ring(GetParam());
  for (Position position = 0; position < GetParam(); ++position) ASSERT_EQ(ring.write(), position);
  EXPECT_EQ(ring.write(), std::nullopt);
  EXPECT_EQ(ring.ring.count(), GetParam());
  ASSERT_EQ(ring.read(), 0U);
  EXPECT_EQ(ring.write(), std::nullopt) << "a record that is being read still has its slot";
  ring.ring.finish(0, kConsumer);
  EXPECT_EQ(ring.write(), GetParam());
}

TEST_P(RingOf, a_latecomer_finds_both_ends_from_stale_hints) {
  PrivateRing ring(GetParam());
  for (Position position = 0; position < GetParam() * 3 + 1; ++position) {
    ASSERT_EQ(ring.write(), position);
    ASSERT_EQ(ring.read(), position);
    ring.ring.finish(position, kConsumer);
  }
  ring.head->head_hint = 0;
  ring.head->tail_hint = 0;
  ring.cursors.read = 0;
  ring.cursors.write = 0;
  EXPECT_EQ(ring.read(), std::nullopt);
  EXPECT_EQ(ring.write(), GetParam() * 3 + 1);
  ring.cursors.read = 0;
  EXPECT_EQ(ring.read(), GetParam() * 3 + 1);
}

INSTANTIATE_TEST_SUITE_P(Ring, RingOf, ::testing::Values(1, 2, 3, 7, 8, 100, 256));

TEST(Ring, laps_compare_cyclically) {
  constexpr std::uint64_t kLast = (std::uint64_t{1} << 48U) - 1;
  EXPECT_EQ(laps_ahead(make_slot_word(5, RingSlotState::ready), 3), 2);
  EXPECT_EQ(laps_ahead(make_slot_word(3, RingSlotState::ready), 5), -2);
  EXPECT_EQ(laps_ahead(make_slot_word(0, RingSlotState::free), kLast), 1);
  EXPECT_EQ(laps_ahead(make_slot_word(kLast, RingSlotState::free), kLast + 1), -1);
  EXPECT_EQ(next_lap(make_slot_word(kLast, RingSlotState::reading, 7)), make_slot_word(0, RingSlotState::free));
}

TEST(Ring, works_across_a_wrap_of_the_lap_in_the_word) {
  PrivateRing ring(2);
  constexpr Position kStart = ((Position{1} << 48U) - 1) * 2;  // the last lap that fits the word
  ring.cursors.write = kStart;
  ring.cursors.read = kStart;
  for (std::size_t slot = 0; slot < 2; ++slot)
    ring.slots[slot].word = make_slot_word((Position{1} << 48U) - 1, RingSlotState::free);
  for (Position position = kStart; position < kStart + 7; ++position) {
    ASSERT_EQ(ring.write(), position);
    ASSERT_EQ(ring.read(), position);
    ring.ring.finish(position, kConsumer);
  }
}

TEST(Ring, a_record_half_written_by_a_dead_producer_is_skipped) {
  PrivateRing ring(4);
  ASSERT_EQ(ring.ring.claim_for_writing(ring.cursors, kProducer), 0U);
  ASSERT_EQ(ring.write(kWitness), 1U);
  EXPECT_EQ(ring.read(), std::nullopt) << "the first is not published yet";
  ring.recover(kProducer);
  ReadScan scan;
  EXPECT_EQ(ring.ring.claim_for_reading(ring.cursors, kConsumer, scan), 1U);
  EXPECT_TRUE(scan.has_freed);
  EXPECT_EQ(ring.state(0), RingSlotState::free);
}

TEST(Ring, an_abandoned_slot_is_skipped) {
  PrivateRing ring(4);
  const auto position = ring.ring.claim_for_writing(ring.cursors, kProducer);
  ring.ring.abandon(*position, kProducer);
  ASSERT_EQ(ring.write(), 1U);
  EXPECT_EQ(ring.read(), 1U);
}

TEST(Ring, a_record_held_by_a_dead_consumer_is_returned_under_its_position) {
  PrivateRing ring(4);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ring.write());
  ASSERT_EQ(ring.read(), 0U);
  ASSERT_EQ(ring.read(kWitness), 1U);
  ring.recover(kConsumer);
  EXPECT_TRUE(ring.ring.has_returned());
  EXPECT_EQ(ring.ring.claim_returned(kWitness), 0U);
  EXPECT_FALSE(ring.ring.has_returned());
  ring.ring.finish(0, kWitness);
  ring.ring.finish(1, kWitness);
  EXPECT_EQ(ring.read(kWitness), 2U);
}

// A consumer that searched before the death passes the slot afterwards: nothing may be lost by that.
TEST(Ring, a_late_step_past_a_returned_record_loses_nothing) {
  PrivateRing ring(4);
  ASSERT_TRUE(ring.write());
  ASSERT_EQ(ring.read(kConsumer), 0U);
  RingCursors late;
  late.read = 1;  // as if it had seen slot 0 while the victim held it
  ring.recover(kConsumer);
  ReadScan scan;
  EXPECT_EQ(ring.ring.claim_for_reading(late, kWitness, scan), std::nullopt);
  EXPECT_EQ(ring.ring.claim_returned(kWitness), 0U);
}

TEST(Ring, recovery_frees_a_slot_whose_record_is_in_flight) {
  PrivateRing ring(4);
  ASSERT_TRUE(ring.write());
  ASSERT_EQ(ring.read(), 0U);
  ring.ring.recover(kConsumer, [](std::uint64_t index, std::uint64_t lap) { return index == 0 && lap == 0; });
  EXPECT_EQ(ring.state(0), RingSlotState::free);
  EXPECT_FALSE(ring.ring.has_returned());
}

TEST(Ring, recovery_may_be_repeated_and_affects_nobody_else) {
  PrivateRing ring(4);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ring.write());
  ASSERT_EQ(ring.read(), 0U);
  ASSERT_EQ(ring.read(kWitness), 1U);
  for (int i = 0; i < 3; ++i) ring.recover(kConsumer);
  EXPECT_EQ(ring.state(0), RingSlotState::returned);
  EXPECT_EQ(ring.state(1), RingSlotState::reading);
  EXPECT_EQ(ring.state(2), RingSlotState::ready);
}

TEST(Ring, a_living_participant_declared_dead_gets_an_error) {
  PrivateRing ring(2);
  ASSERT_TRUE(ring.write());
  ASSERT_EQ(ring.read(), 0U);
  ring.recover(kConsumer);
  test::expect_error(Errc::internal, [&] { ring.ring.finish(0, kConsumer); });
  EXPECT_EQ(ring.state(0), RingSlotState::returned) << "the refused change must change nothing";
}

TEST(Ring, invalid_words_are_an_error_not_a_hang) {
  PrivateRing ring(2);
  for (std::size_t slot = 0; slot < 2; ++slot)
    ring.slots[slot].word = make_slot_word(0, static_cast<RingSlotState>(7), 9);
  EXPECT_EQ(ring.ring.claim_returned(kConsumer), std::nullopt);
  test::expect_error(Errc::corrupt, [&] {
    for (;;) {
      ring.slots[0].word = make_slot_word(ring.ring.lap_of(ring.cursors.read.load()), static_cast<RingSlotState>(7));
      ring.slots[1].word = ring.slots[0].word.load();
      if (!ring.read()) throw Error(Errc::corrupt, "nothing to read, which is an answer too");
    }
  });
}

TEST(Ring, has_record_takes_nothing) {
  PrivateRing ring(3);
  EXPECT_FALSE(ring.ring.has_record(ring.cursors));
  ASSERT_TRUE(ring.write());
  EXPECT_TRUE(ring.ring.has_record(ring.cursors));
  EXPECT_TRUE(ring.ring.has_record(ring.cursors));
  EXPECT_EQ(ring.read(), 0U);
  EXPECT_FALSE(ring.ring.has_record(ring.cursors));
}

}  // namespace
}  // namespace drover::ipc
