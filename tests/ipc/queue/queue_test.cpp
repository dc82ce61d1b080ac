// Queues within one process: each call.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/ipc/queue.hpp"
#include "ipc/queue/queue_core.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using namespace std::chrono_literals;
using test::TestSession;

std::string text_of_size(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + (i * 7 + bytes) % 26);
  return text;
}

class QueueTest : public ::testing::Test {
 protected:
  TestSession session;
  std::shared_ptr<Membership> self = session.join();
  Deadline at_once = Deadline::after({});
};

class QueueSizes : public QueueTest, public ::testing::WithParamInterface<std::size_t> {};

TEST_P(QueueSizes, a_message_arrives_unchanged) {
  Queue queue(self, {.capacity = 4, .bytes = 1 << 20, .in_flight = 2});
  const std::string text = text_of_size(GetParam());
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(queue.put(text), PutResult::put);
    Message message;
    ASSERT_EQ(queue.get(message), GetResult::got);
    ASSERT_EQ(message.text(), text);
    ASSERT_EQ(message.key(), static_cast<MessageKey>(round));
    ASSERT_FALSE(message.is_redelivered());
  }
}

TEST_P(QueueSizes, a_delivery_shows_the_message_until_it_is_done) {
  Queue queue(self, {.capacity = 2, .bytes = 1 << 20, .in_flight = 1});
  const std::string text = text_of_size(GetParam());
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(queue.put(text), PutResult::put);
    Delivery delivery;
    ASSERT_EQ(queue.receive(delivery), GetResult::got);
    ASSERT_EQ(delivery.text(), text);
    delivery.done();
    ASSERT_FALSE(delivery.is_open());
  }
}

TEST_P(QueueSizes, a_returned_delivery_comes_again_under_the_same_key) {
  Queue queue(self, {.capacity = 2, .bytes = 1 << 20, .in_flight = 1});
  const std::string text = text_of_size(GetParam());
  ASSERT_EQ(queue.put(text), PutResult::put);
  for (int round = 0; round < 5; ++round) {
    Delivery delivery;
    ASSERT_EQ(queue.receive(delivery, at_once), GetResult::got);
    EXPECT_EQ(delivery.text(), text);
    EXPECT_EQ(delivery.key(), 0U);
    EXPECT_EQ(delivery.is_redelivered(), round > 0);
  }  // dropped, so given back
  Message message;
  ASSERT_EQ(queue.get(message, at_once), GetResult::got);
  EXPECT_EQ(message.text(), text);
  EXPECT_TRUE(message.is_redelivered());
  EXPECT_EQ(queue.try_get(message), GetResult::timed_out);
}

TEST_P(QueueSizes, a_loan_is_published_without_a_copy) {
  Queue queue(self, {.capacity = 2, .bytes = 1 << 20, .in_flight = 1});
  if (GetParam() == 0) {
    test::expect_error(Errc::invalid_argument, [&] { std::ignore = queue.loan(0); });
    return;
  }
  const std::string text = text_of_size(GetParam());
  Loan loan = queue.loan(GetParam());
  ASSERT_TRUE(loan.is_open());
  ASSERT_EQ(loan.bytes().size(), GetParam());
  std::memcpy(loan.bytes().data(), text.data(), text.size());
  const std::byte* const where = loan.bytes().data();
  ASSERT_EQ(queue.publish(loan), PutResult::put);
  EXPECT_FALSE(loan.is_open());
  Message message;
  ASSERT_EQ(queue.get(message), GetResult::got);
  EXPECT_EQ(message.text(), text);
  const bool is_block = GetParam() <= std::size_t{1} << 20U;
  EXPECT_TRUE(!is_block || message.bytes().data() == where);
}

// Empty, small, around 48 and 104 bytes, around 1 KiB, blocks, the whole pool, and more than the pool.
INSTANTIATE_TEST_SUITE_P(Queue, QueueSizes,
                         ::testing::Values(0, 1, 8, 47, 48, 49, 103, 104, 105, 1023, 1024, 1025, 4096, 300'000,
                                           1 << 20, (1 << 20) + 1, 5 << 20));

