#include <unistd.h>

#include <set>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fixture_run.hpp"
#include "support/peer_group.hpp"

namespace drover::test {
namespace {

using Kind = PeerOutcome::Kind;

DROVER_PEER_BODY(tell_about_itself) {
  peer.channel().send(
      fmt::format("{} of {}, {}, {}", peer.rank(), peer.size(), peer.parameter("greeting"), ::getpid()));
}

DROVER_PEER_BODY(pass_three_points) {
  for (const char* const point : {"first", "second", "third"}) {
    peer.reach(point);
    peer.channel().send(point);
  }
}

DROVER_PEER_BODY(wait_for_word) { EXPECT_EQ(peer.receive_text(), "end"); }
DROVER_PEER_BODY(ask_for_what_was_not_passed) { static_cast<void>(peer.parameter("absent")); }
DROVER_PEER_BODY(fail_expectation) { EXPECT_EQ(2 + 2, 5) << "sums are hard"; }
DROVER_PEER_BODY(throw_number) { throw 7; }

class EveryShape : public ::testing::TestWithParam<PeerShape> {};

TEST_P(EveryShape, every_peer_knows_its_rank_and_parameters) {
  PeerGroup group("tell_about_itself", GetParam(), {{"greeting", "good = day"}});
  group.start();
  std::set<std::string> pids;
  for (int rank = 0; rank < GetParam().size; ++rank) {
    const auto text = group.receive_text(rank);
    const auto expected = fmt::format("{} of {}, good = day, ", rank, GetParam().size);
    ASSERT_EQ(text.substr(0, expected.size()), expected);
    pids.insert(text.substr(expected.size()));
  }
  const bool is_threads = GetParam().mode == PeerMode::threads;
  EXPECT_EQ(pids.size(), is_threads ? 1U : static_cast<std::size_t>(GetParam().size));
  EXPECT_EQ(pids.contains(std::to_string(::getpid())), is_threads);
  group.expect_success();
}

TEST_P(EveryShape, last_peer_dies_at_its_point_and_the_others_live_on) {
  const int last = GetParam().size - 1;
  PeerGroup group("pass_three_points", GetParam());
  group.kill_at(last, "second");
  group.start();
  const auto outcomes = group.wait(Deadline::never());
  for (int rank = 0; rank < last; ++rank) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].kind, Kind::success);
    for (const char* const point : {"first", "second", "third"}) EXPECT_EQ(group.receive_text(rank), point);
  }
  EXPECT_EQ(outcomes.back().kind, Kind::abandoned) << outcomes.back().text;
  EXPECT_EQ(group.receive_text(last), "first");
  EXPECT_THROW(static_cast<void>(group.receive_text(last)), std::runtime_error);
}

TEST_P(EveryShape, held_peers_continue_when_released) {
  PeerGroup group("pass_three_points", GetParam());
  for (int rank = 0; rank < GetParam().size; ++rank) group.hold_at(rank, "third");
  group.start();
  for (int rank = 0; rank < GetParam().size; ++rank) {
    group.wait_until_held(rank, "third");
    EXPECT_EQ(group.receive_text(rank), "first");
    EXPECT_EQ(group.receive_text(rank), "second");
    ChannelMessage nothing;
    EXPECT_EQ(group.channel(rank).receive(nothing, Deadline::after(std::chrono::seconds(0))),
              ReceiveResult::timed_out);
    group.release(rank);
    EXPECT_EQ(group.receive_text(rank), "third");
  }
  group.expect_success();
}

TEST_P(EveryShape, held_peer_can_be_killed) {
  PeerGroup group("pass_three_points", GetParam());
  group.hold_at(0, "second");
  group.start();
  group.wait_until_held(0, "second");
  group.kill(0);
  const auto outcomes = group.wait(Deadline::never());
  EXPECT_EQ(outcomes.front().kind, Kind::abandoned) << outcomes.front().text;
  for (std::size_t rank = 1; rank < outcomes.size(); ++rank) EXPECT_EQ(outcomes[rank].kind, Kind::success);
}

TEST_P(EveryShape, peer_that_is_not_done_is_running) {
  PeerGroup group("wait_for_word", GetParam());
  group.start();
  for (const auto& outcome : group.wait(Deadline::after(std::chrono::milliseconds(1)))) {
    EXPECT_EQ(outcome.kind, Kind::running);
  }
  for (int rank = 0; rank < GetParam().size; ++rank) group.channel(rank).send("end");
  group.expect_success();
}

TEST_P(EveryShape, group_can_be_destroyed_while_a_peer_is_held) {
  PeerGroup group("pass_three_points", GetParam());
  group.hold_at(0, "first");
  group.start();
  group.wait_until_held(0, "first");
  EXPECT_EQ(group.wait(Deadline::after(std::chrono::seconds(0))).front().kind, Kind::running);
}

