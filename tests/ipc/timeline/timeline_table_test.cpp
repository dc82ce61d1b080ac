// The timelines of a session: ownership, and the state after a death.
#include "ipc/timeline/timeline_table.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"
#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using test::TestSession;

class Timelines : public ::testing::Test {
 protected:
  // Makes the stream of `slot` have `submitted` values, of which it has stored `done`.
  static void work(TimelineTable& table, std::uint32_t slot, std::uint64_t submitted, std::uint64_t done) {
    table.note_submitted(slot, submitted);
    table.word(slot).store(done);
  }
  static TimelinePoint point(std::uint32_t slot, std::uint64_t value) {
    return {.value = value, .slot = slot, .pid = 7};
  }
  void recover(std::shared_ptr<Membership>& dead) {
    const Owner owner = dead->self();
    dead.reset();
    session_.recover(owner);
  }

  TestSession session_;
  std::shared_ptr<Membership> self_ = session_.join();
};

TEST_F(Timelines, a_session_has_one_permanent_table) {
  const TimelineTable one(self_);
  const TimelineTable again(self_);
  const TimelineTable others(session_.join());
  EXPECT_EQ(one.memory().data(), again.memory().data());
  EXPECT_EQ(one.memory().data(), others.memory().data());
  EXPECT_EQ(session_.table().size(), 1U);
}

TEST_F(Timelines, the_table_outlives_all_its_openers) {
  {
    const TimelineTable table(self_);
  }
  EXPECT_EQ(session_.table().size(), 1U);
}

TEST_F(Timelines, the_table_has_pages_of_its_own) {
  const TimelineTable table(self_);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(table.memory().data()) % 4096, 0U);
  EXPECT_EQ(table.memory().size() % 4096, 0U);
  const auto first = reinterpret_cast<std::uintptr_t>(&table.word(0));
  const auto last = reinterpret_cast<std::uintptr_t>(&table.word(kTimelines - 1));
  EXPECT_GT(first, reinterpret_cast<std::uintptr_t>(table.memory().data()));
  EXPECT_LE(last + 8, reinterpret_cast<std::uintptr_t>(table.memory().data() + table.memory().size()));
}

TEST_F(Timelines, each_timeline_is_taken_once_until_none_is_left) {
  TimelineTable table(self_);
  std::set<std::uint32_t> taken;
  for (std::uint32_t nth = 0; nth < kTimelines; ++nth) taken.insert(table.take().value());
  EXPECT_EQ(taken.size(), kTimelines);
  EXPECT_EQ(table.take(), std::nullopt);
  table.give_back(17);
  EXPECT_EQ(table.take(), 17U);
}

TEST_F(Timelines, a_point_is_pending_until_the_word_reaches_it) {
  TimelineTable table(self_);
  const std::uint32_t slot = table.take().value();
  work(table, slot, 3, 1);
  EXPECT_EQ(table.state_of(point(slot, 1)), PointState::reached);
  EXPECT_EQ(table.state_of(point(slot, 2)), PointState::pending);
  work(table, slot, 3, 3);
  EXPECT_EQ(table.state_of(point(slot, 3)), PointState::reached);
}

TEST_F(Timelines, impossible_points_are_detected) {
  TimelineTable table(self_);
  const std::uint32_t slot = table.take().value();
  work(table, slot, 3, 0);
  EXPECT_TRUE(table.is_valid(point(slot, 3)));
  EXPECT_FALSE(table.is_valid(point(slot, 4))) << "nobody submitted it";
  EXPECT_FALSE(table.is_valid(point(slot, 0)));
  EXPECT_FALSE(table.is_valid(point(kTimelines, 1)));
}

TEST_F(Timelines, unfinished_work_is_lost_at_death_and_finished_work_is_not) {
  TimelineTable mine(self_);
  auto peer = session_.join();
  std::uint32_t slot = 0;
  {
    TimelineTable theirs(peer);
    slot = theirs.take().value();
    work(theirs, slot, 5, 3);
  }
  recover(peer);
  EXPECT_EQ(mine.state_of(point(slot, 3)), PointState::reached);
  EXPECT_EQ(mine.state_of(point(slot, 4)), PointState::lost);
  EXPECT_TRUE(mine.is_valid(point(slot, 5))) << "a message with it may still be in flight";
  EXPECT_GE(mine.word(slot).load(), 5U) << "waits for it end";
}

