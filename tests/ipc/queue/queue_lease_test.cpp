// Leases that travel with messages: their holder at each moment, whoever dies.
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "drover/ipc/queue.hpp"
#include "ipc/ledger/open_ledger.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/queue/queue_layout.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using test::expect_error;
using test::TestSession;

constexpr std::uint64_t kSlabBytes = 64 * 1024;

Deadline now() { return Deadline::after({}); }

std::vector<Lease> one(Lease lease) {
  std::vector<Lease> leases;
  leases.push_back(std::move(lease));
  return leases;
}

class QueueLease : public ::testing::Test {
 protected:
  static std::shared_ptr<OpenLedger> make_slab(const std::shared_ptr<Membership>& membership) {
    return OpenLedger::make(membership, kSlabBytes, make_memory_file("slab of a test", kSlabBytes), {7, 8, 9});
  }
  [[nodiscard]] std::uint64_t used_blocks() const { return slab_->ledger().used_blocks(); }
  // More than a slot of the queue has room for.
  [[nodiscard]] std::vector<Lease> many() const {
    std::vector<Lease> leases(kMostLeasesInSlot + 8);
    for (Lease& lease : leases) lease = slab_->allocate(1);
    return leases;
  }
  // Sends the leases; the text of the message is its size.
  PutResult send(std::vector<Lease> leases, std::size_t bytes = 8) {
    const std::string message(bytes, 'm');
    return queue_.put(std::as_bytes(std::span(message)), leases, now());
  }
  // The state between publication and giving away, as the keeper sees it.
  void pretend_not_given_away(const SentLease& sent) {
    ASSERT_TRUE(slab_->ledger().hand_over(sent.lease, kInTransit, sending_by(producer_->self())));
  }

  TestSession session_;
  std::shared_ptr<Membership> producer_ = session_.join();
  std::shared_ptr<Membership> consumer_ = session_.join();
  std::shared_ptr<OpenLedger> slab_ = make_slab(producer_);
  Queue queue_{producer_, QueueOptions{.capacity = 4, .bytes = 8192, .in_flight = 2}};
  Queue theirs_{consumer_, queue_.handle()};
};

