// The state of a queue and of messages after a failure, and misuse of handles.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/ipc/queue.hpp"
#include "ipc/ledger/block_pool_layout.hpp"
#include "ipc/object/object_layout.hpp"
#include "ipc/queue/queue_layout.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using namespace std::chrono_literals;
using test::expect_error;
using test::TestSession;

// A participant whose opens can be made to fail.
class Unlucky final : public Membership {
 public:
  explicit Unlucky(std::shared_ptr<Membership> real) : real_(std::move(real)) { set_self(real_->self()); }
  std::function<void()> fail;

  using Membership::create;
  OpenObject create(const ObjectSpec& spec) override { return real_->create(spec); }
  OpenObject open(const ObjectHandle& handle) override {
    const OpenObject open = real_->open(handle);
    if (!fail) return open;
    real_->close(handle);  // like a process that got no descriptor, or could not map it
    fail();
    return open;
  }
  void close(const ObjectHandle& handle) noexcept override { real_->close(handle); }
  void check() const override { real_->check(); }
  [[nodiscard]] Population population() const noexcept override { return real_->population(); }

 private:
  std::shared_ptr<Membership> real_;
};

constexpr std::size_t kLarge = 20'000;  // more than the queue's memory, but small enough for a shared memory file
constexpr QueueOptions kTight{.capacity = 2, .bytes = 4096, .in_flight = 1};

class QueueFailure : public ::testing::Test {
 protected:
  TestSession session;
  std::shared_ptr<Membership> self = session.join();
  std::shared_ptr<Unlucky> unlucky = std::make_shared<Unlucky>(session.join());
  Queue queue{self, kTight};
  Queue theirs{unlucky, queue.handle()};
  std::string large = std::string(kLarge, 'L');
};

TEST_F(QueueFailure, a_message_that_cannot_be_opened_goes_to_others) {
  ASSERT_EQ(queue.put(large), PutResult::put);
  ASSERT_EQ(queue.put("behind"), PutResult::put);
  unlucky->fail = [] { throw Error(Errc::limit_reached, "too many open files"); };
  Message message;
  Delivery delivery;
  expect_error(Errc::limit_reached, [&] { static_cast<void>(theirs.get(message)); }, {"too many open files"});
  EXPECT_TRUE(message.bytes().empty());
  expect_error(Errc::limit_reached, [&] { static_cast<void>(theirs.receive(delivery)); });
  EXPECT_FALSE(delivery.is_open());
  ASSERT_EQ(queue.get(message), GetResult::got);
  EXPECT_EQ(message.text(), large);
  EXPECT_TRUE(message.is_redelivered());
  ASSERT_EQ(queue.get(message), GetResult::got);
  EXPECT_EQ(message.text(), "behind");
  EXPECT_EQ(session.table().size(), 1U) << "the object of the large message is freed";
  for (int i = 0; i < 8; ++i) {  // several laps
    ASSERT_EQ(queue.put("x"), PutResult::put);
    ASSERT_EQ(queue.get(message), GetResult::got);
  }
}

TEST_F(QueueFailure, messages_that_get_many_took_before_an_error_are_not_lost) {
  ASSERT_EQ(queue.put("first"), PutResult::put);
  ASSERT_EQ(queue.put(large), PutResult::put);
  unlucky->fail = [] { throw Error(Errc::limit_reached, "too many open files"); };
  std::vector<Message> messages(5);
  ASSERT_EQ(theirs.get_many(messages, 10), GetResult::got);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_EQ(messages[0].text(), "first");
  expect_error(Errc::limit_reached, [&] { static_cast<void>(theirs.get_many(messages, 10)); });
}

TEST_F(QueueFailure, a_message_whose_object_is_gone_is_an_error_once) {
  ASSERT_EQ(queue.put(large), PutResult::put);
  unlucky->fail = [] { throw Error(Errc::not_found, "gone"); };
  Message message;
  expect_error(Errc::not_found, [&] { static_cast<void>(theirs.get(message)); });
  EXPECT_EQ(queue.try_get(message), GetResult::timed_out);
  EXPECT_EQ(queue.size(), 0U);
}

TEST_F(QueueFailure, lack_of_memory_leaves_the_message_to_others) {
  ASSERT_EQ(queue.put(large), PutResult::put);
  unlucky->fail = [] { throw std::bad_alloc(); };
  Message message;
  EXPECT_THROW(static_cast<void>(theirs.get(message)), std::bad_alloc);
  EXPECT_EQ(queue.get(message), GetResult::got);
}

// Freed memory is cleared for the next object in the same memory file.
TEST_F(QueueFailure, a_large_message_stays_intact_when_its_sender_leaves) {
  {
    const auto sender = session.join();
    Queue sending(sender, queue.handle());
    ASSERT_EQ(sending.put(large), PutResult::put);
    Message message;
    ASSERT_EQ(queue.get(message), GetResult::got);
    session.recover(sender->self());
    const Queue next(self, kTight);
    const Queue another(self, {.capacity = 2, .bytes = 16384, .in_flight = 1});
    EXPECT_EQ(message.text(), large);
  }
  EXPECT_EQ(session.table().size(), 1U);
}

// Both ends are in one process: the put may end after the get.
TEST_F(QueueFailure, large_messages_between_threads_leak_nothing) {
  std::thread consumer([&] {
    for (int i = 0; i < 200; ++i) {
      Message message;
      ASSERT_EQ(queue.get(message), GetResult::got);
    }
  });
  for (int i = 0; i < 200; ++i) ASSERT_EQ(queue.put(large), PutResult::put);
  consumer.join();
  EXPECT_EQ(session.table().size(), 1U);
}

