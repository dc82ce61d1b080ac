// A process killed after each single instruction while it makes, shares, releases, sends or receives leases: nothing
// in use is freed, nothing is lost, and in the end every block is free.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/mapping.hpp"
#include "drover/ipc/queue.hpp"
#include "ipc/ledger/ledger_support.hpp"
#include "ipc/ledger/open_ledger.hpp"
#include "ipc/object/object_layout.hpp"
#include "support/single_step.hpp"
#include "torture/queue_probe.hpp"

namespace drover::test {
namespace {

constexpr QueueOptions kOptions{.capacity = 3, .bytes = 16384, .in_flight = 2};
constexpr std::uint64_t kSlabBytes = 64 * 1024;
constexpr std::size_t kLarge = 1500;  // a message stored in a block of the queue
constexpr std::size_t kMany = ipc::kMostLeasesInSlot + 3;
constexpr std::size_t kMostKills = 700;  // of processes with many leases, whose paths are long

std::shared_ptr<ipc::OpenLedger> open_slab(const Invited& invited) {
  return ipc::OpenLedger::open(invited.membership, invited.handles.at(1));
}
std::vector<Lease> two_leases(ipc::OpenLedger& slab) {
  std::vector<Lease> leases;
  leases.push_back(slab.allocate(3000));
  leases.push_back(slab.allocate(700));
  return leases;
}

std::vector<Lease> many_leases(ipc::OpenLedger& slab) {
  std::vector<Lease> leases(kMany);
  for (Lease& lease : leases) lease = slab.allocate(1);
  return leases;
}

DROVER_STEPPED(allocate_block) {
  const auto slab = open_slab(invited);
  Lease lease;
  StepMarks::begin();
  lease = slab->allocate(3000);
  StepMarks::end();
}

DROVER_STEPPED(share_and_release_lease) {
  const auto slab = open_slab(invited);
  Lease lease = slab->allocate(3000);
  StepMarks::begin();
  Lease shared = lease.share();
  lease.release();
  shared.release();
  StepMarks::end();
}

void step_put_leases(const Invited& invited, std::size_t bytes, bool are_many = false) {
  const auto slab = open_slab(invited);
  Queue queue = open_queue(invited);
  auto leases = are_many ? many_leases(*slab) : two_leases(*slab);
  const std::string message = numbered_message(7, bytes);
  StepMarks::begin();
  static_cast<void>(queue.put(std::as_bytes(std::span(message)), leases));
  StepMarks::end();
}
DROVER_STEPPED(put_leases) { step_put_leases(invited, 40); }
DROVER_STEPPED(put_leases_with_block) { step_put_leases(invited, kLarge); }
DROVER_STEPPED(put_many_leases) { step_put_leases(invited, 40, true); }

DROVER_STEPPED(share_and_put_lease) {
  const auto slab = open_slab(invited);
  Queue queue = open_queue(invited);
  const Lease own = slab->allocate(3000);
  std::vector<Lease> leases(1);
  const std::string message = numbered_message(7, 40);
  StepMarks::begin();
  leases[0] = own.share();
  static_cast<void>(queue.put(std::as_bytes(std::span(message)), leases));
  StepMarks::end();
}

DROVER_STEPPED(get_leases) {
  const auto slab = open_slab(invited);
  Queue queue = open_queue(invited);
  std::optional<Message> message(std::in_place);
  StepMarks::begin();
  static_cast<void>(queue.get(*message));
  message.reset();
  StepMarks::end();
}

DROVER_STEPPED(receive_leases_and_finish) {
  const auto slab = open_slab(invited);
  Queue queue = open_queue(invited);
  Delivery delivery;
  StepMarks::begin();
  static_cast<void>(queue.receive(delivery));
  delivery.done();
  StepMarks::end();
}

DROVER_STEPPED(receive_leases_and_give_back) {
  const auto slab = open_slab(invited);
  Queue queue = open_queue(invited);
  Delivery delivery;
  StepMarks::begin();
  static_cast<void>(queue.receive(delivery));
  delivery.give_back();
  StepMarks::end();
}

class LeaseSingleStep : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_single_steps(); !why.empty()) GTEST_SKIP() << why;
  }

  void put(std::size_t bytes, bool are_many = false) {
    auto leases = are_many ? many_leases(*slab_) : two_leases(*slab_);
    const std::string message = numbered_message(++last_number_, bytes);
    ASSERT_EQ(queue_.put(std::as_bytes(std::span(message)), leases), PutResult::put);
  }

  // Pending messages arrive whole, with their leases; afterwards no lease is left and every block is free.
  void check_recovered(std::size_t leases) {
    const std::set<MessageKey> owed = owed_ ? *owed_ : probe_.owed();
    owed_.reset();
    std::set<MessageKey> keys;
    for (Message message; queue_.try_get(message) == GetResult::got;) {
      EXPECT_NO_THROW(static_cast<void>(number_of(message.bytes())));
      EXPECT_TRUE(keys.insert(message.key()).second) << "message " << message.key() << " was delivered twice";
      EXPECT_EQ(message.leases().size(), leases);
    }
    EXPECT_EQ(keys, owed);
    EXPECT_EQ(probe_.not_free(), "");
    EXPECT_EQ(probe_.used_blocks(), 0U);
    EXPECT_EQ(slab_->ledger().used_blocks(), 0U);
    EXPECT_EQ(audit(view_), "");
  }

  std::size_t kill_everywhere(const std::string& body, std::size_t leases, const std::function<void()>& prepare,
                              std::size_t most = 0) {
    SingleStepper stepper(session_, body, {queue_.handle(), slab_->object().handle()});
    return kill_at_every_instruction(stepper,
                                     {.prepare = prepare,
                                      .check_dead = [this] { owed_ = probe_.owed(); },
                                      .check_recovered = [this, leases] { check_recovered(leases); }},
                                     most);
  }

  TestSession session_;
  std::shared_ptr<Membership> member_ = session_.join();
  std::shared_ptr<ipc::OpenLedger> slab_ =
      ipc::OpenLedger::make(member_, kSlabBytes, make_memory_file("stepped slab", kSlabBytes));
  Queue queue_{member_, kOptions};
  QueueProbe probe_{member_->open(queue_.handle())};
  ipc::LedgerView view_{slab_->object().layout(), ipc::slab_geometry(slab_->object().spec())};
  std::optional<std::set<MessageKey>> owed_;
  std::uint64_t last_number_ = 0;
};

