// Every interleaving of processes that sleep on a bell and ring it in turn; and the mistakes that this must find.
#include "model/bell_model.hpp"

#include <gtest/gtest.h>

#include "support/build.hpp"

namespace drover::model {
namespace {

void expect_right(const BellConfig& config) {
  const BellModel model(config);
  const Finding finding = explore(model);
  EXPECT_EQ(finding.violation, "") << model.describe(finding.actions);
  EXPECT_TRUE(finding.is_complete);
  EXPECT_GT(finding.states, 100U) << "the model made too few steps";
  ::testing::Test::RecordProperty("states", std::to_string(finding.states));
}

TEST(BellModel, nobody_sleeps_while_a_record_is_ready) {
  expect_right({.producers = 2, .consumers = 2, .messages = 1});
  expect_right({.producers = 1, .consumers = 2, .messages = 3, .takes = 2});
  if (test::kIsSanitized) return;  // the rest takes too long
  expect_right({.producers = 2, .consumers = 2, .messages = 2, .takes = 2});
  expect_right({.producers = 2, .consumers = 3, .messages = 2});
}

TEST(BellModel, process_that_gives_up_leaves_nobody_asleep_beside_a_record) {
  expect_right({.producers = 2, .consumers = 2, .messages = 1, .may_give_up = true});
  expect_right({.producers = 1, .consumers = 3, .messages = 2, .may_give_up = true});
}

TEST(BellModel, watcher_passes_the_wake_up_on) {
  expect_right({.producers = 1, .consumers = 1, .watchers = 1, .messages = 2, .may_give_up = true});
  expect_right({.producers = 2, .consumers = 1, .watchers = 1, .messages = 1});
  if (test::kIsSanitized) return;
  expect_right({.producers = 1, .consumers = 2, .watchers = 2, .messages = 2, .may_give_up = true});
}

TEST(BellModel, process_that_fails_on_waking_leaves_nobody_asleep_beside_a_record) {
  expect_right({.producers = 2, .consumers = 2, .messages = 1, .may_fail = true});
  expect_right({.producers = 1, .consumers = 2, .watchers = 1, .messages = 2, .may_give_up = true, .may_fail = true});
}

TEST(BellModel, returned_record_leaves_nobody_asleep_beside_it) {
  expect_right({.producers = 1, .consumers = 3, .messages = 2, .give_backs = 1});
  expect_right({.producers = 2, .consumers = 2, .messages = 1, .takes = 2, .deaths = 1, .give_backs = 1});
}

TEST(BellModel, death_at_any_step_leaves_nobody_asleep_beside_a_record) {
  expect_right({.producers = 2, .consumers = 2, .messages = 1, .deaths = 1});
  expect_right({.producers = 1, .consumers = 2, .messages = 2, .takes = 2, .deaths = 2});
  if (test::kIsSanitized) return;
  expect_right({.producers = 1, .consumers = 2, .watchers = 1, .messages = 2, .deaths = 1, .may_give_up = true});
  expect_right({.producers = 2, .consumers = 3, .messages = 1, .deaths = 2});
}

class BellMistakes : public ::testing::TestWithParam<BellMistake> {};

// The smallest system that shows the mistake.
BellConfig crowd_for(BellMistake mistake) {
  BellConfig config{.producers = 1, .consumers = 3, .messages = 2, .deaths = 1, .mistake = mistake};
  config.may_fail = mistake == BellMistake::leaves_with_the_wake;
  if (mistake == BellMistake::watcher_keeps_the_wake) {
    config.consumers = 1;
    config.watchers = 1;
  }
  if (mistake == BellMistake::returned_not_passed_on) {
    config.consumers = 4;  // with 5 and 3 messages it is ten times as many states, minutes under the thread sanitizer
    config.deaths = 0;
    config.give_backs = 2;
  }
  return config;
}

TEST_P(BellMistakes, is_found) {
  const BellConfig config = crowd_for(GetParam());
  const BellModel model(config);
  const Finding finding = explore(model);
  ASSERT_NE(finding.violation, "") << "not found in " << finding.states << " states";
  EXPECT_NE(model.describe(finding.actions), "");
}

INSTANTIATE_TEST_SUITE_P(Mistakes, BellMistakes, ::testing::ValuesIn(all_bell_mistakes()),
                         [](const auto& each) { return to_string(each.param); });

}  // namespace
}  // namespace drover::model