INSTANTIATE_TEST_SUITE_P(PeerGroup, EveryShape, ::testing::ValuesIn(all_peer_shapes()),
                         [](const auto& shape) { return to_string(shape.param); });

class BothModes : public ::testing::TestWithParam<PeerMode> {
 protected:
  static PeerOutcome outcome_of(const char* body) {
    PeerGroup group(body, {.mode = GetParam(), .size = 1});
    group.start();
    return group.wait(Deadline::never()).front();
  }
};

TEST_P(BothModes, missing_parameter_is_a_failure_that_names_it) {
  const auto outcome = outcome_of("ask_for_what_was_not_passed");
  EXPECT_EQ(outcome.kind, Kind::failed);
  expect_contains(outcome.text, "the test passed no parameter 'absent'");
}

TEST_P(BothModes, exit_before_an_awaited_point_is_an_error_with_the_outcome) {
  PeerGroup group("ask_for_what_was_not_passed", {.mode = GetParam(), .size = 1});
  group.start();
  EXPECT_THROW(group.wait_until_held(0, "never"), std::runtime_error);
  EXPECT_EQ(group.wait(Deadline::never()).front().kind, Kind::failed);
}

INSTANTIATE_TEST_SUITE_P(PeerGroup, BothModes, ::testing::Values(PeerMode::threads, PeerMode::processes),
                         [](const auto& mode) { return to_string(mode.param); });

TEST(PeerGroup, failed_expectation_in_a_process_makes_it_fail_with_the_text) {
  PeerGroup group("fail_expectation", {.mode = PeerMode::processes, .size = 1});
  group.start();
  const auto outcome = group.wait(Deadline::never()).front();
  EXPECT_EQ(outcome.kind, Kind::failed);
  expect_contains(outcome.text, "exited with status 1");
  expect_contains(outcome.text, "sums are hard");
  expect_contains(outcome.text, "peer_group_test.cpp");
}

TEST(PeerGroup, exception_of_any_type_in_a_thread_is_a_failure) {
  PeerGroup group("throw_number", {.mode = PeerMode::threads, .size = 1});
  group.start();
  EXPECT_EQ(group.wait(Deadline::never()).front().kind, Kind::failed);
}

TEST(PeerGroup, misuse_is_rejected) {
  EXPECT_THROW(PeerGroup("no_such_body", {}), std::invalid_argument);
  EXPECT_THROW(PeerGroup("wait_for_word", {.mode = PeerMode::threads, .size = 0}), std::invalid_argument);
  PeerGroup group("wait_for_word", {.mode = PeerMode::threads, .size = 1});
  EXPECT_THROW(group.hold_at(1, "x"), std::out_of_range);
  EXPECT_THROW(static_cast<void>(group.channel(0)), std::out_of_range) << "not started";
  group.start();
  EXPECT_THROW(group.start(), std::logic_error);
  EXPECT_THROW(group.kill_at(0, "x"), std::logic_error);
  EXPECT_THROW(group.kill(0), std::logic_error) << "the thread is not held";
  EXPECT_THROW(group.release(0), std::logic_error);
  EXPECT_THROW(static_cast<void>(group.pid(0)), std::logic_error);
  group.channel(0).send("end");
  group.expect_success();
}

TEST(PeerGroup, failure_in_a_peer_process_fails_the_test) {
  const auto result = run_fixture("Peers.fail_an_expectation");
  EXPECT_EQ(result.status, ExitStatus::exited(1)) << result.output;
  expect_contains(result.output, "peer 1 of 2, body fail_an_expectation, failed: ");
  expect_contains(result.output, "as planned");
  expect_contains(result.output, "[  FAILED  ] Peers.fail_an_expectation");
}

TEST(PeerGroup, failure_in_a_peer_thread_fails_the_test) {
  const auto result = run_fixture("Peers.fail_an_expectation_in_a_thread");
  EXPECT_EQ(result.status, ExitStatus::exited(1)) << result.output;
  expect_contains(result.output, "as planned");
}

TEST(PeerGroup, exception_in_a_peer_fails_the_test_in_both_modes) {
  const auto result = run_fixture("Peers.throw_an_exception");
  EXPECT_EQ(result.status, ExitStatus::exited(1)) << result.output;
  expect_contains(result.output, "peer 0 of 1: thrown as planned");
  expect_contains(result.output, "peer 0 of 1: exited with status 1: thrown as planned");
}

TEST(PeerGroup, group_that_is_never_waited_for_fails_the_test) {
  const auto result = run_fixture("Peers.are_never_waited_for");
  EXPECT_EQ(result.status, ExitStatus::exited(1)) << result.output;
  expect_contains(result.output, "never waited for");
}

}  // namespace
}  // namespace drover::test
