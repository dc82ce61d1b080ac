// The entries of a session: the keeper's table, and the way of leases to it and back.
#include "ipc/registry/kept_table.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "ipc/ledger/keepable_leases.hpp"
#include "ipc/ledger/open_ledger.hpp"
#include "ipc/object/object_layout.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using test::expect_error;
using test::TestSession;

constexpr std::uint64_t kSlabBytes = 16 * 1024 * 1024;

template <class... Leases>
std::vector<Lease> list(Leases... leases) {
  std::vector<Lease> all;
  (all.push_back(std::move(leases)), ...);
  return all;
}

class KeptTableTest : public ::testing::Test {
 protected:
  static std::shared_ptr<OpenLedger> make_slab(const std::shared_ptr<Membership>& membership) {
    return OpenLedger::make(membership, kSlabBytes, make_memory_file("slab of a test", kSlabBytes));
  }
  // As a session does it.
  void keep(const std::string& name, std::vector<Lease>& leases, const std::shared_ptr<Membership>& who) {
    KeptEntry entry = make_kept_entry(name, std::as_bytes(std::span(name)), "about " + name);
    const KeepableLeases keepable(leases, *who);
    entry.leases = keepable.names();
    keepable.offer([&] { table_.keep(entry, who->self()); });
    keepable.give_away();
  }
  void keep(const std::string& name, std::vector<Lease> leases) { keep(name, leases, maker_); }
  Recalled recall(const std::string& name, const std::shared_ptr<Membership>& who) {
    return recall_leases(who, [&] { return table_.find(name); });
  }
  // The usage of the slab according to its ledger.
  [[nodiscard]] LedgerUsage usage() const { return slab_->ledger().usage(*maker_).value(); }
  [[nodiscard]] std::uint64_t kept_leases() const {
    const LedgerUsage all = usage();
    const auto at = all.holders.find(kKept);
    return at == all.holders.end() ? 0 : at->second.leases;
  }

  TestSession session_;
  KeptTable table_{session_.table()};
  std::shared_ptr<Membership> maker_ = session_.join();
  std::shared_ptr<Membership> other_ = session_.join();
  std::shared_ptr<OpenLedger> slab_ = make_slab(maker_);
};

TEST_F(KeptTableTest, entry_belongs_to_the_session_and_anybody_can_recall_it) {
  auto leases = list(slab_->allocate(1000), slab_->allocate(5000));
  const std::array offsets = {leases[0].offset(), leases[1].offset()};
  keep("weights", leases, maker_);
  EXPECT_FALSE(leases[0].is_open() || leases[1].is_open());
  EXPECT_EQ(kept_leases(), 2U);
  EXPECT_EQ(usage().holders.size(), 1U) << "no participant has any";
  for (const auto& who : {maker_, other_, other_}) {
    const Recalled recalled = recall("weights", who);
    EXPECT_EQ(std::memcmp(recalled.record.data(), "weights", 7), 0);
    ASSERT_EQ(recalled.leases.size(), 2U);
    EXPECT_EQ(recalled.leases[0].offset(), offsets[0]);
    EXPECT_EQ(recalled.leases[1].offset(), offsets[1]);
    EXPECT_EQ(recalled.leases[1].bytes(), 5120U);
    EXPECT_EQ(usage().holders.at(who->self()).leases, 2U);
  }
  EXPECT_EQ(kept_leases(), 2U) << "the entry stays";
  EXPECT_EQ(usage().holders.size(), 1U) << "the recalled leases are released";
}

TEST_F(KeptTableTest, entry_outlives_all_participants_until_it_is_dropped) {
  keep("weights", list(slab_->allocate(1000)));
  const ObjectHandle handle = slab_->object().handle();
  const Owner dead = maker_->self();
  slab_.reset();
  maker_.reset();
  session_.recover(dead);
  EXPECT_EQ(session_.table().file_count(), 1U);
  {
    const Recalled recalled = recall("weights", other_);
    EXPECT_EQ(recalled.leases.at(0).slab(), handle);
    table_.drop("weights");
    EXPECT_EQ(OpenLedger::open(other_, handle)->ledger().used_blocks(), 1U)
        << "the participant that recalled it has it";
    EXPECT_EQ(session_.table().file_count(), 1U);
  }
  EXPECT_EQ(session_.table().file_count(), 0U) << "the slab goes with the last lease";
}

