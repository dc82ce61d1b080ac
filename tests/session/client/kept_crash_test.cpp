// Keeping and recalling while a process dies or is stopped.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/session/session.hpp"
#include "session/client/kept_support.hpp"
#include "session/client/session_helpers.hpp"
#include "support/build.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"

namespace drover::test {
namespace {

using namespace std::chrono_literals;

constexpr PeerShape kOne{.mode = PeerMode::processes, .size = 1};
constexpr int kRounds = kIsAddressSanitized ? 15 : 60;

class KeptCrash : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const auto& info : list_sessions()) end_session(info.name, true);
  }
  static void expect_killed(PeerGroup& group) {
    for (const auto& outcome : group.wait(Deadline::never())) {
      EXPECT_EQ(outcome.kind, PeerOutcome::Kind::abandoned) << outcome.text;
    }
  }

  OwnRuntimeFolder folder_;
};

DROVER_PEER_BODY(keeps_and_dies) {
  const Session session = Session::open("crash");
  const auto slab = make_kept_slab(session);
  auto leases = marked_blocks(*slab, 2, 4242);
  keep_marked(session, "weights", leases, 4242);
  peer.reach("kept");
}

TEST_F(KeptCrash, application_killed_after_it_kept_something_leaves_it_to_the_next) {
  PeerGroup group("keeps_and_dies", kOne);
  group.kill_at(0, "kept");
  group.start();
  expect_killed(group);
  Session session = Session::open("crash");
  {
    const Recalled recalled = membership_of(session)->recall("weights");
    EXPECT_EQ(mark_in(recalled), 4242U);
    ASSERT_EQ(recalled.leases.size(), 2U);
    for (const Lease& lease : recalled.leases) EXPECT_EQ(read_mark(session, lease), 4242U);
  }
  session.drop("weights");
  EXPECT_TRUE(eventually([] { return describe_session("crash").slab_count == 0; }));
}

// Replaces what is kept again and again, in the slab of the test.
DROVER_PEER_BODY(keeps_until_killed) {
  const Session session = Session::open("crash");
  const auto slab = ipc::OpenLedger::open(session, ObjectHandle::parse(peer.receive_text()));
  peer.channel().send("ready");
  for (std::uint64_t mark = 1;; ++mark) {
    auto leases = marked_blocks(*slab, 3, mark);
    keep_marked(session, "weights", leases, mark);
  }
}

// Whole or not at all: what is kept has the blocks, the marks and the record of one and the same keeping.
void expect_whole(const Session& session) {
  if (session.kept().empty()) return;
  const Recalled recalled = membership_of(session)->recall("weights");
  ASSERT_EQ(recalled.leases.size(), 3U);
  EXPECT_EQ(session.kept().at(0).leases, 3U);
  for (const Lease& lease : recalled.leases) EXPECT_EQ(read_mark(session, lease), mark_in(recalled));
}

TEST_F(KeptCrash, killed_while_keeping_an_entry_is_kept_whole_or_not_at_all) {
  Session session = Session::open("crash");
  const auto slab = make_kept_slab(session);
  std::minstd_rand random(4711);  // NOLINT(cert-msc32-c,cert-msc51-cpp): repeatable
  int kept = 0;
  for (int round = 1; round <= kRounds; ++round) {
    PeerGroup group("keeps_until_killed", kOne);
    group.start();
    group.channel(0).send(slab->object().handle().to_string());
    EXPECT_EQ(group.receive_text(0), "ready");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    group.kill(0);
    expect_killed(group);
    ASSERT_TRUE(eventually([&] { return session.population().departed == static_cast<std::uint64_t>(round); }));
    expect_whole(session);
    if (!session.kept().empty()) {
      ++kept;
      EXPECT_EQ(slab->ledger().usage(*membership_of(session))->blocks, 3U) << "no more than is kept";
      session.drop("weights");
    }
    const ipc::LedgerUsage usage = slab->ledger().usage(*membership_of(session)).value();
    ASSERT_EQ(usage.blocks, 0U) << "a block has leaked in round " << round;
    ASSERT_TRUE(usage.holders.empty());
  }
  EXPECT_GT(kept, 0);
}

// A process recalls while another keeps, replaces and is killed: it gets a whole entry or none.
DROVER_PEER_BODY(recalls_until_told) {
  const Session session = Session::open("crash");
  peer.channel().send("ready");
  while (session.population().present > 1) {
    try {
      const Recalled recalled = membership_of(session)->recall("weights");
      EXPECT_EQ(recalled.leases.size(), 3U);
      for (const Lease& lease : recalled.leases) ASSERT_EQ(read_mark(session, lease), mark_in(recalled));
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::not_found) << error.what();
      ASSERT_NE(error.message().find("nothing is kept under"), std::string::npos) << error.what();
    }
  }
}

