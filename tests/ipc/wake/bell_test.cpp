// Sleeping and waking: wake-ups that must not be missed.
#include "ipc/wake/bell.hpp"

#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/ipc/wait.hpp"
#include "ipc/queue/queue_core.hpp"
#include "support/build.hpp"
#include "support/expect_error.hpp"
#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using namespace std::chrono_literals;
using test::TestSession;

// Sends this process a signal every few milliseconds, like a profiler.
class ManySignals {
 public:
  ManySignals() {
    struct sigaction action{};
    action.sa_handler = [](int) {};
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGALRM, &action, &before_);
    const itimerval often{.it_interval = {.tv_sec = 0, .tv_usec = 5000}, .it_value = {.tv_sec = 0, .tv_usec = 5000}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~ManySignals() {
    const itimerval never{};
    ::setitimer(ITIMER_REAL, &never, nullptr);
    ::sigaction(SIGALRM, &before_, nullptr);
  }
  ManySignals(const ManySignals&) = delete;
  ManySignals& operator=(const ManySignals&) = delete;

 private:
  struct sigaction before_{};
};

TEST(Bell, the_end_of_the_session_is_noticed_despite_frequent_signals) {
  TestSession session;
  const auto self = session.join();
  Queue queue(self);
  const ManySignals signals;
  std::thread ender([&] {
    sigset_t all{};
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    std::this_thread::sleep_for(20ms);
    session.end();
  });
  Message message;
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(queue.get(message)); });
  ender.join();
}

// The first record is ready after the second. The consumer of the first must wake another for the second, which would
// otherwise wait for a sleeper's timeout.
TEST(Bell, a_record_that_was_ready_out_of_order_does_not_wait_for_a_sleeper) {
  auto best = std::chrono::nanoseconds::max();
  for (int round = 0; round < 8; ++round) {
    TestSession session;
    const auto self = session.join();
    Queue queue(self);
    QueueCore core(SharedObject(self, queue.handle(), ObjectKind::queue));
    RingCursors cursors;
    const Ring& ring = core.view().ring;
    std::atomic<int> got = 0;
    const auto take_one = [&] {
      Message message;
      EXPECT_EQ(queue.get(message), GetResult::got);
      ++got;
      while (got < 2) std::this_thread::yield();  // is busy, and takes nothing else
    };
    std::thread first(take_one);
    std::thread second(take_one);
    std::this_thread::sleep_for(5ms);
    const auto position = ring.claim_for_writing(cursors, self->self());
    ASSERT_EQ(queue.put("second"), PutResult::put);
    std::this_thread::sleep_for(2ms);
    ring.slot(*position).record.store_head(RecordHead::of(0, Storage::small));
    const auto begin = Clock::now();
    ring.publish(*position, self->self());
    wake_in_turn(ring.head().record_ready);
    first.join();
    second.join();
    best = std::min<std::chrono::nanoseconds>(best, Clock::now() - begin);
  }
  EXPECT_LT(best, kLongestSleep / 2) << "a consumer slept although there was a record";
}