TEST_F(LeaseSingleStep, killed_in_allocate) {
  EXPECT_GT(kill_everywhere("allocate_block", 0, [] {}), 200U);
}
TEST_F(LeaseSingleStep, killed_in_share_and_release) {
  EXPECT_GT(kill_everywhere("share_and_release_lease", 0, [] {}), 400U);
}
TEST_F(LeaseSingleStep, killed_in_put_of_leases) {
  EXPECT_GT(kill_everywhere("put_leases", 2, [] {}), 100U);
}
TEST_F(LeaseSingleStep, killed_in_put_of_leases_with_a_large_message) {
  EXPECT_GT(kill_everywhere("put_leases_with_block", 2, [] {}), 200U);
}
TEST_F(LeaseSingleStep, killed_in_share_and_put) {
  EXPECT_GT(kill_everywhere("share_and_put_lease", 1, [] {}), 200U);
}
TEST_F(LeaseSingleStep, killed_in_get_of_leases) {
  EXPECT_GT(kill_everywhere("get_leases", 2, [this] { put(40); }), 400U);
}
TEST_F(LeaseSingleStep, killed_in_receive_and_done) {
  EXPECT_GT(kill_everywhere("receive_leases_and_finish", 2, [this] { put(300); }), 400U);
}
TEST_F(LeaseSingleStep, killed_in_receive_and_give_back) {
  EXPECT_GT(kill_everywhere("receive_leases_and_give_back", 2, [this] { put(40); }), 200U);
}

TEST_F(LeaseSingleStep, killed_in_put_of_many_leases) {
  EXPECT_GT(kill_everywhere("put_many_leases", kMany, [] {}, kMostKills), 400U);
}
TEST_F(LeaseSingleStep, killed_in_get_of_many_leases) {
  EXPECT_GT(kill_everywhere("get_leases", kMany, [this] { put(40, true); }, kMostKills), 400U);
}
TEST_F(LeaseSingleStep, killed_in_receive_and_done_of_many_leases) {
  EXPECT_GT(kill_everywhere("receive_leases_and_finish", kMany, [this] { put(kLarge, true); }, kMostKills), 400U);
}
TEST_F(LeaseSingleStep, killed_in_receive_and_give_back_of_many_leases) {
  EXPECT_GT(kill_everywhere("receive_leases_and_give_back", kMany, [this] { put(40, true); }, kMostKills), 400U);
}

}  // namespace
}  // namespace drover::test