TEST_F(QueueLease, a_lease_belongs_to_the_message_and_then_to_its_receiver) {
  Lease mine = slab_->allocate(1000);
  const std::uint64_t offset = mine.offset();
  const SentLease sent = OpenLedger::to_send(mine, *producer_);
  auto leases = one(std::move(mine));
  ASSERT_EQ(queue_.put(std::as_bytes(std::span("x")), leases), PutResult::put);
  EXPECT_FALSE(leases.front().is_open());
  EXPECT_EQ(slab_->ledger().holder_of(sent.lease), kInTransit);
  Message message;
  ASSERT_EQ(theirs_.get(message), GetResult::got);
  ASSERT_EQ(message.leases().size(), 1U);
  EXPECT_EQ(slab_->ledger().holder_of(sent.lease), consumer_->self());
  EXPECT_EQ(message.leases().front().offset(), offset);
  EXPECT_EQ(message.leases().front().bytes(), 1024U);
  EXPECT_EQ(message.leases().front().slab(), slab_->object().handle());
  message = Message();
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(QueueLease, a_shared_lease_stays_with_the_sender) {
  const Lease mine = slab_->allocate(1000);
  ASSERT_EQ(send(one(mine.share())), PutResult::put);
  Message message;
  ASSERT_EQ(theirs_.get(message), GetResult::got);
  EXPECT_EQ(message.leases().front().offset(), mine.offset());
  message = Message();
  EXPECT_EQ(used_blocks(), 1U) << "the sender's own";
}

TEST_F(QueueLease, leases_taken_from_a_message_outlive_it) {
  ASSERT_EQ(send(one(slab_->allocate(1000))), PutResult::put);
  Message message;
  ASSERT_EQ(theirs_.get(message), GetResult::got);
  const auto kept = message.take_leases();
  EXPECT_TRUE(message.leases().empty());
  message = Message();
  EXPECT_EQ(used_blocks(), 1U);
}

TEST_F(QueueLease, every_storage_of_a_message_carries_leases) {
  for (const std::size_t bytes : {0U, 8U, 104U, 500U, 1024U, 4000U, 20'000U}) {
    std::vector<Lease> leases;
    for (int number = 0; number < 3; ++number) leases.push_back(slab_->allocate(600));
    ASSERT_EQ(send(std::move(leases), bytes), PutResult::put) << bytes;
    Message message;
    ASSERT_EQ(theirs_.get(message), GetResult::got);
    EXPECT_EQ(message.bytes().size(), bytes);
    EXPECT_EQ(message.leases().size(), 3U);
  }
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(QueueLease, a_slot_that_carried_leases_carries_none_afterwards) {
  Message message;
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(send(round % 3 == 0 ? one(slab_->allocate(1)) : std::vector<Lease>{}), PutResult::put);
    ASSERT_EQ(theirs_.get(message), GetResult::got);
    EXPECT_EQ(message.leases().size(), round % 3 == 0 ? 1U : 0U);
  }
}

TEST_F(QueueLease, a_put_that_does_not_happen_leaves_the_leases_alone) {
  auto leases = one(slab_->allocate(1));
  for (int filled = 0; filled < 4; ++filled) ASSERT_EQ(queue_.put("fill", now()), PutResult::put);
  EXPECT_EQ(queue_.put(std::as_bytes(std::span("x")), leases, now()), PutResult::timed_out);
  EXPECT_TRUE(leases.front().is_open());
  queue_.close();
  EXPECT_EQ(queue_.put(std::as_bytes(std::span("x")), leases, now()), PutResult::closed);
  EXPECT_TRUE(leases.front().is_open());
}

TEST_F(QueueLease, invalid_leases_are_refused_before_the_message_is_put) {
  std::vector<Lease> few(3);
  for (Lease& lease : few) lease = slab_->allocate(1);
  few[2].release();
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(queue_.put({}, few)); }, {"empty lease"});
  TestSession other;
  auto foreign = one(make_slab(other.join())->allocate(1));
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(queue_.put({}, foreign)); }, {"another session"});
  EXPECT_EQ(queue_.size(), 0U);
  EXPECT_TRUE(few[0].is_open());
  expect_error(Errc::invalid_argument, [] { static_cast<void>(Lease().share()); });
  expect_error(Errc::invalid_argument, [] { static_cast<void>(Lease().slab()); });
}

