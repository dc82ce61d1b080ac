// One wait for several sources.
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"
#include "drover/ipc/event.hpp"
#include "drover/ipc/pipe.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/ipc/wait.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using namespace std::chrono_literals;
using test::TestSession;
using Places = std::vector<std::size_t>;

Fd make_eventfd() { return Fd(::eventfd(0, EFD_CLOEXEC)); }

void signal_eventfd(const Fd& fd) {
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(fd.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
}

class WaitTest : public ::testing::Test {
 protected:
  TestSession session;
  std::shared_ptr<Membership> self = session.join();
  Deadline soon = Deadline::after(20ms);
};

TEST_F(WaitTest, the_result_is_empty_if_nothing_is_ready_at_the_deadline) {
  const Queue queue(self);
  const Fd fd = make_eventfd();
  EXPECT_TRUE(wait({queue}, soon).empty());
  EXPECT_TRUE(wait({queue, WaitSource::readable(fd.get())}, soon).empty());
  EXPECT_TRUE(wait({WaitSource::readable(fd.get())}, soon).empty());
}

TEST_F(WaitTest, all_ready_sources_are_returned_in_order) {
  Queue first(self);
  Queue second(self);
  auto [left, right] = Pipe::make(self);
  Event event(self);
  const Fd fd = make_eventfd();
  ASSERT_EQ(second.put("x"), PutResult::put);
  ASSERT_EQ(left.send("y"), PutResult::put);
  const auto readable = WaitSource::readable(fd.get());
  EXPECT_EQ(wait({first, second, right, event, readable}, Deadline::never()), (Places{1, 2}));
  event.set();
  signal_eventfd(fd);
  EXPECT_EQ(wait({first, second, right, event, readable}, Deadline::never()), (Places{1, 2, 3, 4}));
  Message message;
  EXPECT_EQ(second.get(message), GetResult::got) << "wait takes nothing";
}

TEST_F(WaitTest, every_kind_of_source_wakes_sleepers) {
  Queue queue(self);
  auto ends = Pipe::make(self);
  Event event(self);
  const Fd fd = make_eventfd();
  const auto readable = WaitSource::readable(fd.get());
  for (const bool with_fd : {false, true}) {
    for (std::size_t place = 0; place < (with_fd ? 4U : 3U); ++place) {
      std::vector<WaitSource> sources = {queue, ends.second, event};
      if (with_fd) sources.push_back(readable);
      std::thread other([&] {
        if (place == 0) std::ignore = queue.put("x");
        if (place == 1) std::ignore = ends.first.send("x");
        if (place == 2) event.set();
        if (place == 3) signal_eventfd(fd);
      });
      EXPECT_EQ(wait(sources, Deadline::never()), Places{place});
      other.join();
      Message message;
      if (place == 0) std::ignore = queue.get(message);
      if (place == 1) std::ignore = ends.second.receive(message);
      event.clear();
    }
  }
}

TEST_F(WaitTest, the_end_of_a_queue_makes_it_ready) {
  Queue queue(self);
  std::thread closer([&] { queue.close(); });
  EXPECT_EQ(wait({queue}, Deadline::never()), Places{0});
  closer.join();
}

TEST_F(WaitTest, a_wait_does_not_swallow_the_wake_up_of_a_consumer) {
  Queue queue(self);
  for (int round = 0; round < 200; ++round) {
    std::thread getter([&] {
      Message message;
      EXPECT_EQ(queue.get(message), GetResult::got);
    });
    std::thread waiter([&] { std::ignore = wait({queue}, Deadline::after(1ms)); });
    ASSERT_EQ(queue.put("x"), PutResult::put);
    getter.join();
    waiter.join();
  }
}

TEST_F(WaitTest, works_with_more_queues_than_the_kernel_can_watch_at_once) {
  std::vector<Queue> queues;
  std::vector<WaitSource> sources;
  for (int i = 0; i < 200; ++i) queues.emplace_back(self, QueueOptions{.capacity = 2, .bytes = 1024, .in_flight = 0});
  for (const auto& queue : queues) sources.emplace_back(queue);
  std::thread other([&] { EXPECT_EQ(queues.back().put("x"), PutResult::put); });
  EXPECT_EQ(wait(sources, Deadline::never()), Places{199});
  other.join();
}

TEST_F(WaitTest, works_on_an_older_kernel) {
  const test::FaultSeam fault("futex_waitv", ENOSYS);
  Queue first(self);
  Queue second(self);
  std::thread other([&] { EXPECT_EQ(second.put("x"), PutResult::put); });
  EXPECT_EQ(wait({first, second}, Deadline::never()), Places{1});
  other.join();
}

TEST_F(WaitTest, throws_when_the_session_is_over) {
  const Queue queue(self);
  const Fd fd = make_eventfd();
  std::thread ender([&] { session.end(); });
  test::expect_error(Errc::peer_lost, [&] { std::ignore = wait({queue}, Deadline::never()); });
  ender.join();
  test::expect_error(Errc::peer_lost,
                     [&] { std::ignore = wait({queue, WaitSource::readable(fd.get())}, Deadline::never()); });
}

TEST_F(WaitTest, misuse_is_an_error) {
  test::expect_error(Errc::invalid_argument,
                     [] { std::ignore = wait(std::vector<WaitSource>{}, Deadline::never()); });
  test::expect_error(Errc::invalid_argument, [] { std::ignore = WaitSource::readable(-1); });
  const int closed = make_eventfd().get();
  test::expect_error(Errc::invalid_argument,
                     [&] { std::ignore = wait({WaitSource::readable(closed)}, Deadline::never()); });
}

}  // namespace
}  // namespace drover::ipc
