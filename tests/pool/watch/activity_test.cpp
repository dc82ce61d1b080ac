// The activity slot of a waiting thread: each wait of the layers below sets it before it sleeps.
#include "base/activity.hpp"

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "drover/device/backend.hpp"
#include "drover/device/timeline.hpp"
#include "drover/ipc/barrier.hpp"
#include "drover/ipc/condition.hpp"
#include "drover/ipc/event.hpp"
#include "drover/ipc/lock.hpp"
#include "drover/ipc/pipe.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/ipc/semaphore.hpp"
#include "drover/ipc/wait.hpp"
#include "pool/watch/board.hpp"
#include "pool/watch/board_support.hpp"
#include "support/test_session.hpp"
#include "support/waiting_child.hpp"

namespace drover::pool {
namespace {

using test::comes_true;
using test::TestBoard;
using test::TestSession;

// Runs `wait` in a watched thread until it shows `name`, then ends it with `finish`.
void expect_inside(const std::string& name, const std::function<void()>& wait, const std::function<void()>& finish) {
  const TestBoard board;
  auto& worker = board.add_worker(::getpid(), WorkerState::running);
  std::thread waiter([&] {
    detail::activity_slot = &worker.activity;
    wait();
  });
  EXPECT_TRUE(comes_true([&] { return read_worker(*board, 0).inside == name; })) << read_worker(*board, 0).inside;
  finish();
  waiter.join();
  EXPECT_EQ(read_worker(*board, 0).inside, "");
}

class Activity : public testing::Test {
 protected:
  TestSession session_;
  std::shared_ptr<Membership> self_ = session_.join();
};

TEST_F(Activity, of_a_queue) {
  Queue queue(self_, {.capacity = 1});
  Message message;
  expect_inside(
      "queue.get", [&] { static_cast<void>(queue.get(message)); },
      [&] { EXPECT_EQ(queue.put("x"), PutResult::put); });
  ASSERT_EQ(queue.put("x"), PutResult::put);
  Message taken;
  expect_inside(
      "queue.put", [&] { static_cast<void>(queue.put("y")); }, [&] { EXPECT_EQ(queue.get(taken), GetResult::got); });
}

TEST_F(Activity, of_a_pipe) {
  auto [left, right] = Pipe::make(self_);
  Message message;
  expect_inside(
      "pipe.receive", [&] { static_cast<void>(left.receive(message)); },
      [&] { EXPECT_EQ(right.send("x"), PutResult::put); });
}

TEST_F(Activity, of_a_lock_and_a_semaphore) {
  Lock lock(self_);
  ASSERT_EQ(lock.acquire(), LockResult::acquired);
  expect_inside(
      "lock",
      [&] {
        static_cast<void>(lock.acquire());
        lock.release();
      },
      [&] { lock.release(); });
  Semaphore semaphore(self_, 0);
  expect_inside(
      "semaphore", [&] { static_cast<void>(semaphore.acquire(Deadline::never())); }, [&] { semaphore.release(1); });
}

TEST_F(Activity, of_an_event_a_barrier_and_a_condition) {
  Event event(self_);
  expect_inside("event", [&] { static_cast<void>(event.wait(Deadline::never())); }, [&] { event.set(); });
  Barrier barrier(self_, 2);
  expect_inside(
      "barrier", [&] { static_cast<void>(barrier.wait(Deadline::never())); },
      [&] { static_cast<void>(barrier.wait(Deadline::never())); });
  Condition condition(self_);
  expect_inside(
      "condition",
      [&] {
        static_cast<void>(condition.acquire());
        static_cast<void>(condition.wait());
        condition.release();
      },
      [&] {
        static_cast<void>(condition.acquire());
        condition.notify_all();
        condition.release();
      });
}

TEST_F(Activity, of_a_wait_for_several) {
  Queue queue(self_);
  expect_inside(
      "wait", [&] { static_cast<void>(wait({WaitSource(queue)}, Deadline::never())); },
      [&] { EXPECT_EQ(queue.put("x"), PutResult::put); });
}

TEST_F(Activity, of_devices) {
  const auto memory = Mapping::anonymous(4096);
  auto& word = *new (memory.data()) TimelineWord(0);
  expect_inside(
      "timeline.wait", [&] { static_cast<void>(timeline_wait(word, 1, Deadline::never())); },
      [&] { timeline_store(word, 1); });
  auto& device = backend_of(BackendKind::host).open(0);
  const auto registration = device.register_host(memory.bytes());
  const auto stream = device.create_stream();
  stream->wait(word, 2);
  expect_inside(
      "stream.synchronize", [&] { static_cast<void>(stream->synchronize(Deadline::never())); },
      [&] { timeline_store(word, 2); });
}

}  // namespace
}  // namespace drover::pool