TEST_F(QueueLease, the_most_leases_of_a_slot_travel_in_one_message) {
  auto leases = many();
  leases.resize(kMostLeasesInSlot);
  ASSERT_EQ(send(std::move(leases)), PutResult::put);
  Delivery delivery;
  ASSERT_EQ(theirs_.receive(delivery), GetResult::got);
  EXPECT_EQ(delivery.leases().size(), kMostLeasesInSlot);
  delivery.done();
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(QueueLease, many_leases_travel_in_order_with_messages_of_every_size) {
  for (const std::size_t bytes : {0U, 1U, 8U, 500U, 1024U, 4001U}) {
    auto leases = many();
    std::vector<std::uint64_t> offsets;
    for (const Lease& lease : leases) offsets.push_back(lease.offset());
    ASSERT_EQ(send(std::move(leases), bytes), PutResult::put) << bytes;
    Message message;
    ASSERT_EQ(theirs_.get(message), GetResult::got);
    EXPECT_EQ(message.text(), std::string(bytes, 'm'));
    ASSERT_EQ(message.leases().size(), offsets.size());
    for (std::size_t i = 0; i < offsets.size(); ++i) EXPECT_EQ(message.leases()[i].offset(), offsets[i]);
  }
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(QueueLease, a_delivery_with_many_leases_is_returned_and_delivered_again) {
  ASSERT_EQ(send(many(), 500), PutResult::put);
  {
    Delivery delivery;
    ASSERT_EQ(theirs_.receive(delivery), GetResult::got);
    EXPECT_EQ(delivery.text(), std::string(500, 'm'));
    EXPECT_EQ(delivery.leases().size(), kMostLeasesInSlot + 8);
  }
  EXPECT_EQ(used_blocks(), kMostLeasesInSlot + 8);
  Delivery delivery;
  ASSERT_EQ(theirs_.receive(delivery), GetResult::got);
  EXPECT_TRUE(delivery.is_redelivered());
  EXPECT_EQ(delivery.leases().size(), kMostLeasesInSlot + 8);
  session_.recover(consumer_->self());
  Message message;
  ASSERT_EQ(queue_.get(message, now()), GetResult::got);
  EXPECT_EQ(message.leases().size(), kMostLeasesInSlot + 8);
  message = Message();
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(QueueLease, many_leases_of_a_killed_producer_are_received_even_if_it_had_not_given_them_away) {
  auto leases = many();
  std::vector<SentLease> sent;
  for (const Lease& lease : leases) sent.push_back(OpenLedger::to_send(lease, *producer_));
  ASSERT_EQ(send(std::move(leases)), PutResult::put);
  for (std::size_t i = 10; i < sent.size(); ++i) pretend_not_given_away(sent[i]);
  session_.recover(producer_->self());
  Message message;
  ASSERT_EQ(theirs_.get(message), GetResult::got);
  EXPECT_EQ(message.leases().size(), sent.size());
  const auto observer = OpenLedger::open(consumer_, slab_->object().handle());
  message = Message();
  EXPECT_EQ(observer->ledger().used_blocks(), 0U);
}

TEST_F(QueueLease, a_consumer_killed_with_many_leases_frees_their_blocks) {
  ASSERT_EQ(send(many(), 2000), PutResult::put);
  Message message;
  ASSERT_EQ(theirs_.get(message), GetResult::got);
  session_.recover(consumer_->self());
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(QueueLease, many_leases_that_nobody_received_end_with_their_queue) {
  {
    Queue short_lived(producer_);
    auto leases = many();
    ASSERT_EQ(short_lived.put(std::as_bytes(std::span("x")), leases), PutResult::put);
  }
  static_cast<void>(slab_->allocate(1));  // any use frees the orphans
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(QueueLease, a_message_with_many_leases_that_is_larger_than_the_queue_is_refused) {
  auto leases = many();
  const std::string message(8000, 'm');
  expect_error(Errc::limit_reached, [&] { static_cast<void>(queue_.put(std::as_bytes(std::span(message)), leases)); },
               {"40 leases", "QueueOptions::bytes"});
  EXPECT_TRUE(leases.front().is_open());
  EXPECT_EQ(queue_.size(), 0U);
}

TEST_F(QueueLease, a_table_of_leases_that_exceeds_its_block_is_corrupt) {
  ASSERT_EQ(send(many()), PutResult::put);
  const OpenObject open = producer_->open(queue_.handle());
  const QueueView view(layout_of(open.data), queue_geometry(open.spec));
  view.ring.slot(0).record.store_head(RecordHead::of(1500, Storage::block).with_leases(kManyLeases));
  Message message;
  expect_error(Errc::corrupt, [&] { static_cast<void>(theirs_.get(message)); }, {"outside of its memory"});
  EXPECT_EQ(queue_.size(), 0U);
  producer_->close(queue_.handle());
}

TEST_F(QueueLease, a_delivery_has_its_leases_until_it_is_done) {
  ASSERT_EQ(send(one(slab_->allocate(1))), PutResult::put);
  Delivery delivery;
  ASSERT_EQ(theirs_.receive(delivery), GetResult::got);
  const Lease kept = delivery.leases().front().share();
  delivery.done();
  EXPECT_TRUE(delivery.leases().empty());
  EXPECT_EQ(used_blocks(), 1U) << "what was shared";
}

TEST_F(QueueLease, a_returned_delivery_goes_to_the_next_consumer_with_its_leases) {
  ASSERT_EQ(send(one(slab_->allocate(1))), PutResult::put);
  {
    Delivery delivery;
    ASSERT_EQ(theirs_.receive(delivery), GetResult::got);
    Delivery moved = std::move(delivery);
    EXPECT_EQ(moved.leases().size(), 1U);
  }
  EXPECT_EQ(used_blocks(), 1U);
  Message message;
  ASSERT_EQ(queue_.get(message, now()), GetResult::got);
  EXPECT_TRUE(message.is_redelivered());
  EXPECT_EQ(slab_->ledger().usage(*producer_).value().holders.at(producer_->self()).leases, 1U);
}

TEST_F(QueueLease, a_lease_of_a_killed_producer_is_received) {
  ASSERT_EQ(send(one(slab_->allocate(1))), PutResult::put);
  session_.recover(producer_->self());
  Message message;
  ASSERT_EQ(theirs_.get(message), GetResult::got);
  EXPECT_EQ(message.leases().size(), 1U);
}

TEST_F(QueueLease, a_producer_killed_between_publication_and_giving_away_loses_nothing) {
  Lease lease = slab_->allocate(1);
  const SentLease sent = OpenLedger::to_send(lease, *producer_);
  ASSERT_EQ(send(one(std::move(lease))), PutResult::put);
  pretend_not_given_away(sent);
  session_.recover(producer_->self());
  EXPECT_EQ(slab_->ledger().holder_of(sent.lease), kInTransit);
  Message message;
  ASSERT_EQ(theirs_.get(message), GetResult::got);
  EXPECT_EQ(message.leases().size(), 1U);
}

TEST_F(QueueLease, leases_of_a_killed_producer_that_were_not_sent_end) {
  const auto observer = OpenLedger::open(consumer_, slab_->object().handle());
  Lease lost = slab_->allocate(1);
  session_.recover(producer_->self());
  EXPECT_EQ(observer->ledger().used_blocks(), 0U);
}

TEST_F(QueueLease, a_consumer_killed_with_a_message_loses_its_lease_and_the_block_is_freed) {
  ASSERT_EQ(send(one(slab_->allocate(1))), PutResult::put);
  Message message;
  ASSERT_EQ(theirs_.get(message), GetResult::got);
  session_.recover(consumer_->self());
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(QueueLease, a_consumer_killed_with_a_delivery_leaves_message_and_lease_to_the_next) {
  ASSERT_EQ(send(one(slab_->allocate(1)), 500), PutResult::put);
  Delivery delivery;
  ASSERT_EQ(theirs_.receive(delivery), GetResult::got);
  session_.recover(consumer_->self());
  Message message;
  ASSERT_EQ(queue_.get(message, now()), GetResult::got);
  EXPECT_TRUE(message.is_redelivered());
  EXPECT_EQ(message.leases().size(), 1U);
  message = Message();
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(QueueLease, leases_that_nobody_received_end_with_their_queue) {
  {
    Queue short_lived(producer_);
    auto leases = one(slab_->allocate(1));
    ASSERT_EQ(short_lived.put(std::as_bytes(std::span("x")), leases), PutResult::put);
  }
  static_cast<void>(slab_->allocate(1));  // any use frees the orphans
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(QueueLease, a_slab_that_nobody_has_open_stays_while_a_message_refers_to_it) {
  const std::size_t others = session_.table().size() - 1;
  ASSERT_EQ(send(one(slab_->allocate(1))), PutResult::put);
  slab_.reset();
  EXPECT_EQ(session_.table().size(), others + 1);
  EXPECT_EQ(session_.table().file_count(), 1U);
  Message message;
  ASSERT_EQ(theirs_.get(message), GetResult::got);
  EXPECT_EQ(message.leases().front().bytes(), 512U);
  message = Message();
  EXPECT_EQ(session_.table().size(), others);
  EXPECT_EQ(session_.table().file_count(), 0U);
}

TEST_F(QueueLease, slab_and_queue_are_freed_together_with_the_last_participant) {
  ASSERT_EQ(send(one(slab_->allocate(1))), PutResult::put);
  slab_.reset();
  session_.recover(producer_->self());
  session_.recover(consumer_->self());
  EXPECT_EQ(session_.table().size(), 0U);
}

TEST_F(QueueLease, a_record_with_a_lease_that_has_ended_is_dropped_with_its_other_leases) {
  std::vector<Lease> leases = one(slab_->allocate(1));
  leases.push_back(slab_->allocate(1));
  leases.push_back(slab_->allocate(1));
  const SentLease second = OpenLedger::to_send(leases[1], *producer_);
  ASSERT_EQ(send(std::move(leases)), PutResult::put);
  slab_->ledger().release(second.lease, kInTransit, *producer_);
  Message message;
  expect_error(Errc::not_found, [&] { static_cast<void>(theirs_.get(message)); }, {"has ended"});
  EXPECT_EQ(used_blocks(), 0U);
  EXPECT_EQ(queue_.size(), 0U);
}

// Its bytes are in a block of the queue, which must survive the consumer that could not receive the leases.
TEST_F(QueueLease, a_message_whose_leases_could_not_be_received_goes_to_the_next_consumer_intact) {
  class Limited final : public Membership {
   public:
    explicit Limited(std::shared_ptr<Membership> real) : real_(std::move(real)) { set_self(real_->self()); }
    using Membership::create;
    OpenObject create(const ObjectSpec& spec) override { return real_->create(spec); }
    OpenObject open(const ObjectHandle& handle) override {
      if (handle.kind == ObjectKind::slab) throw Error(Errc::limit_reached, "too many files are open");
      return real_->open(handle);
    }
    void close(const ObjectHandle& handle) noexcept override { real_->close(handle); }
    void check() const override { real_->check(); }
    [[nodiscard]] Population population() const noexcept override { return real_->population(); }

   private:
    std::shared_ptr<Membership> real_;
  };
  ASSERT_EQ(send(one(slab_->allocate(1)), 4000), PutResult::put);
  {
    Queue limited(std::make_shared<Limited>(session_.join()), queue_.handle());
    Message message;
    expect_error(Errc::limit_reached, [&] { static_cast<void>(limited.get(message)); });
    Delivery delivery;
    expect_error(Errc::limit_reached, [&] { static_cast<void>(limited.receive(delivery)); });
  }
  Message message;
  ASSERT_EQ(theirs_.get(message, now()), GetResult::got);
  EXPECT_EQ(message.text(), std::string(4000, 'm'));
  EXPECT_EQ(message.leases().size(), 1U);
}

// One thread sends, another of the same process receives: the sender must not give away what the receiver has.
TEST_F(QueueLease, threads_of_one_process_send_leases_to_each_other) {
  constexpr int kRounds = 3000;
  Queue same(producer_, queue_.handle());
  std::thread receiver([&] {
    for (int round = 0; round < kRounds; ++round) {
      Message message;
      ASSERT_EQ(same.get(message), GetResult::got);
      ASSERT_EQ(message.leases().size(), 1U);
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    auto leases = one(slab_->allocate(1));
    ASSERT_EQ(queue_.put(std::as_bytes(std::span("x")), leases), PutResult::put);
  }
  receiver.join();
  EXPECT_EQ(used_blocks(), 0U);
}

// The same, step by step: the sender's process receives it between publication and giving away.
TEST_F(QueueLease, a_sender_does_not_give_away_a_lease_that_its_process_has_received) {
  Lease lease = slab_->allocate(1);
  const SentLease words = OpenLedger::to_send(lease, *producer_);
  OpenLedger::begin_sending(lease);
  Lease received = OpenLedger::receive(producer_, words);
  OpenLedger::sent(lease);
  EXPECT_EQ(slab_->ledger().holder_of(words.lease), producer_->self());
  received.release();
  EXPECT_EQ(used_blocks(), 0U);
}

TEST_F(QueueLease, an_invalid_number_of_leases_is_corrupt) {
  ASSERT_EQ(queue_.put("fine"), PutResult::put);
  const OpenObject open = producer_->open(queue_.handle());
  const QueueView view(layout_of(open.data), queue_geometry(open.spec));
  view.ring.slot(0).record.store_head(RecordHead::of(4, Storage::small).with_leases(kMostLeasesInSlot + 1));
  Message message;
  expect_error(Errc::corrupt, [&] { static_cast<void>(theirs_.get(message)); }, {"is corrupt"});
  producer_->close(queue_.handle());
}

TEST_F(QueueLease, a_slab_keeps_its_marks) {
  const auto again = OpenLedger::open(consumer_, slab_->object().handle());
  EXPECT_EQ(marks_of(again->object().spec()), (SlabMarks{7, 8, 9}));
  EXPECT_EQ(slab_bytes(again->object().spec()), kSlabBytes);
  EXPECT_EQ(check_memory_file(again->file()), kSlabBytes);
  EXPECT_EQ(OpenLedger::open(consumer_, slab_->object().handle()), again) << "it is opened once";
  expect_error(Errc::invalid_argument,
               [&] { static_cast<void>(OpenLedger::make(producer_, 100, make_memory_file("too small", 4096))); });
}

}  // namespace
}  // namespace drover::ipc