TEST_F(KeptTableTest, slab_without_openers_goes_with_its_last_entry) {
  keep("one", list(slab_->allocate(1000), slab_->allocate(1000)));
  keep("two", list(slab_->allocate(1000)));
  slab_.reset();
  EXPECT_EQ(session_.table().file_count(), 1U);
  table_.drop("one");
  EXPECT_EQ(session_.table().file_count(), 1U) << "the other entry needs it";
  table_.drop("two");
  EXPECT_EQ(session_.table().file_count(), 0U);
  EXPECT_EQ(session_.table().size(), 0U);
}

TEST_F(KeptTableTest, name_that_exists_is_replaced_and_its_leases_end) {
  const Lease first = slab_->allocate(1000);
  keep("weights", list(first.share()));
  keep("weights", list(slab_->allocate(2000), slab_->allocate(3000)));
  EXPECT_EQ(kept_leases(), 2U);
  EXPECT_EQ(usage().blocks, 3U) << "with the one still held";
  EXPECT_EQ(table_.find("weights").info.bytes, 2048U + 3072U);
  EXPECT_EQ(table_.next("")->info.leases, 2U);
  EXPECT_EQ(table_.next("weights"), nullptr);
  // Keeps the same block again by a recalled lease: it is never without a lease.
  auto same = recall("weights", maker_).leases;
  keep("weights", std::move(same));
  EXPECT_EQ(kept_leases(), 2U);
  EXPECT_EQ(usage().blocks, 3U);
}

TEST_F(KeptTableTest, record_without_leases_can_be_kept) {
  keep("note", {});
  EXPECT_TRUE(recall("note", other_).leases.empty());
  table_.drop("note");
  EXPECT_EQ(table_.next(""), nullptr);
}

TEST_F(KeptTableTest, info_is_in_the_order_of_names) {
  const auto before = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const Lease block = slab_->allocate(1000);
  keep("b", list(block.share(), block.share()));
  keep("a", list(slab_->allocate(512)));
  const KeptEntry* const first = table_.next("");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->info.name, "a");
  EXPECT_EQ(first->info.description, "about a");
  EXPECT_GE(first->info.since, before);
  const KeptEntry* const second = table_.next("a");
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->info.leases, 2U);
  EXPECT_EQ(second->info.bytes, 1024U) << "a block counts once";
  EXPECT_EQ(table_.next("b"), nullptr);
}

TEST_F(KeptTableTest, leases_of_others_are_refused_and_all_is_rolled_back) {
  auto leases = list(slab_->allocate(1000), slab_->allocate(1000), slab_->allocate(1000));
  KeptEntry entry = make_kept_entry("mine", {}, "");
  entry.leases = KeepableLeases(leases, *maker_).names();
  expect_error(Errc::invalid_argument, [&] { table_.keep(entry, maker_->self()); },
               {"participant 1 does not hold", "not sent"});
  for (Lease& lease : leases) ASSERT_TRUE(OpenLedger::offer(lease));
  expect_error(Errc::invalid_argument, [&] { table_.keep(entry, other_->self()); }, {"participant 2 does not hold"});
  // A lease named twice is no longer available the second time.
  const std::string first = fmt::format("lease {} of slab:", entry.leases[0].lease.index);
  entry.leases[2] = entry.leases[0];
  expect_error(Errc::invalid_argument, [&] { table_.keep(entry, maker_->self()); }, {first});
  for (const Lease& lease : leases) EXPECT_TRUE(OpenLedger::stop_offering(lease)) << "it is still offered";
  EXPECT_EQ(kept_leases(), 0U);
  EXPECT_EQ(table_.next(""), nullptr);
  leases.clear();
  slab_.reset();
  EXPECT_EQ(session_.table().file_count(), 0U) << "the table no longer has it open";
}

TEST_F(KeptTableTest, invalid_names_of_leases_are_errors) {
  KeptEntry entry = make_kept_entry("x", {}, "");
  const ObjectHandle slab = slab_->object().handle();
  entry.leases = {{.slab = slab, .lease = {.index = 1U << 30U, .generation = 0}}};
  expect_error(Errc::not_found, [&] { table_.keep(entry, 1); }, {"has ended"});
  entry.leases = {{.slab = slab, .lease = {.index = 3, .generation = 7}}};
  expect_error(Errc::not_found, [&] { table_.keep(entry, 1); }, {"has ended"});
  entry.leases[0].slab.generation += 1;
  expect_error(Errc::not_found, [&] { table_.keep(entry, 1); }, {"does not exist"});
  const OpenObject event = maker_->create({.kind = ObjectKind::event, .parameters = {}});
  entry.leases[0].slab = event.handle;
  expect_error(Errc::not_found, [&] { table_.keep(entry, 1); }, {"does not exist"});
  entry = make_kept_entry("x", {}, "");
  entry.info.name.clear();
  expect_error(Errc::invalid_argument, [&] { table_.keep(entry, 1); }, {"1 to 128"});
  EXPECT_EQ(table_.next(""), nullptr);
  maker_->close(event.handle);
}