// Cores fetch lines in pairs. Objects that share a memory file are not aligned to pairs.
TEST_F(QueueTest, slots_of_a_queue_with_a_file_of_its_own_are_pairs_of_lines) {
  const Queue queue(self, {.capacity = 3, .bytes = 1 << 20});
  const OpenObject open = self->open(queue.handle());
  const QueueView view(layout_of(open.data), queue_geometry(open.spec));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&view.ring.slot(1)) % sizeof(RingSlot), 0U);
}

TEST_F(QueueTest, is_first_in_first_out_and_bounded_by_count) {
  Queue queue(self, {.capacity = 3, .bytes = 1 << 16, .in_flight = 0});
  for (const char* text : {"one", "two", "three"}) ASSERT_EQ(queue.put(text), PutResult::put);
  EXPECT_EQ(queue.size(), 3U);
  EXPECT_EQ(queue.capacity(), 3U);
  EXPECT_EQ(queue.put("four", at_once), PutResult::timed_out);
  EXPECT_EQ(queue.put("four", Deadline::after(20ms)), PutResult::timed_out);
  Message message;
  for (const char* text : {"one", "two", "three"}) {
    ASSERT_EQ(queue.get(message), GetResult::got);
    EXPECT_EQ(message.text(), text);
  }
  EXPECT_EQ(queue.try_get(message), GetResult::timed_out);
  EXPECT_EQ(queue.get(message, Deadline::after(20ms)), GetResult::timed_out);
}

TEST_F(QueueTest, is_bounded_by_bytes_and_takes_more_when_some_are_freed) {
  Queue queue(self, {.capacity = 100, .bytes = 1 << 20, .in_flight = 0});
  const std::string half = text_of_size(1 << 19);
  ASSERT_EQ(queue.put(half), PutResult::put);
  ASSERT_EQ(queue.put(half), PutResult::put);
  EXPECT_EQ(queue.put(half, at_once), PutResult::timed_out);
  EXPECT_EQ(queue.put("small ones still go", at_once), PutResult::put);
  Message message;
  ASSERT_EQ(queue.get(message), GetResult::got);
  EXPECT_EQ(queue.put(half, at_once), PutResult::timed_out) << "the message is still in the queue's memory";
  message = {};
  EXPECT_EQ(queue.put(half, at_once), PutResult::put);
}

TEST_F(QueueTest, one_message_larger_than_its_memory_can_wait_at_a_time) {
  Queue queue(self, {.capacity = 100, .bytes = 1 << 16, .in_flight = 0});
  const std::string large = text_of_size(1 << 20);
  const std::size_t before = session.table().slab_count();
  ASSERT_EQ(queue.put(large), PutResult::put);
  EXPECT_EQ(session.table().slab_count(), before + 1);
  EXPECT_EQ(queue.put(large, at_once), PutResult::timed_out);
  {
    Message message;
    ASSERT_EQ(queue.get(message), GetResult::got);
    EXPECT_EQ(message.text(), large);
    EXPECT_EQ(queue.put(large, at_once), PutResult::put);
    ASSERT_EQ(queue.get(message), GetResult::got);
  }
  EXPECT_EQ(session.table().slab_count(), before) << "the object of each message is freed";
}

TEST_F(QueueTest, close_drains_the_queue_and_refuses_puts) {
  Queue queue(self);
  ASSERT_EQ(queue.put("last"), PutResult::put);
  Loan loan = queue.loan(5000);
  queue.close();
  EXPECT_TRUE(queue.is_closed());
  EXPECT_EQ(queue.put("late"), PutResult::closed);
  EXPECT_EQ(queue.put(text_of_size(5000)), PutResult::closed);
  EXPECT_EQ(queue.publish(loan), PutResult::closed);
  EXPECT_TRUE(loan.is_open()) << "a loan that was not put is still the caller's";
  EXPECT_FALSE(queue.loan(10).is_open());
  Message message;
  EXPECT_EQ(queue.get(message), GetResult::got);
  EXPECT_EQ(message.text(), "last");
  EXPECT_EQ(queue.get(message), GetResult::closed);
}

