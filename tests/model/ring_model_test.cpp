// Every interleaving of a few processes on a small ring, with every death; and the mistakes that this must find.
#include "model/ring_model.hpp"

#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "support/build.hpp"

namespace drover::model {
namespace {

void expect_right(const RingConfig& config) {
  SCOPED_TRACE(to_string(config));
  const RingModel model(config);
  const Finding finding = explore(model);
  EXPECT_EQ(finding.violation, "") << model.describe(finding.actions);
  EXPECT_TRUE(finding.is_complete);
  EXPECT_GT(finding.states, 100U) << "the model made too few steps";
}

void expect_right_at_every_capacity(RingConfig config) {
  for (config.capacity = 1; config.capacity <= kMostSlots; ++config.capacity) expect_right(config);
}

TEST(RingModel, two_producers_and_two_consumers_agree_when_nobody_dies) {
  expect_right_at_every_capacity({.producers = 2, .consumers = 2, .messages = 2});
}

TEST(RingModel, one_death_at_any_step_loses_and_repeats_nothing) {
  expect_right_at_every_capacity({.producers = 2, .consumers = 2, .messages = 1, .deaths = 1});
  if (test::kIsSanitized) return;  // the rest takes too long
  expect_right_at_every_capacity({.producers = 2, .consumers = 2, .messages = 2, .deaths = 1});
}

TEST(RingModel, two_deaths_at_any_steps_lose_and_repeat_nothing) {
  expect_right_at_every_capacity({.producers = 1, .consumers = 2, .messages = 2, .deaths = 2});
  expect_right_at_every_capacity({.producers = 2, .consumers = 1, .messages = 1, .deaths = 2});
  if (test::kIsSanitized) return;
  expect_right_at_every_capacity({.producers = 2, .consumers = 2, .messages = 1, .deaths = 2});
}

TEST(RingModel, successors_of_dead_processes_may_reuse_their_numbers) {
  expect_right_at_every_capacity({.producers = 1, .consumers = 1, .messages = 3, .deaths = 2, .are_replaced = true});
  if (test::kIsSanitized) return;
  expect_right({.producers = 1, .consumers = 2, .capacity = 1, .messages = 2, .deaths = 2, .are_replaced = true});
  expect_right({.producers = 2, .consumers = 1, .capacity = 2, .messages = 1, .deaths = 2, .are_replaced = true});
}

TEST(RingModel, records_in_flight_are_neither_lost_nor_delivered_from_two_places) {
  expect_right_at_every_capacity(
      {.producers = 1, .consumers = 2, .flights = 1, .messages = 2, .deaths = 1, .are_replaced = true});
  expect_right_at_every_capacity({.producers = 1, .consumers = 2, .flights = 2, .messages = 2, .deaths = 2});
  if (test::kIsSanitized) return;
  expect_right_at_every_capacity({.producers = 2, .consumers = 2, .flights = 1, .messages = 1, .deaths = 2});
  expect_right({.producers = 1,
                .consumers = 2,
                .capacity = 1,
                .flights = 1,
                .messages = 2,
                .deaths = 2,
                .are_replaced = true});
}

TEST(RingModel, returned_record_finds_another_consumer) {
  expect_right_at_every_capacity({.producers = 1, .consumers = 2, .messages = 2, .deaths = 1, .give_backs = 1});
  expect_right_at_every_capacity(
      {.producers = 1, .consumers = 2, .flights = 1, .messages = 1, .deaths = 1, .give_backs = 2});
}

TEST(RingModel, abandoned_slot_is_skipped) {
  expect_right_at_every_capacity({.producers = 2, .consumers = 1, .messages = 1, .deaths = 1, .abandons = 1});
  expect_right_at_every_capacity({.producers = 1, .consumers = 2, .messages = 2, .deaths = 1, .abandons = 1});
}

// Run by `make torture`; takes minutes and gigabytes.
TEST(RingModel, DISABLED_larger_crowds_agree) {
  expect_right_at_every_capacity({.producers = 2, .consumers = 2, .messages = 2, .deaths = 2});
  expect_right_at_every_capacity({.producers = 2, .consumers = 2, .messages = 1, .deaths = 2, .are_replaced = true});
  expect_right({.producers = 1,
                .consumers = 2,
                .capacity = 1,
                .flights = 2,
                .messages = 2,
                .deaths = 2,
                .are_replaced = true,
                .give_backs = 1});
}

// The checker must find every mistake.

class RingMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(RingMistake, is_found) {
  RingConfig config{
      .producers = 1, .consumers = 2, .messages = 2, .deaths = 2, .are_replaced = true, .mistake = GetParam()};
  const bool is_about_flights = GetParam() == Mistake::slot_freed_before_flight ||
                                GetParam() == Mistake::flight_not_compared ||
                                GetParam() == Mistake::flights_before_slots;
  config.capacity = GetParam() == Mistake::hint_beyond_claim ? 2 : 1;
  config.flights = is_about_flights ? 1 : 0;
  const RingModel model(config);
  const Finding finding = explore(model);
  ASSERT_NE(finding.violation, "") << "not found in " << finding.states << " states: " << to_string(config);

  // Replaying the path leads to the violation, and to none before.
  RingState state = model.initial();
  for (const Action action : finding.actions) {
    EXPECT_EQ(model.check(state), "");
    model.apply(state, action);
  }
  EXPECT_EQ(model.check(state), finding.violation);
  EXPECT_NE(model.describe(finding.actions), "");
  RecordProperty("violation", finding.violation);
}

INSTANTIATE_TEST_SUITE_P(Mistakes, RingMistake, ::testing::ValuesIn(all_mistakes()),
                         [](const auto& each) { return to_string(each.param); });

std::string violation_of(RingConfig config, Mistake mistake) {
  config.mistake = mistake;
  return explore(RingModel(config)).violation;
}

TEST(RingMistakes, are_distinguished_by_what_they_break) {
  const RingConfig config{.producers = 1, .consumers = 2, .capacity = 1, .messages = 2, .deaths = 1};
  EXPECT_EQ(violation_of(config, Mistake::none), "");
  EXPECT_EQ(violation_of(config, Mistake::no_search_for_returned), "a record that was put is never delivered");
  EXPECT_EQ(violation_of(config, Mistake::owner_stamped_after_claim), "a slot is never free again");
  EXPECT_EQ(violation_of(config, Mistake::finish_before_copy), "a record that was put is never delivered");
  EXPECT_EQ(violation_of(config, Mistake::publish_what_the_dead_wrote), "what was never put was delivered");
  EXPECT_EQ(violation_of(config, Mistake::claim_by_store),
            "a record was delivered twice although nobody died with it");
  EXPECT_EQ(violation_of(config, Mistake::recover_the_living), "a place was taken from a living process");
}

// Random kills do not find this one: it needs a search caused by one death, and a second death.
TEST(RingMistakes, returning_a_flight_before_freeing_its_slot_repeats_a_record) {
  RingConfig config{
      .producers = 1, .consumers = 2, .capacity = 1, .flights = 1, .messages = 2, .deaths = 2, .are_replaced = true};
  EXPECT_EQ(violation_of(config, Mistake::flights_before_slots),
            "a record was delivered twice although nobody died with it");
}

}  // namespace
}  // namespace drover::model
