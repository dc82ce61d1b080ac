// Keeping and recalling in real sessions, without deaths: those are in kept_crash_test.cpp.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/session/session.hpp"
#include "session/client/kept_support.hpp"
#include "session/client/session_helpers.hpp"
#include "session/keeper/keeper_thread.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"

namespace drover::test {
namespace {

using namespace std::chrono_literals;

// A named session that ends with the test.
class KeptSession : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const auto& info : list_sessions()) end_session(info.name, true);
  }

  OwnRuntimeFolder folder_;
};

TEST_F(KeptSession, what_is_kept_outlives_every_participant) {
  {
    const Session session = Session::open("kept");
    const auto slab = make_kept_slab(session);
    auto leases = marked_blocks(*slab, 2, 77);
    keep_marked(session, "weights", leases, 77);
    EXPECT_FALSE(leases[0].is_open() || leases[1].is_open());
  }
  EXPECT_EQ(describe_session("kept").population.present, 0U);
  EXPECT_EQ(describe_session("kept").slab_count, 1U);
  Session session = Session::open("kept");
  {
    const Recalled recalled = membership_of(session)->recall("weights");
    EXPECT_EQ(mark_in(recalled), 77U);
    ASSERT_EQ(recalled.leases.size(), 2U);
    for (const Lease& lease : recalled.leases) EXPECT_EQ(read_mark(session, lease), 77U);
    session.drop("weights");
    EXPECT_EQ(read_mark(session, recalled.leases[1]), 77U) << "the process that recalled it has it";
  }
  EXPECT_TRUE(eventually([] { return describe_session("kept").slab_count == 0; })) << "its memory is given back";
}

TEST_F(KeptSession, replacing_needs_no_name_to_be_free_and_ends_what_was) {
  const Session session = Session::open("kept");
  const auto slab = make_kept_slab(session);
  for (const std::uint64_t mark : {1U, 2U, 3U}) {
    auto leases = marked_blocks(*slab, 1, mark);
    keep_marked(session, "weights", leases, mark);
  }
  const Recalled recalled = membership_of(session)->recall("weights");
  EXPECT_EQ(mark_in(recalled), 3U);
  EXPECT_EQ(read_mark(session, recalled.leases.at(0)), 3U);
  EXPECT_EQ(slab->ledger().usage(*membership_of(session))->blocks, 1U);
  EXPECT_EQ(session.kept().size(), 1U);
}

TEST_F(KeptSession, everything_is_listed_from_inside_and_outside) {
  const Session session = Session::open("kept");
  const auto slab = make_kept_slab(session);
  const auto before = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  auto leases = marked_blocks(*slab, 3, 1);
  membership_of(session)->keep("weights", {}, "float32[3, 1024] at cpu", leases);
  membership_of(session)->keep("epoch", std::as_bytes(std::span("7", 1)), "", {});
  const std::vector<KeptInfo> kept = session.kept();
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].name, "epoch");
  EXPECT_EQ(kept[0].bytes, 0U);
  EXPECT_EQ(kept[1].name, "weights");
  EXPECT_EQ(kept[1].description, "float32[3, 1024] at cpu");
  EXPECT_EQ(kept[1].bytes, 3 * kKeptBlockBytes);
  EXPECT_EQ(kept[1].leases, 3U);
  EXPECT_GE(kept[1].since, before);
  EXPECT_EQ(describe_session("kept").kept, kept);
}

TEST_F(KeptSession, may_be_dropped_from_outside) {
  const Session session = Session::open("kept");
  membership_of(session)->keep("epoch", {}, "", {});
  expect_error(Errc::not_found, [] { drop_kept("kept", "eproch"); }, {"'eproch'", "keeps epoch"});
  expect_error(Errc::not_found, [] { drop_kept("other", "epoch"); }, {"no session 'other'"});
  expect_error(Errc::invalid_argument, [] { drop_kept("kept", ""); }, {"1 to 128"});
  drop_kept("kept", "epoch");
  EXPECT_TRUE(session.kept().empty());
}

TEST_F(KeptSession, wrong_use_is_an_error_and_leaves_the_leases) {
  Session session = Session::open("kept");
  const auto self = membership_of(session);
  const auto slab = make_kept_slab(session);
  auto leases = marked_blocks(*slab, 1, 5);
  expect_error(Errc::invalid_argument, [&] { self->keep("", {}, "", leases); }, {"1 to 128"});
  const std::vector<std::byte> large(kMostKeptRecordBytes + 1);
  expect_error(Errc::invalid_argument, [&] { self->keep("x", large, "", leases); }, {"1025"});
  expect_error(Errc::invalid_argument, [&] { self->keep("x", {}, "a\nb", leases); }, {"one line"});
  std::vector<Lease> empty(1);
  expect_error(Errc::invalid_argument, [&] { self->keep("x", {}, "", empty); }, {"empty lease"});
  expect_error(Errc::not_found, [&] { std::ignore = self->recall("x"); }, {"'x'", "keeps nothing"});
  expect_error(Errc::not_found, [&] { session.drop("x"); });
  expect_error(Errc::invalid_argument, [&] { std::ignore = self->recall(std::string(129, 'x')); }, {"129 bytes"});
  EXPECT_TRUE(session.kept().empty());
  EXPECT_EQ(read_mark(session, leases.at(0)), 5U);
  EXPECT_EQ(slab->ledger().usage(*self)->holders.at(session.self()).leases, 1U);
}