// Its copies of a queue and of the bridge's thread are useless, and must not block it.
TEST(Bridge, a_forked_child_can_destroy_its_copies) {
  if (test::kIsSanitized)
    GTEST_SKIP() << "the child allocates, and the sanitizer's allocator does not survive a fork";
  TestSession session;
  const auto self = session.join();
  auto queue = std::make_unique<Queue>(self);
  static_cast<void>(queue->fd());
  std::this_thread::sleep_for(5ms);  // the thread sleeps
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    bool is_refused = false;
    try {
      static_cast<void>(queue->fd());
    } catch (const Error& error) {
      is_refused = error.code() == Errc::forked;
    }
    queue.reset();
    TestSession own;
    const auto me = own.join();
    Queue mine(me);
    const bool is_served =
        mine.put("x") == PutResult::put && !wait({mine, WaitSource::readable(mine.fd())}, Deadline::never()).empty();
    ::_exit(is_refused && is_served ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(queue->put("still there"), PutResult::put);
  EXPECT_EQ(wait({WaitSource::readable(queue->fd())}, Deadline::after(30s)).size(), 1U);
}

TEST(Patience, grows_when_spinning_helped_and_shrinks_when_it_failed) {
  Patience patience;
  const int first = patience.pauses();
  for (int i = 0; i < 20; ++i) patience.failed();
  const int least = patience.pauses();
  EXPECT_LE(least, first);
  for (int i = 0; i < 20; ++i) patience.helped();
  EXPECT_GE(patience.pauses(), first);
  EXPECT_EQ(Patience::none().pauses(), 0);
}

// The time of a wait in which spinning a little longer would have been enough.
constexpr std::chrono::microseconds kBrief{10};

TEST(Patience, grows_again_when_sleeps_are_shorter_than_a_spin) {
  Patience patience(false);
  for (int i = 0; i < 20; ++i) patience.failed();
  const int least = patience.pauses();
  for (int i = 0; i < 3; ++i) patience.slept(kBrief);
  EXPECT_GE(patience.pauses(), 4 * least) << "otherwise it would always sleep, since it never spins long enough";
  patience.slept(kLongestSpin * 2);
  EXPECT_LT(patience.pauses(), 8 * least);
}

TEST(Patience, gives_up_for_a_while_after_the_longest_spin_failed) {
  Patience patience(false);
  for (int i = 0; i < 20; ++i) patience.failed();
  const int least = patience.pauses();
  for (int i = 0; i < 20; ++i) patience.helped();
  const int most = patience.pauses();
  ASSERT_GT(most, least);
  patience.slept(kBrief);
  EXPECT_EQ(patience.pauses(), least) << "the awaited participant had no core to run on";
  for (int i = 0; i < 20; ++i) patience.slept(kBrief);
  EXPECT_EQ(patience.pauses(), least);
  for (int i = 0; i < 12; ++i) patience.slept(kBrief);
  EXPECT_GT(patience.pauses(), least) << "it may have a core by now";
}

TEST(Patience, none_never_learns_to_pause) {
  Patience none = Patience::none();
  for (int i = 0; i < 100; ++i) none.slept(kBrief);
  EXPECT_EQ(none.pauses(), 0);
}

TEST(Patience, spins_long_after_short_sleeps) {
  Patience patience(true);
  for (int i = 0; i < 3; ++i) patience.slept(kLongestSpin / 2);
  EXPECT_FALSE(patience.is_long());
  patience.slept(kLongestSpin / 2);
  EXPECT_TRUE(patience.is_long());
  patience.helped();
  EXPECT_TRUE(patience.is_long());
}

TEST(Patience, spins_long_again_only_after_many_short_sleeps_once_it_failed) {
  Patience patience(true);
  for (int i = 0; i < 4; ++i) patience.slept(kLongestSpin / 2);
  const int before = patience.pauses();
  patience.slept(kLongestSpin * 2);
  EXPECT_FALSE(patience.is_long());
  EXPECT_LE(patience.pauses(), before);
  for (int i = 0; i < 20; ++i) patience.slept(kLongestSpin / 2);
  EXPECT_FALSE(patience.is_long());
  for (int i = 0; i < 20; ++i) patience.slept(kLongestSpin / 2);
  EXPECT_TRUE(patience.is_long());
}

TEST(Patience, does_not_spin_long_unless_allowed) {
  Patience patience(false);
  Patience none = Patience::none();
  for (int i = 0; i < 100; ++i) {
    patience.slept(kLongestSpin / 2);
    none.slept(kLongestSpin / 2);
  }
  EXPECT_FALSE(patience.is_long() || none.is_long());
}

TEST(Patience, a_long_spin_ends_on_success_after_its_time_and_at_the_deadline) {
  Patience patience(true);
  for (int i = 0; i < 4; ++i) patience.slept(kLongestSpin / 2);
  int looks = 0;
  EXPECT_TRUE(spin_for(patience, Clock::now(), Deadline::never(), [&] { return ++looks == 5; }));
  EXPECT_EQ(looks, 5);
  const auto begin = Clock::now();
  EXPECT_FALSE(spin_for(patience, begin, Deadline::never(), [] { return false; }));
  EXPECT_GE(Clock::now() - begin, kLongestSpin);
  for (int i = 0; i < 20; ++i) patience.failed();
  for (int i = 0; i < 40; ++i) patience.slept(kLongestSpin / 2);
  ASSERT_TRUE(patience.is_long());
  looks = 0;  // only the pauses if the time has passed before
  EXPECT_FALSE(spin_for(patience, begin, Deadline::at(begin), [&] { return ++looks < 0; }));
  EXPECT_LE(looks, patience.pauses());
}

}  // namespace
}  // namespace drover::ipc