TEST_F(QueueFailure, a_message_is_empty_if_none_arrived_or_after_a_move) {
  const std::string inlined(700, 'i');
  ASSERT_EQ(queue.put(inlined), PutResult::put);
  Message message;
  ASSERT_EQ(queue.get(message), GetResult::got);
  Message moved = std::move(message);
  EXPECT_EQ(moved.text(), inlined);
  EXPECT_TRUE(message.bytes().empty());  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_EQ(queue.try_get(moved), GetResult::timed_out);
  EXPECT_TRUE(moved.text().empty());
}

TEST_F(QueueFailure, a_loan_has_the_reason_why_it_is_empty) {
  EXPECT_EQ(queue.loan(100).result(), PutResult::put);
  const Loan all = queue.loan(4096);
  EXPECT_EQ(queue.loan(4096, Deadline::after({})).result(), PutResult::timed_out);
  queue.close();
  const Loan none = queue.loan(100);
  EXPECT_FALSE(none.is_open());
  EXPECT_EQ(none.result(), PutResult::closed);
}

TEST_F(QueueFailure, a_loan_may_be_published_by_another_handle_of_its_queue) {
  Queue same(self, queue.handle());
  Loan loan = queue.loan(2000);
  EXPECT_EQ(same.publish(loan), PutResult::put);
}

TEST_F(QueueFailure, returned_messages_count_as_waiting) {
  ASSERT_EQ(queue.put("again"), PutResult::put);
  {
    Delivery delivery;
    ASSERT_EQ(queue.receive(delivery), GetResult::got);
    EXPECT_EQ(queue.size(), 0U);
  }
  EXPECT_EQ(queue.size(), 1U);
}

TEST_F(QueueFailure, misuse_is_an_error) {
  Queue moved = std::move(queue);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is what is tested
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(queue.put("x")); }, {"moved"});
  std::vector<Message> into;
  expect_error(Errc::invalid_argument, [&] { static_cast<void>(moved.get_many(into, 0)); });
}

// A producer that holds the pool's lock, as if it were stopped.
TEST_F(QueueFailure, a_deadline_holds_while_a_stopped_participant_has_the_pool_s_lock) {
  const OpenObject open = self->open(queue.handle());
  std::byte* const pool = layout_of(open.data) + queue_offsets(queue_geometry(open.spec)).pool_state;
  CellLockLayout& lock = reinterpret_cast<PoolHeader*>(pool)->lock;
  ASSERT_TRUE(try_lock(lock, unlucky->self(), 1));
  EXPECT_EQ(queue.put(std::string(2000, 'x'), Deadline::after({})), PutResult::timed_out);
  EXPECT_EQ(queue.loan(2000, Deadline::after(5ms)).result(), PutResult::timed_out);
  ASSERT_TRUE(free_own(lock, {.owner = unlucky->self(), .thread = 1}));
  EXPECT_EQ(queue.put(std::string(2000, 'x'), Deadline::after({})), PutResult::put);
}

// Freeing a copied message overwrites it; a child has only a copy of the handle.
TEST_F(QueueFailure, a_forked_child_leaves_its_parent_s_message_intact) {
  const std::string text(3000, 'x');
  ASSERT_EQ(theirs.put(text), PutResult::put);
  std::optional<Message> message(std::in_place);
  ASSERT_EQ(queue.get(*message), GetResult::got);
  const pid_t child = ::fork();
  if (child == 0) {
    message.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(message->text() == text);
}

// A participant declared dead has lost its block, which may have a new owner whose message it must not overwrite.
TEST_F(QueueFailure, a_participant_declared_dead_leaves_the_new_owner_s_message_intact) {
  const std::string text(3000, 'x');
  ASSERT_EQ(theirs.put(std::string(3000, 'o')), PutResult::put);
  std::optional<Message> lost(std::in_place);
  ASSERT_EQ(queue.get(*lost), GetResult::got);
  const OpenObject open = self->open(queue.handle());
  queue_kind.recover(layout_of(open.data), open.spec, self->self());
  ASSERT_EQ(theirs.put(text), PutResult::put);
  ASSERT_TRUE(lost->text() == text) << "the block was not reused, so the test shows nothing";
  lost.reset();
  Message message;
  ASSERT_EQ(theirs.get(message), GetResult::got);
  EXPECT_TRUE(message.text() == text);
}

// A head that changes after its check must not decide how much is copied: it is read once.
TEST_F(QueueFailure, an_invalid_record_is_corrupt) {
  ASSERT_EQ(queue.put("fine"), PutResult::put);
  const OpenObject open = self->open(queue.handle());
  const QueueView view(layout_of(open.data), queue_geometry(open.spec));
  view.ring.slot(0).record.store_head(RecordHead::of(kSmallBytes + 1, Storage::small));
  Message message;
  expect_error(Errc::corrupt, [&] { static_cast<void>(queue.get(message)); }, {"is corrupt"});
  ASSERT_EQ(queue.put("fine"), PutResult::put);
  view.ring.slot(1).record.store_head(RecordHead::of(4, Storage::small, /*is_copied=*/true));
  expect_error(Errc::corrupt, [&] { static_cast<void>(queue.get(message)); }, {"is corrupt"});
  view.ring.head().tail_hint = 1'000'000;
  expect_error(Errc::corrupt, [&] { static_cast<void>(queue.put("lost", Deadline::after({}))); }, {"is corrupt"});
  view.ring.head().head_hint = 1'000'000;
  expect_error(Errc::corrupt, [&] { static_cast<void>(theirs.get(message, Deadline::after({}))); });
}

}  // namespace
}  // namespace drover::ipc