TEST_F(KeptSession, largest_of_everything_comes_back) {
  const Session session = Session::open("kept");
  const auto slab = make_kept_slab(session);
  auto leases = marked_blocks(*slab, kMostKeptLeases, 9);
  const std::string name(kMostKeptNameBytes, 'n');
  const std::vector<std::byte> record(kMostKeptRecordBytes, std::byte{0xee});
  membership_of(session)->keep(name, record, std::string(kMostKeptDescriptionBytes, 'd'), leases);
  const Recalled recalled = membership_of(session)->recall(name);
  EXPECT_EQ(recalled.record, record);
  ASSERT_EQ(recalled.leases.size(), kMostKeptLeases);
  EXPECT_EQ(read_mark(session, recalled.leases.back()), 9U);
  EXPECT_EQ(session.kept().at(0).description.size(), kMostKeptDescriptionBytes);
}

TEST(Kept, session_without_a_name_keeps_as_long_as_it_lives) {
  Session session = Session::start();
  const auto slab = make_kept_slab(session);
  auto leases = marked_blocks(*slab, 1, 4);
  keep_marked(session, "weights", leases, 4);
  EXPECT_EQ(read_mark(session, membership_of(session)->recall("weights").leases.at(0)), 4U);
  session.drop("weights");
  EXPECT_EQ(slab->ledger().usage(*membership_of(session))->blocks, 0U);
}

// The slab's last opening of this process ends with the lease that is given away.
TEST(Kept, last_lease_of_a_slab_may_be_kept) {
  const Session session = Session::start();
  auto slab = make_kept_slab(session);
  auto leases = marked_blocks(*slab, 1, 6);
  slab.reset();
  keep_marked(session, "weights", leases, 6);
  EXPECT_EQ(read_mark(session, membership_of(session)->recall("weights").leases.at(0)), 6U);
}

// Recalls what the test keeps, again after it was dropped.
DROVER_PEER_BODY(recalls_and_holds) {
  const Session session = Session::open("shared");
  const Recalled recalled = membership_of(session)->recall("weights");
  EXPECT_EQ(read_mark(session, recalled.leases.at(0)), mark_in(recalled));
  peer.channel().send(std::to_string(mark_in(recalled)));
  EXPECT_EQ(peer.receive_text(), "dropped");
  EXPECT_EQ(read_mark(session, recalled.leases.at(0)), mark_in(recalled));
  expect_error(Errc::not_found, [&] { std::ignore = membership_of(session)->recall("weights"); });
}

TEST_F(KeptSession, several_processes_recall_it_and_have_it_after_it_was_dropped) {
  Session session = Session::open("shared");
  {
    const auto slab = make_kept_slab(session);
    auto leases = marked_blocks(*slab, 1, 1234);
    keep_marked(session, "weights", leases, 1234);
  }
  PeerGroup group("recalls_and_holds", {.mode = PeerMode::processes, .size = 3});
  group.start();
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(group.receive_text(rank), "1234");
  session.drop("weights");
  EXPECT_EQ(describe_session("shared").slab_count, 1U) << "they have leases in it";
  for (int rank = 0; rank < 3; ++rank) group.channel(rank).send("dropped");
  group.expect_success();
  EXPECT_TRUE(eventually([] { return describe_session("shared").slab_count == 0; }));
}

TEST(KeptRequests, visitors_may_list_and_drop_but_not_keep_or_recall) {
  const OwnRuntimeFolder folder;
  const CapturedLog log;
  const KeeperThread keeper(session::KeeperSettings{.name = "raw", .idle_limit = 3600s});
  const auto visit = [&](const session::Request& request) {
    return session::KeeperLink(keeper.connect(), 20s).ask(request).reply;
  };
  const ipc::KeptEntry named = {.info = {.name = "x"}, .record = {}, .leases = {}};
  for (const auto type : {session::RequestType::keep, session::RequestType::recall}) {
    expect_error(Errc::corrupt, [&] { visit({.type = type, .kept = named}); }, {"a visitor of a session asked to"});
  }
  expect_error(Errc::not_found, [&] { visit({.type = session::RequestType::drop, .kept = named}); }, {"'x'"});
  EXPECT_TRUE(visit({.type = session::RequestType::kept}).kept.info.name.empty());
}

}  // namespace
}  // namespace drover::test