TEST_F(QueueTest, close_ends_waits_on_both_sides) {
  Queue empty(self);
  Queue full(self, {.capacity = 1, .bytes = 1 << 16, .in_flight = 0});
  ASSERT_EQ(full.put("x"), PutResult::put);
  std::thread getter([&] {
    Message message;
    EXPECT_EQ(empty.get(message), GetResult::closed);
  });
  std::thread putter([&] { EXPECT_EQ(full.put("y"), PutResult::closed); });
  empty.close();
  full.close();
  getter.join();
  putter.join();
}

TEST_F(QueueTest, put_many_and_get_many_transfer_several) {
  Queue queue(self, {.capacity = 8, .bytes = 1 << 16, .in_flight = 0});
  std::vector<std::string> texts;
  std::vector<std::span<const std::byte>> spans;
  for (int i = 0; i < 10; ++i) texts.push_back(text_of_size(static_cast<std::size_t>(i) * 100));
  for (const auto& text : texts) spans.push_back(std::as_bytes(std::span(text)));
  std::size_t count = 0;
  EXPECT_EQ(queue.put_many(spans, count, at_once), PutResult::timed_out);
  EXPECT_EQ(count, 8U);
  std::vector<Message> messages;
  ASSERT_EQ(queue.get_many(messages, 5), GetResult::got);
  ASSERT_EQ(messages.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(messages[i].text(), texts[i]);
  ASSERT_EQ(queue.get_many(messages, 5), GetResult::got);
  EXPECT_EQ(messages.size(), 3U);
  EXPECT_EQ(queue.get_many(messages, 5, at_once), GetResult::timed_out);
  EXPECT_TRUE(messages.empty());
}

TEST_F(QueueTest, deliveries_in_progress_do_not_fill_the_ring) {
  Queue queue(self, {.capacity = 2, .bytes = 1 << 16, .in_flight = 4});
  std::vector<Delivery> held(4);
  for (auto& delivery : held) {
    ASSERT_EQ(queue.put("work"), PutResult::put);
    ASSERT_EQ(queue.receive(delivery), GetResult::got);
  }
  EXPECT_EQ(queue.put("a", at_once), PutResult::put);
  EXPECT_EQ(queue.put("b", at_once), PutResult::put);
  Delivery beyond;  // the table is full: this one keeps its slot
  ASSERT_EQ(queue.receive(beyond), GetResult::got);
  EXPECT_EQ(queue.put("c", at_once), PutResult::timed_out);
  beyond.done();
  EXPECT_EQ(queue.put("c", at_once), PutResult::put);
  for (auto& delivery : held) delivery.done();
}

TEST_F(QueueTest, messages_and_loans_outlive_the_handle) {
  Message message;
  Loan loan;
  Delivery delivery;
  {
    Queue queue(self);
    ASSERT_EQ(queue.put(text_of_size(5000)), PutResult::put);
    ASSERT_EQ(queue.put(text_of_size(6000)), PutResult::put);
    ASSERT_EQ(queue.get(message), GetResult::got);
    ASSERT_EQ(queue.receive(delivery), GetResult::got);
    loan = queue.loan(5000);
  }
  EXPECT_EQ(message.text(), text_of_size(5000));
  EXPECT_EQ(delivery.text(), text_of_size(6000));
  EXPECT_EQ(session.table().size(), 1U);
  message = {};
  loan = {};
  delivery.done();
  EXPECT_EQ(session.table().size(), 0U);
}

TEST_F(QueueTest, a_loan_that_is_dropped_frees_its_memory) {
  Queue queue(self, {.capacity = 4, .bytes = 1 << 20, .in_flight = 0});
  for (int round = 0; round < 100; ++round) {
    const Loan loan = queue.loan(1 << 20, at_once);
    ASSERT_TRUE(loan.is_open());
  }
  const Loan one = queue.loan(1 << 20, at_once);
  EXPECT_FALSE(queue.loan(1 << 20, at_once).is_open());
}

TEST_F(QueueTest, a_loan_of_another_queue_is_refused) {
  Queue queue(self);
  Queue other(self);
  Loan loan = other.loan(100);
  test::expect_error(Errc::invalid_argument, [&] { std::ignore = queue.publish(loan); });
  Loan none;
  test::expect_error(Errc::invalid_argument, [&] { std::ignore = queue.publish(none); });
}

TEST_F(QueueTest, a_delivery_is_done_once) {
  Queue queue(self);
  ASSERT_EQ(queue.put("x"), PutResult::put);
  Delivery delivery;
  ASSERT_EQ(queue.receive(delivery), GetResult::got);
  delivery.done();
  test::expect_error(Errc::invalid_argument, [&] { delivery.done(); });
  test::expect_error(Errc::invalid_argument, [&] { delivery.give_back(); });
}

TEST_F(QueueTest, impossible_options_are_refused_with_the_limits) {
  test::expect_error(Errc::invalid_argument, [&] { Queue queue(self, {.capacity = 0}); });
  test::expect_error(Errc::invalid_argument, [&] { Queue queue(self, {.capacity = std::uint64_t{1} << 40U}); });
  test::expect_error(Errc::invalid_argument, [&] { Queue queue(self, {.bytes = std::uint64_t{1} << 50U}); });
  test::expect_error(Errc::invalid_argument, [&] { Queue queue(nullptr, QueueOptions{}); });
}

TEST_F(QueueTest, a_handle_of_another_kind_or_of_no_object_is_refused) {
  const Queue queue(self);
  ObjectHandle handle = queue.handle();
  EXPECT_EQ(ObjectHandle::parse(handle.to_string()), handle);
  handle.kind = ObjectKind::lock;
  test::expect_error(Errc::invalid_argument, [&] { Queue other(self, handle); });
  handle = queue.handle();
  ++handle.generation;
  test::expect_error(Errc::not_found, [&] { Queue other(self, handle); });
}

TEST_F(QueueTest, waits_end_with_an_error_when_the_session_is_over) {
  Queue queue(self);
  std::thread ender([&] { session.end(); });
  Message message;
  test::expect_error(Errc::peer_lost, [&] { std::ignore = queue.get(message); });
  ender.join();
}

TEST_F(QueueTest, many_threads_put_and_get_each_message_once) {
  constexpr int kThreads = 4;
  constexpr int kEach = 2000;
  Queue queue(self, {.capacity = 7, .bytes = 1 << 18, .in_flight = 3});
  std::vector<std::atomic<int>> seen(kThreads * kEach);
  std::vector<Queue> opened;  // by all before any of them can finish
  for (int thread = 0; thread < kThreads; ++thread) opened.emplace_back(session.join(), queue.handle());
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < kEach; ++i) {
        std::string text = std::to_string(thread * kEach + i) + " ";
        text.resize(i % 5 == 0 ? 3000 : i % 3 == 0 ? 500 : 12, '.');
        ASSERT_EQ(queue.put(text), PutResult::put);
      }
    });
    threads.emplace_back([&, thread] {
      Queue own = std::move(opened.at(static_cast<std::size_t>(thread)));
      for (int i = 0; i < kEach; ++i) {
        if ((i + thread) % 2 == 0) {
          Message message;
          ASSERT_EQ(own.get(message), GetResult::got);
          ++seen.at(static_cast<std::size_t>(std::stoi(std::string(message.text()))));
        } else {
          Delivery delivery;
          ASSERT_EQ(own.receive(delivery), GetResult::got);
          ++seen.at(static_cast<std::size_t>(std::stoi(std::string(delivery.text()))));
          delivery.done();
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& count : seen) EXPECT_EQ(count, 1);
  EXPECT_EQ(queue.size(), 0U);
}

}  // namespace
}  // namespace drover::ipc