TEST_F(KeptTableTest, number_of_names_is_limited) {
  for (std::size_t number = 0; number < kMostKept; ++number) {
    table_.keep(make_kept_entry(fmt::format("n{}", number), {}, ""), 1);
  }
  auto leases = list(slab_->allocate(1000));
  expect_error(Errc::limit_reached, [&] { keep("one more", leases, maker_); }, {"4096", "drop names"});
  EXPECT_TRUE(leases[0].is_open());
  EXPECT_EQ(usage().holders.at(maker_->self()).leases, 1U) << "it is still the caller's";
  EXPECT_NO_THROW(keep("n17", leases, maker_)) << "replacing an entry needs no room";
  table_.drop("n18");
  EXPECT_NO_THROW(keep("one more", {}));
}

TEST_F(KeptTableTest, unknown_name_is_an_error_with_similar_names) {
  expect_error(Errc::not_found, [&] { std::ignore = table_.find("weights"); },
               {"nothing is kept under 'weights'", "the session keeps nothing", "drover session show"});
  for (const char* const name : {"weights", "bias", "optimizer", "zebra", "weights_2"}) keep(name, {});
  expect_error(Errc::not_found, [&] { table_.drop("wights"); }, {"keeps weights, bias, weights_2 and 2 more"});
  expect_error(Errc::not_found, [&] { std::ignore = table_.find(""); }, {"and 2 more"});
}

// The reply was late or lost: the ledger has the outcome.
TEST_F(KeptTableTest, lost_reply_does_not_hide_the_outcome) {
  auto leases = list(slab_->allocate(1000), slab_->allocate(1000));
  const KeepableLeases keepable(leases, *maker_);
  KeptEntry entry = make_kept_entry("weights", {}, "");
  entry.leases = keepable.names();
  const auto lose = [] { throw Error(Errc::timed_out, "no answer"); };
  expect_error(Errc::timed_out, [&] { keepable.offer(lose); });
  EXPECT_EQ(usage().holders.at(maker_->self()).leases, 2U);
  expect_error(Errc::invalid_argument, [&] { table_.keep(entry, maker_->self()); }, {"does not hold"});  // too late
  EXPECT_NO_THROW(keepable.offer([&] {
    table_.keep(entry, maker_->self());
    lose();
  }));
  EXPECT_EQ(kept_leases(), 2U);
  keepable.give_away();
  table_.drop("weights");
  EXPECT_EQ(usage().blocks, 0U);
}

TEST_F(KeptTableTest, lease_that_ended_under_its_owner_is_not_offered) {
  auto leases = list(slab_->allocate(1000), slab_->allocate(1000));
  const KeepableLeases keepable(leases, *maker_);
  slab_->ledger().release(keepable.names()[1].lease, maker_->self(), *maker_);
  expect_error(Errc::not_found, [&] { keepable.offer([] { FAIL() << "the keeper is not asked"; }); }, {"lease 1"});
  EXPECT_EQ(usage().holders.at(maker_->self()).leases, 1U) << "the offer of the other one was withdrawn";
  const test::CapturedLog log;
  leases.clear();
}

TEST_F(KeptTableTest, recall_that_races_with_a_drop_or_a_replacement_never_gets_another_block) {
  keep("weights", list(slab_->allocate(1000)));
  const KeptEntry old = table_.find("weights");
  keep("weights", list(slab_->allocate(3000)));
  int asked = 0;
  const auto ask = [&] { return ++asked == 1 ? old : table_.find("weights"); };
  EXPECT_EQ(recall_leases(other_, ask).leases.at(0).bytes(), 3072U);
  EXPECT_EQ(asked, 2);
  asked = 0;
  table_.drop("weights");
  const Lease reuses_the_place = slab_->allocate(1000);
  expect_error(Errc::not_found, [&] { std::ignore = recall_leases(other_, ask); }, {"nothing is kept"});
  EXPECT_EQ(asked, 2);
  expect_error(Errc::corrupt, [&] { std::ignore = recall_leases(other_, [&] { return old; }); }, {"have ended"});
  EXPECT_EQ(usage().holders.size(), 1U) << "the failed recall left nothing behind";
}