TEST_F(KeptCrash, recall_during_replacing_and_dropping_gets_one_whole_entry) {
  PeerGroup readers("recalls_until_told", kOne);
  {
    Session session = Session::open("crash");
    const auto slab = make_kept_slab(session);
    readers.start();
    EXPECT_EQ(readers.receive_text(0), "ready");
    for (std::uint64_t mark = 1; mark <= 500; ++mark) {
      auto leases = marked_blocks(*slab, 3, mark);
      keep_marked(session, "weights", leases, mark);
      if (mark % 5 == 0) session.drop("weights");
    }
  }
  readers.expect_success();
  EXPECT_TRUE(eventually([] { return describe_session("crash").slab_count == 0; })) << "nothing has leaked";
}

TEST_F(KeptCrash, killed_keeper_is_an_error_and_the_leases_stay_the_caller_s) {
  Session session = Session::start();
  const auto self = membership_of(session);
  const auto slab = make_kept_slab(session);
  auto leases = marked_blocks(*slab, 1, 8);
  ASSERT_EQ(::kill(session.keeper_pid(), SIGKILL), 0);
  const std::vector<std::function<void()>> calls = {
      [&] { keep_marked(session, "x", leases, 8); }, [&] { std::ignore = self->recall("x"); },
      [&] { std::ignore = session.kept(); }, [&] { session.drop("x"); }};
  for (const auto& call : calls) expect_error(Errc::peer_lost, call, {std::to_string(session.keeper_pid())});
  ASSERT_TRUE(leases.at(0).is_open());
  EXPECT_EQ(slab->ledger().usage(*self)->holders.at(session.self()).leases, 1U);
}

// A stopped keeper does not perform an abandoned request later, even if the same leases are offered again before it
// continues.
TEST_F(KeptCrash, keeping_that_timed_out_does_not_happen_later) {
  const Session session = Session::start({.patience = 2s});
  const auto slab = make_kept_slab(session);
  auto leases = marked_blocks(*slab, 2, 3);
  ASSERT_EQ(::kill(session.keeper_pid(), SIGSTOP), 0);
  expect_error(Errc::timed_out, [&] { keep_marked(session, "early", leases, 3); });
  ASSERT_TRUE(leases.at(0).is_open() && leases.at(1).is_open());
  EXPECT_EQ(slab->ledger().usage(*membership_of(session))->holders.at(session.self()).leases, 2U);
  const std::jthread goes_on([keeper = session.keeper_pid()] {
    std::this_thread::sleep_for(50ms);
    ::kill(keeper, SIGCONT);
  });
  keep_marked(session, "late", leases, 3);
  const auto kept = session.kept();
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].name, "late");
  EXPECT_FALSE(slab->ledger().usage(*membership_of(session))->holders.contains(session.self()));
}

// A participant that was stopped while it holds the ledger's lock holds up neither the keeper nor what it keeps.
DROVER_PEER_BODY(stops_with_the_ledger) {
  const Session session = Session::open("crash");
  const auto slab = ipc::OpenLedger::open(session, ObjectHandle::parse(peer.receive_text()));
  const ipc::LedgerView view(slab->object().layout(), ipc::slab_geometry(slab->object().spec()));
  const ipc::CellGuard guard(view.pool.header.lock, *membership_of(session));
  peer.channel().send("holding");
  static_cast<void>(peer.receive_text());
}

TEST_F(KeptCrash, participant_stopped_in_the_ledger_does_not_hold_up_the_keeper) {
  Session session = Session::open("crash");
  const auto slab = make_kept_slab(session);
  auto leases = marked_blocks(*slab, 1, 1);
  PeerGroup group("stops_with_the_ledger", kOne);
  group.start();
  group.channel(0).send(slab->object().handle().to_string());
  EXPECT_EQ(group.receive_text(0), "holding");
  keep_marked(session, "weights", leases, 1);
  EXPECT_EQ(session.kept().at(0).bytes, kKeptBlockBytes);
  session.drop("weights");
  group.kill(0);
  expect_killed(group);
  ASSERT_TRUE(eventually([&] { return session.population().departed == 1; }));
  EXPECT_EQ(slab->ledger().usage(*membership_of(session))->blocks, 0U);
}

}  // namespace
}  // namespace drover::test