TEST_F(Timelines, a_death_with_all_work_done_leaves_no_trace) {
  TimelineTable mine(self_);
  auto peer = session_.join();
  std::uint32_t slot = 0;
  {
    TimelineTable theirs(peer);
    slot = theirs.take().value();
    work(theirs, slot, 5, 6);  // killed between submitting the work and recording it
  }
  recover(peer);
  EXPECT_EQ(mine.state_of(point(slot, 5)), PointState::reached);
  EXPECT_EQ(mine.take(), slot);
  EXPECT_EQ(mine.submitted(slot), 6U) << "the next owner continues the count";
}

TEST_F(Timelines, lost_work_stays_lost_under_a_new_owner) {
  TimelineTable mine(self_);
  auto peer = session_.join();
  std::uint32_t slot = 0;
  {
    TimelineTable theirs(peer);
    slot = theirs.take().value();
    work(theirs, slot, 5, 3);
  }
  recover(peer);
  std::optional<std::uint32_t> taken;
  for (std::uint32_t nth = 0; nth < kTimelines && taken != slot; ++nth) taken = mine.take();
  ASSERT_EQ(taken, slot) << "it has losses, so it is taken last";
  const std::uint64_t next = mine.submitted(slot) + 1;
  work(mine, slot, next, next);
  EXPECT_EQ(mine.state_of(point(slot, next)), PointState::reached);
  EXPECT_EQ(mine.state_of(point(slot, 3)), PointState::reached);
  EXPECT_EQ(mine.state_of(point(slot, 4)), PointState::lost);
}

TEST_F(Timelines, an_older_loss_is_not_mistaken_for_success) {
  TimelineTable mine(self_);
  std::uint32_t slot = 0;
  for (int death = 0; death < 2; ++death) {
    auto peer = session_.join();
    TimelineTable theirs(peer);
    slot = theirs.take().value();
    for (std::uint32_t nth = 1; nth < kTimelines && death == 1; ++nth) slot = theirs.take().value();
    ASSERT_EQ(slot, 0U);
    const std::uint64_t now = theirs.submitted(slot);
    work(theirs, slot, now + 9, now + 5);
    session_.recover(peer->self());
  }
  EXPECT_EQ(mine.state_of(point(slot, 9)), PointState::lost);
  EXPECT_EQ(mine.state_of(point(slot, 5)), PointState::lost)
      << "only the latest loss is recorded, and lost is the safe result";
  EXPECT_EQ(mine.state_of(point(slot, start_of_epoch(1) + 5)), PointState::reached);
}

TEST_F(Timelines, unfinished_timeline_is_not_given_back) {
  TimelineTable table(self_);
  const std::uint32_t slot = table.take().value();
  work(table, slot, 2, 1);
  table.give_back(slot);
  EXPECT_NE(table.take(), slot);
}

TEST_F(Timelines, declaring_a_loss_ends_waits) {
  TimelineTable table(self_);
  const std::uint32_t slot = table.take().value();
  work(table, slot, 4, 2);
  TimelineTable(session_.join()).lose(slot);
  EXPECT_EQ(table.word(slot).load(), 2U) << "only the owner may declare a loss";
  table.lose(slot);
  EXPECT_GE(table.word(slot).load(), 4U);
  EXPECT_EQ(table.state_of(point(slot, 2)), PointState::reached);
  EXPECT_EQ(table.state_of(point(slot, 4)), PointState::lost);
}

TEST_F(Timelines, without_a_keeper_only_work_of_the_dead_is_lost) {
  TimelineTable table(self_);
  const std::uint32_t slot = table.take().value();
  work(table, slot, 4, 2);
  TimelinePoint mine = point(slot, 4);
  mine.pid = ::getpid();
  table.recover_without_keeper(mine);
  EXPECT_EQ(table.state_of(mine), PointState::pending);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  mine.pid = child;
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);  // still a zombie
  table.recover_without_keeper(mine);
  EXPECT_EQ(table.state_of(mine), PointState::lost);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace drover::ipc
