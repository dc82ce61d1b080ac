#include "model/explorer.hpp"

#include <array>

#include <gtest/gtest.h>

namespace drover::model {
namespace {

// Two processes increment a number, each in two steps: load, then store the loaded value plus one.
struct Adders {
  struct State {
    std::uint8_t number = 0;
    std::array<std::uint8_t, 2> loaded{};
    std::array<std::uint8_t, 2> at{};
  };
  bool is_atomic = false;

  static State initial() { return {}; }
  static void actions(const State& state, std::vector<Action>& into) {
    for (Action process = 0; process < 2; ++process) {
      if (state.at[process] < 2) into.push_back(process);
    }
  }
  void apply(State& state, Action process) const {
    if (is_atomic) {
      ++state.number;
      state.at[process] = 2;
    } else if (state.at[process]++ == 0) {
      state.loaded[process] = state.number;
    } else {
      state.number = static_cast<std::uint8_t>(state.loaded[process] + 1);
    }
  }
  static std::string check(const State& state) {
    const bool is_over = state.at[0] == 2 && state.at[1] == 2;
    return is_over && state.number != 2 ? "an addition was lost" : "";
  }
};

TEST(Explorer, finds_a_lost_update_by_the_shortest_path) {
  const Finding finding = explore(Adders{.is_atomic = false});
  EXPECT_EQ(finding.violation, "an addition was lost");
  EXPECT_FALSE(finding.is_complete);
  EXPECT_EQ(finding.actions.size(), 4U);
  Adders::State state;
  for (const Action action : finding.actions) Adders{}.apply(state, action);
  EXPECT_EQ(state.number, 1);
}

TEST(Explorer, visits_every_state_once_if_nothing_is_wrong) {
  const Finding finding = explore(Adders{.is_atomic = true});
  EXPECT_EQ(finding.violation, "");
  EXPECT_TRUE(finding.is_complete);
  EXPECT_EQ(finding.states, 4U);  // neither, either one, both
  EXPECT_EQ(finding.steps, 4U);
}

// Counts to a four-digit number: more states than the initial size of the table of visited states.
struct Digits {
  struct State {
    std::array<std::uint8_t, 4> digits{};
  };
  static State initial() { return {}; }
  static void actions(const State& state, std::vector<Action>& into) {
    for (Action digit = 0; digit < 4; ++digit) {
      if (state.digits[digit] < 19) into.push_back(digit);
    }
  }
  static void apply(State& state, Action digit) { ++state.digits[digit]; }
  static std::string check(const State&) { return {}; }
};

TEST(Explorer, remembers_more_states_than_its_initial_table_holds) {
  const Finding finding = explore(Digits{});
  EXPECT_EQ(finding.states, 20U * 20 * 20 * 20);
  EXPECT_EQ(finding.depth, 4U * 19 + 1);
  EXPECT_TRUE(finding.is_complete);
}

TEST(Explorer, reports_that_it_stopped_at_its_limit) {
  const Finding finding = explore(Digits{}, 1000);
  EXPECT_FALSE(finding.is_complete);
  EXPECT_EQ(finding.violation, "");
  EXPECT_GE(finding.states, 1000U);
}

}  // namespace
}  // namespace drover::model