TEST_F(KeptTableTest, keeper_does_not_wait_for_a_stopped_holder_of_the_ledger) {
  keep("weights", list(slab_->allocate(1000)));
  auto more = list(slab_->allocate(1000));
  std::byte* const layout = layout_of(slab_->object().data());
  const LedgerView view(layout, slab_geometry(slab_->object().spec()));
  {
    const CellGuard stands_still(view.pool.header.lock, *other_);
    keep("more", more, maker_);
    keep("weights", {});
    table_.drop("more");
  }
  EXPECT_EQ(usage().blocks, 0U) << "freed by the next user";
}

TEST_F(KeptTableTest, corrupt_ledger_does_not_stop_the_keeper) {
  keep("weights", list(slab_->allocate(1000)));
  const ObjectHandle handle = slab_->object().handle();
  slab_.reset();
  const auto& memory = session_.table().slab(handle.slab).memory;
  std::ranges::fill(memory.bytes().subspan(handle.offset + sizeof(ObjectHeader), 8192), std::byte{0xff});
  const test::CapturedLog log;
  EXPECT_NO_THROW(table_.drop("weights"));
  EXPECT_EQ(session_.table().file_count(), 0U);
}

TEST_F(KeptTableTest, deaths_of_participants_do_not_affect_entries) {
  keep("weights", list(slab_->allocate(1000)));
  const SentLease kept = table_.find("weights").leases.at(0);
  auto offered = list(slab_->allocate(2000));
  ASSERT_TRUE(OpenLedger::offer(offered[0]));  // and dies before the keeper takes it
  const Owner dead = maker_->self();
  const auto still_open = OpenLedger::open(other_, kept.slab);
  session_.table().depart(dead, 1234);
  EXPECT_EQ(still_open->ledger().holder_of(kept.lease), kKept);
  EXPECT_EQ(still_open->ledger().usage(*other_)->blocks, 1U) << "the lease that was only offered has ended";
  const test::CapturedLog log;
  offered.clear();
}

TEST(KeptEntry, limits_are_in_the_error) {
  const std::vector<std::byte> record(kMostKeptRecordBytes + 1);
  const auto make = [&](const std::string& name, std::size_t record_bytes, const std::string& description) {
    return make_kept_entry(name, std::span(record).first(record_bytes), description);
  };
  const KeptEntry most = make(std::string(128, 'n'), 1024, std::string(256, 'd'));
  EXPECT_EQ(most.record.size(), 1024U);
  EXPECT_EQ(most.info.description.size(), 256U);
  EXPECT_NO_THROW(make("Gewichte für später", 0, ""));
  expect_error(Errc::invalid_argument, [&] { make("", 0, ""); }, {"0 bytes", "1 to 128 bytes"});
  expect_error(Errc::invalid_argument, [&] { make(std::string(129, 'n'), 0, ""); }, {"129 bytes"});
  expect_error(Errc::invalid_argument, [&] { make("two\nlines", 0, ""); }, {"control characters"});
  expect_error(Errc::invalid_argument, [&] { make("n", 1025, ""); }, {"'n'", "1025", "limit is 1024"});
  expect_error(Errc::invalid_argument, [&] { make("n", 0, std::string(257, 'd')); }, {"257", "one line"});
  expect_error(Errc::invalid_argument, [&] { make("n", 0, "\033[31m"); }, {"control characters"});
}

TEST_F(KeptTableTest, invalid_leases_are_refused_without_side_effects) {
  std::vector<Lease> empty(1);
  expect_error(Errc::invalid_argument, [&] { keep("x", empty, maker_); }, {"empty lease"});
  auto mine = list(slab_->allocate(1000));
  expect_error(Errc::invalid_argument, [&] { keep("x", mine, other_); }, {"another session"});
  std::vector<Lease> many;
  for (std::size_t number = 0; number <= kMostKeptLeases; ++number) many.push_back(mine[0].share());
  expect_error(Errc::invalid_argument, [&] { keep("x", many, maker_); }, {"1025 leases", "several names"});
  EXPECT_EQ(usage().holders.at(maker_->self()).leases, kMostKeptLeases + 2);
}

TEST_F(KeptTableTest, membership_without_a_keeper_refuses) {
  auto leases = list(slab_->allocate(1000));
  expect_error(Errc::unsupported, [&] { maker_->keep("x", {}, "", leases); }, {"'x'", "in a Session"});
  expect_error(Errc::unsupported, [&] { std::ignore = maker_->recall("x"); });
  expect_error(Errc::unsupported, [&] { maker_->drop("x"); });
  EXPECT_TRUE(maker_->kept().empty());
  EXPECT_TRUE(leases[0].is_open());
}

}  // namespace
}  // namespace drover::ipc
