// When a queue reports that no peer is left, and when it must not.
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "drover/ipc/pipe.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/ipc/wait.hpp"
#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using namespace std::chrono_literals;
using test::TestSession;

class QueueAlone : public ::testing::Test {
 protected:
  [[nodiscard]] GetResult look() {
    Message message;
    return queue.get(message, Deadline::after(5ms));
  }

  TestSession session;
  std::shared_ptr<Membership> self = session.join();
  Queue queue{self, {.capacity = 2, .bytes = 1 << 16, .in_flight = 0}};
};

TEST_F(QueueAlone, waits_if_there_was_never_a_peer) {
  EXPECT_EQ(look(), GetResult::timed_out);
  ASSERT_EQ(queue.put("a"), PutResult::put);
  ASSERT_EQ(queue.put("b"), PutResult::put);
  EXPECT_EQ(queue.put("c", Deadline::after(5ms)), PutResult::timed_out);
}

TEST_F(QueueAlone, waits_for_a_participant_that_has_not_opened_it_yet) {
  const auto late = session.join();
  {
    const auto crashes = session.join();
    const Queue theirs(crashes, queue.handle());
    session.recover(crashes->self());
  }
  EXPECT_EQ(look(), GetResult::timed_out);
  {
    Queue theirs(late, queue.handle());
    ASSERT_EQ(theirs.put("late"), PutResult::put);
  }
  EXPECT_EQ(look(), GetResult::got);
  EXPECT_EQ(look(), GetResult::peer_lost) << "the peer has closed it";
}

TEST_F(QueueAlone, orderly_exits_count_too) {
  const auto producer = session.join();
  auto theirs = std::make_unique<Queue>(producer, queue.handle());
  EXPECT_EQ(look(), GetResult::timed_out);
  theirs.reset();
  EXPECT_EQ(look(), GetResult::peer_lost);
  theirs = std::make_unique<Queue>(producer, queue.handle());
  EXPECT_EQ(look(), GetResult::timed_out) << "the peer has opened it again";
}

TEST_F(QueueAlone, a_wait_ends_when_the_last_peer_closes) {
  const auto producer = session.join();
  auto theirs = std::make_unique<Queue>(producer, queue.handle());
  std::thread closer([&] {
    std::this_thread::sleep_for(10ms);
    theirs.reset();
  });
  Message message;
  EXPECT_EQ(queue.get(message), GetResult::peer_lost);
  closer.join();
}

TEST_F(QueueAlone, own_operations_do_not_count_as_a_peer) {
  {
    const Queue theirs(session.join(), queue.handle());
    ASSERT_EQ(queue.put("mine"), PutResult::put);
  }
  session.recover(2);
  EXPECT_EQ(look(), GetResult::got);
  EXPECT_EQ(look(), GetResult::peer_lost) << "only the caller has ever put";
  EXPECT_EQ(wait({WaitSource::readable(queue.fd())}, Deadline::after(30s)).size(), 1U) << "for an event loop too";
}

// The other thread has its own handle.
TEST_F(QueueAlone, waits_although_another_thread_of_the_process_has_put) {
  {
    const Queue theirs(session.join(), queue.handle());
  }
  session.recover(2);
  ASSERT_EQ(look(), GetResult::peer_lost);
  std::thread([&] {
    Queue same(self, queue.handle());
    ASSERT_EQ(same.put("from a thread"), PutResult::put);
    EXPECT_EQ(look(), GetResult::got);
  }).join();
  Queue kept(self, queue.handle());
  EXPECT_EQ(look(), GetResult::timed_out);
}

TEST_F(QueueAlone, a_service_waits_for_future_participants) {
  Queue service(self, {.capacity = 2, .bytes = 1 << 16, .in_flight = 0, .waits_alone = true});
  {
    const auto client = session.join();
    Queue theirs(client, service.handle());
    ASSERT_EQ(theirs.put("request"), PutResult::put);
    session.recover(client->self());
  }
  Message message;
  EXPECT_EQ(service.try_get(message), GetResult::got);
  EXPECT_EQ(service.get(message, Deadline::after(5ms)), GetResult::timed_out);
}

TEST_F(QueueAlone, a_put_without_effect_does_not_count) {
  {
    const Queue theirs(session.join(), queue.handle());
  }
  session.recover(2);
  std::thread([&] {
    ASSERT_EQ(queue.put("a"), PutResult::put);
    ASSERT_EQ(queue.put("b"), PutResult::put);
    EXPECT_EQ(queue.put("c"), PutResult::peer_lost);
  }).join();
  std::thread([&] {
    EXPECT_EQ(look(), GetResult::got);
    EXPECT_EQ(look(), GetResult::got);
  }).join();
}

// Each end is open in two participants.
TEST(PipeAlone, an_end_that_several_processes_have_is_gone_with_the_last_of_them) {
  TestSession session;
  const auto ours = session.join();
  const auto ours_too = session.join();
  const auto theirs = session.join();
  auto ends = Pipe::make(ours);
  Pipe pipe = std::move(ends.first);
  Pipe copy(ours_too, pipe.handle());
  {
    Pipe other(theirs, ends.second.handle());
    const Pipe given_away = std::move(ends.second);
    ASSERT_EQ(other.send("last words"), PutResult::put);
    EXPECT_EQ(copy.send("hello"), PutResult::put);
  }
  Message message;
  EXPECT_EQ(copy.receive(message), GetResult::got);
  EXPECT_EQ(copy.receive(message), GetResult::peer_lost);
  EXPECT_EQ(pipe.receive(message), GetResult::peer_lost);
  EXPECT_EQ(pipe.send("too late"), PutResult::peer_lost);
}

}  // namespace
}  // namespace drover::ipc
