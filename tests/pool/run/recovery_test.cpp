// Workers that die, hang or are stopped: the errors of their tasks, and the recovery of the pool.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/pool/pool.hpp"
#include "drover/pool/this_worker.hpp"
#include "pool/run/pool_support.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/temporary_folder.hpp"

namespace drover::pool {
namespace {

using namespace std::chrono_literals;
using test::expect_error;
using test::kPatience;
using test::make_file;

const auto heal_double = task("heal_double", [](int x) { return 2 * x; });
const auto heal_die = task("heal_die", [](int signal) {
  static_cast<void>(::raise(signal));
  return 0;
});
const auto heal_exit = task("heal_exit", [](int status) {
  static_cast<void>(std::fputs("the licence server is away\n", stderr));
  std::_Exit(status);
});
const auto heal_die_once = task("heal_die_once", [](const std::string& marker, int x) {
  if (make_file(marker)) static_cast<void>(::raise(SIGKILL));
  return x;
});
const auto heal_sleep = task("heal_sleep", [](int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return milliseconds;
});
const auto heal_until_interrupted = task("heal_until_interrupted", [] {
  while (true) {
    this_worker().check_interrupt();
    std::this_thread::sleep_for(1ms);
  }
});
const auto heal_touch = task("heal_touch", [](const std::string& path) { static_cast<void>(make_file(path)); });
const auto heal_pid = task("heal_pid", [] { return static_cast<std::int64_t>(::getpid()); });
const auto heal_fault = task("heal_fault", [] { throw Error(Errc::device_fault, "an illegal address", "see docs"); });

const auto heal_sum = task("heal_sum", [](const Tensor& tensor) { return sum(tensor); });
// Returns true only if another one runs at the same time.
const auto heal_meet = task("heal_meet", [](const std::string& mine, const std::string& other) {
  static_cast<void>(make_file(mine));
  const auto deadline = Deadline::after(kPatience);
  while (!std::filesystem::exists(other) && !deadline.has_passed()) std::this_thread::sleep_for(1ms);
  return !deadline.has_passed();
});

// Prevents this process from opening files, and so the memory of new tensors.
const auto heal_close_door = task("heal_close_door", [] {
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(next);
  const rlimit limit{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = static_cast<rlim_t>(next)};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) throw std::runtime_error("setrlimit");
});

struct Counter {
  int value = 0;
};
const auto heal_begin = task("heal_begin", [](int value) { this_worker().emplace<Counter>(Counter{value}); });
const auto heal_count = task("heal_count", [] { return ++this_worker().object<Counter>().value; });
const auto heal_bad_begin = task("heal_bad_begin", [] { throw std::runtime_error("no model at /nowhere"); });

class PoolRecovery : public ::testing::Test {
 protected:
  void expect_alive(Pool& pool) { EXPECT_EQ(pool.submit(heal_double, 21).get(Deadline::after(kPatience)), 42); }

  test::CapturedLog log_;  // of deaths
  test::TemporaryFolder folder_;
  std::string marker(const std::string& name) { return (folder_.path() / name).string(); }
};

TEST_F(PoolRecovery, a_death_fails_only_the_running_task) {
  Pool pool({.workers = 2, .devices = "none"});
  std::vector<Future<int>> before;
  for (int i = 0; i < 50; ++i) before.push_back(pool.submit(heal_double, i));
  const auto dies = pool.submit(heal_die, SIGKILL);
  std::vector<Future<int>> after;
  for (int i = 0; i < 50; ++i) after.push_back(pool.submit(heal_double, i));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(before[static_cast<std::size_t>(i)].get(), 2 * i);
    EXPECT_EQ(after[static_cast<std::size_t>(i)].get(), 2 * i);
  }
  expect_error(Errc::peer_lost, [&] { dies.get(); },
               {"'heal_die'", "worker-", "SIGKILL", "its arguments: (9)", "Retry::times"});
  EXPECT_EQ(pool.statistics().restarts, 1U);
  EXPECT_TRUE(log_.contains("is replaced"));
}

TEST_F(PoolRecovery, errors_name_the_signal_or_status_and_the_last_output) {
  Pool pool({.workers = 1, .devices = "none"}, {.output = WorkerOutput::forwarded()});
  expect_error(Errc::peer_lost, [&] { pool.submit(heal_die, SIGUSR1).get(); }, {"SIGUSR1", "'heal_die'"});
  expect_error(Errc::peer_lost, [&] { pool.submit(heal_exit, 3).get(); },
               {"exited with status 3", "the licence server is away", "'heal_exit'"});
  expect_alive(pool);
}

TEST_F(PoolRecovery, a_task_with_retries_is_retried) {
  Pool pool({.workers = 2, .devices = "none"});
  const TaskOptions again{.retry = Retry::times(1)};
  EXPECT_EQ(pool.submit(again, heal_die_once, marker("a"), 7).get(Deadline::after(kPatience)), 7);
  EXPECT_EQ(pool.statistics().retried, 1U);
  expect_error(Errc::peer_lost, [&] { pool.submit(heal_die_once, marker("b"), 7).get(); }, {"'heal_die_once'"});
}

TEST_F(PoolRecovery, a_task_that_kills_twice_is_quarantined_with_its_arguments) {
  Pool pool({.workers = 1, .devices = "none"});
  expect_error(Errc::task_failed, [&] { pool.submit({.retry = Retry::times(10)}, heal_die, SIGABRT).get(); },
               {"quarantine", "2 workers", "'heal_die'", "arguments: (6)", "SIGABRT"});
  expect_alive(pool);
}

TEST_F(PoolRecovery, a_task_that_no_worker_can_begin_is_given_up) {
  Pool pool({.workers = 1, .devices = "none"}, {.init = heal_close_door});
  const Tensor tensor = zeros(pool.memory(), DType::float64, {1000});
  const auto lost = pool.submit(heal_sum, tensor);
  expect_error(Errc::task_failed, [&] { lost.get(); },
               {"task 1 'heal_sum'", "5 workers ended just before they began it", "worker-0", "open files"});
  EXPECT_EQ(pool.submit(heal_double, 4).get(), 8);
}

TEST_F(PoolRecovery, tasks_that_have_not_begun_go_to_another_worker) {
  Pool pool({.workers = 1, .devices = "none"});
  ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  const auto sleeps = pool.submit(heal_sleep, 200);
  const auto dies = pool.submit(heal_die, SIGKILL);  // waits in the worker behind the first
  const auto waits = pool.submit(heal_double, 1);
  const auto never = pool.submit({.retry = Retry::never()}, heal_double, 2);
  EXPECT_EQ(sleeps.get(), 200);
  EXPECT_THROW(dies.get(), Error);
  EXPECT_EQ(waits.get(Deadline::after(kPatience)), 2);
  static_cast<void>(never.wait(Deadline::after(kPatience)));
  EXPECT_TRUE(never.is_done());  // with a result or an error, because it may not have been sent when the worker died
}

TEST_F(PoolRecovery, an_idle_worker_that_is_killed_is_replaced) {
  Pool pool({.workers = 2, .devices = "none"});
  ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  const auto first = pool.workers()[0].pid;
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  const auto deadline = Deadline::after(kPatience);
  while (pool.workers()[0].starts < 2 && !deadline.has_passed()) std::this_thread::sleep_for(1ms);
  ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  EXPECT_NE(pool.workers()[0].pid, first);
  expect_alive(pool);
}

TEST_F(PoolRecovery, a_task_past_its_timeout_is_interrupted) {
  Pool pool({.workers = 1, .devices = "none"});
  const auto pid = pool.submit(heal_pid).get();
  expect_error(Errc::timed_out,
               [&] { pool.submit({.timeout = 50ms, .grace = kPatience}, heal_until_interrupted).get(); },
               {"'heal_until_interrupted'", "0.05 s", "interrupted"});
  EXPECT_EQ(pool.submit(heal_pid).get(), pid);  // the same worker was not killed
}

TEST_F(PoolRecovery, a_task_that_ignores_the_interrupt_is_killed) {
  Pool pool({.workers = 1, .devices = "none"});
  const auto pid = pool.submit(heal_pid).get();
  expect_error(Errc::timed_out, [&] { pool.submit({.timeout = 20ms, .grace = 20ms}, heal_sleep, 60'000).get(); },
               {"'heal_sleep'", "killed", "TaskOptions::timeout"});
  EXPECT_NE(pool.submit(heal_pid).get(), pid);
}

TEST_F(PoolRecovery, a_cancelled_task_never_runs) {
  Pool pool({.workers = 1, .devices = "none"});
  const auto sleeps = pool.submit(heal_sleep, 300);
  std::vector<Future<void>> touches;
  for (int i = 0; i < 5; ++i) touches.push_back(pool.submit(heal_touch, marker(std::to_string(i))));
  for (const auto& touch : touches) EXPECT_TRUE(touch.cancel());
  expect_error(Errc::cancelled, [&] { touches[0].get(); }, {"'heal_touch'", "cancelled"});
  EXPECT_EQ(sleeps.get(), 300);
  EXPECT_FALSE(sleeps.cancel());
  expect_alive(pool);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(PoolRecovery, cancelling_a_running_task_interrupts_it) {
  Pool pool({.workers = 1, .devices = "none"});
  const auto runs = pool.submit(heal_until_interrupted);
  const auto deadline = Deadline::after(kPatience);
  while (!runs.is_done() && !deadline.has_passed()) {
    static_cast<void>(runs.cancel());
    std::this_thread::sleep_for(1ms);
  }
  expect_error(Errc::cancelled, [&] { runs.get(); }, {"interrupted"});
}

TEST_F(PoolRecovery, tasks_behind_a_long_one_move_to_an_idle_worker) {
  Pool pool({.workers = 2, .devices = "none"});
  ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  pool.map(heal_double, std::vector<int>(1000, 1));  // learns that they are short, and sends them in batches
  std::vector<Future<int>> sleeps;
  sleeps.push_back(pool.submit({.worker = 0}, heal_sleep, 400));
  std::vector<Future<int>> shorts;
  for (int i = 0; i < 200; ++i) shorts.push_back(pool.submit(heal_double, i));
  for (auto& one : shorts) static_cast<void>(one.get());
  EXPECT_FALSE(sleeps[0].is_done());  // none of the others waited for it
  EXPECT_EQ(sleeps[0].get(), 400);
}

TEST_F(PoolRecovery, higher_priorities_go_first) {
  Pool pool({.workers = 1, .devices = "none"});
  const auto sleeps = pool.submit(heal_sleep, 100);
  const auto also = pool.submit(heal_sleep, 1);  // sent ahead to the worker
  std::vector<Future<int>> low;
  for (int i = 0; i < 20; ++i) low.push_back(pool.submit(heal_sleep, 5));
  const auto high = pool.submit({.priority = 1}, heal_sleep, 0);
  EXPECT_EQ(high.get(), 0);
  EXPECT_FALSE(low.back().is_done());
}

TEST_F(PoolRecovery, workers_are_recycled_after_some_tasks) {
  Pool pool({.workers = 1, .devices = "none"}, {.recycle_after = 10});
  std::map<std::int64_t, int> runs;
  for (int i = 0; i < 35; ++i) ++runs[pool.submit(heal_pid).get()];
  EXPECT_EQ(runs.size(), 4U);
  for (const auto& [pid, count] : runs) EXPECT_LE(count, 10) << pid;
  EXPECT_EQ(pool.statistics().restarts, 0U);  // no worker died
  EXPECT_EQ(pool.statistics().failed, 0U);
}

TEST_F(PoolRecovery, no_process_runs_more_tasks_than_recycle_after_though_they_are_sent_ahead_in_batches) {
  for (const bool batching : {true, false}) {
    Pool pool({.workers = 2, .devices = "none"}, {.batching = batching, .recycle_after = 7});
    std::vector<Future<std::int64_t>> pids;
    for (int i = 0; i < 70; ++i) pids.push_back(pool.submit(heal_pid));
    std::map<std::int64_t, int> runs;
    for (auto& pid : pids) ++runs[pid.get()];
    for (const auto& [pid, count] : runs) EXPECT_LE(count, 7) << pid;
    EXPECT_GE(runs.size(), 10U);
  }
}

TEST_F(PoolRecovery, each_worker_has_its_own_state_and_a_new_one_starts_afresh) {
  Pool pool({.workers = 2, .devices = "none"},
            {.init = Call(heal_begin, 100), .teardown = Call(heal_touch, marker("end"))});
  for (auto& future : pool.broadcast(heal_count)) EXPECT_EQ(future.get(), 101);
  for (auto& future : pool.broadcast(heal_count)) EXPECT_EQ(future.get(), 102);
  EXPECT_THROW(pool.submit({.worker = 1}, heal_die, SIGKILL).get(), Error);
  EXPECT_EQ(pool.submit({.worker = 0}, heal_count).get(), 103);
  EXPECT_EQ(pool.submit({.worker = 1}, heal_count).get(), 101);
  EXPECT_EQ(pool.join(Deadline::after(kPatience)), WaitResult::done);
  EXPECT_TRUE(std::filesystem::exists(marker("end")));
}

TEST_F(PoolRecovery, workers_that_cannot_start_are_given_up_with_the_reason) {
  Pool pool({.workers = 2, .devices = "none"}, {.init = heal_bad_begin});
  const auto task = pool.submit(heal_double, 1);
  expect_error(Errc::peer_lost, [&] { static_cast<void>(pool.wait_ready(Deadline::after(kPatience))); },
               {"worker-", "3 times", "no model at /nowhere"});
  expect_error(Errc::peer_lost, [&] { task.get(); }, {"no model at /nowhere"});
  expect_error(Errc::peer_lost, [&] { pool.submit(heal_double, 1); }, {"no model at /nowhere"});
}

TEST_F(PoolRecovery, a_single_worker_that_cannot_start_is_reported) {
  Pool pool({.workers = 1, .devices = "none"}, {.init = heal_bad_begin});
  expect_error(Errc::peer_lost, [&] { static_cast<void>(pool.wait_ready(Deadline::after(kPatience))); },
               {"no model at /nowhere"});
}

TEST_F(PoolRecovery, workers_that_the_system_refuses_are_given_up_with_the_code_of_the_cause) {
  struct Refusal {
    const char* call;
    int error;
    Errc code;
  };
  const Session session = Session::start();
  for (const Refusal& refusal :
       {Refusal{"clone", ENOSYS, Errc::unsupported}, Refusal{"clone", EAGAIN, Errc::limit_reached},
        Refusal{"pipe2", EMFILE, Errc::limit_reached}}) {
    SCOPED_TRACE(to_string(refusal.code));
    const test::FaultSeam refuse(refusal.call, refusal.error);
    Pool pool(session, {.workers = 2, .devices = "none"});
    const auto task = pool.submit(heal_double, 1);
    expect_error(refusal.code, [&] { static_cast<void>(pool.wait_ready(Deadline::after(kPatience))); });
    expect_error(refusal.code, [&] { task.get(Deadline::after(kPatience)); });
    expect_error(refusal.code, [&] { pool.submit(heal_double, 1); });
  }
}

TEST_F(PoolRecovery, worker_whose_inbox_cannot_be_made_is_given_up_and_the_others_go_on) {
  Pool pool({.workers = 1, .devices = "none"});
  ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  {
    const test::FaultSeam refuse("mmap", EMFILE);
    pool.resize(2);
    EXPECT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done) << "the second is no longer wanted";
    EXPECT_GT(refuse.strikes(), 1);
  }
  EXPECT_EQ(pool.numbers(), std::vector<std::size_t>{0});
  expect_alive(pool);
}

TEST_F(PoolRecovery, pool_whose_last_worker_gets_no_inbox_fails_with_the_code_of_the_cause) {
  Pool pool({.workers = 1, .devices = "none"});
  ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  const test::FaultSeam refuse("mmap", EMFILE);
  EXPECT_THROW(pool.submit(heal_die, SIGKILL).get(), Error);
  const auto task = pool.submit(heal_double, 1);
  expect_error(Errc::limit_reached, [&] { task.get(Deadline::after(kPatience)); }, {"worker-0", "5 times"});
}

TEST_F(PoolRecovery, pool_that_gets_no_thread_throws_limit_reached_and_leaves_nothing) {
  const Session session = Session::start();
  int failures = 0;
  for (int nth = 1; failures == nth - 1 && nth < 20; ++nth) {
    const test::FaultSeam refuse("pthread_create", EAGAIN, {.nth = nth, .times = 1});
    try {
      Pool pool(session, {.workers = 1, .devices = "none"});
      if (refuse.strikes() > 0) static_cast<void>(pool.wait_ready(Deadline::after(kPatience)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::limit_reached) << error.what();
    }
    failures += refuse.strikes();
  }
  EXPECT_GE(failures, 2) << "the threads for results and for processes";
}

TEST_F(PoolRecovery, longest_limits_mean_never) {
  Pool pool({.workers = 1, .devices = "none"}, {.task = {.timeout = std::chrono::hours::max(), .grace = 0s},
                                                .idle_limit = std::chrono::hours::max(),
                                                .start_limit = std::chrono::hours::max(),
                                                .stall_report_after = std::chrono::hours::max()});
  EXPECT_EQ(pool.submit(heal_sleep, 100).get(), 100);
  EXPECT_EQ(pool.submit({.timeout = std::chrono::seconds::max()}, heal_sleep, 100).get(), 100);
  EXPECT_EQ(pool.submit({.timeout = std::chrono::duration<double>(1e300)}, heal_sleep, 100).get(), 100);
  EXPECT_EQ(pool.statistics().restarts, 0U);
}

TEST_F(PoolRecovery, tasks_of_a_worker_that_was_removed_fail) {
  Pool pool({.workers = 2, .devices = "none"});
  const auto sleeps = pool.submit({.worker = 1}, heal_sleep, 200);
  std::vector<Future<int>> waits;
  for (int i = 0; i < 10; ++i) waits.push_back(pool.submit({.worker = 1}, heal_double, i));
  pool.resize(1);
  expect_error(Errc::peer_lost, [&] { waits.back().get(Deadline::after(kPatience)); }, {"no longer has"});
  expect_error(Errc::invalid_argument, [&] { pool.submit({.worker = 1}, heal_double, 1); },
               {"no longer has", "resize"});
  EXPECT_EQ(pool.numbers(), std::vector<std::size_t>{0});
}

TEST_F(PoolRecovery, a_callback_may_end_the_pool) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  auto pool = std::make_unique<Pool>(WorkerPlanOptions{.workers = 1, .devices = "none"});
  const pid_t keeper = pool->session().keeper_pid();
  std::atomic<bool> is_gone = false;
  const auto first = pool->submit(heal_double, 1);
  first.on_done([&](const Future<int>&) {
    expect_error(Errc::invalid_argument, [&] { static_cast<void>(pool->join()); }, {"wait forever"});
    pool.reset();
    is_gone = true;
  });
  const auto deadline = Deadline::after(kPatience);
  while (!is_gone && !deadline.has_passed()) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(is_gone);
  // Its processes and threads end a moment later.
  while ((::kill(keeper, 0) == 0 || open_files() > before) && !deadline.has_passed())
    std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(50ms);
}

TEST_F(PoolRecovery, finished_tasks_release_their_tensors) {
  Pool pool({.workers = 1, .devices = "none"});
  const auto before = pool.memory().claimed(Place::cpu());
  std::vector<Future<double>> futures;
  {
    const Tensor tensor = zeros(pool.memory(), DType::float64, {1000});
    futures.push_back(pool.submit(heal_sum, tensor));
    EXPECT_EQ(futures.back().get(), 0.0);
  }
  EXPECT_EQ(pool.memory().claimed(Place::cpu()), before);
}

TEST_F(PoolRecovery, the_first_tasks_go_to_different_idle_workers) {
  Pool pool({.workers = 2, .devices = "none"});
  ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  const auto one = pool.submit(heal_meet, marker("a"), marker("b"));
  const auto other = pool.submit(heal_meet, marker("b"), marker("a"));
  EXPECT_TRUE(one.get(Deadline::after(kPatience)));
  EXPECT_TRUE(other.get(Deadline::after(kPatience)));
}

TEST_F(PoolRecovery, negative_times_are_refused) {
  Pool pool({.workers = 1, .devices = "none"});
  expect_error(Errc::invalid_argument, [&] { pool.submit({.timeout = -1s}, heal_double, 1); }, {"negative"});
}

TEST_F(PoolRecovery, a_pool_grows_and_shrinks) {
  Pool pool({.workers = 1, .devices = "none"});
  EXPECT_EQ(pool.submit(heal_double, 1).get(), 2);
  pool.resize(3);
  EXPECT_EQ(pool.size(), 3U);
  ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  EXPECT_EQ(pool.broadcast(heal_pid).size(), 3U);
  pool.resize(1);
  EXPECT_EQ(pool.size(), 1U);
  expect_alive(pool);
  expect_error(Errc::invalid_argument, [&] { pool.resize(0); }, {"no workers", "Pool::end"});
  EXPECT_EQ(pool.statistics().restarts, 0U);
}

TEST_F(PoolRecovery, workers_of_an_idle_pool_end_and_come_back) {
  Pool pool({.workers = 1, .devices = "none"}, {.idle_limit = 50ms});
  const auto first = pool.submit(heal_pid).get();
  const auto deadline = Deadline::after(kPatience);
  while (::kill(static_cast<pid_t>(first), 0) == 0 && !deadline.has_passed()) std::this_thread::sleep_for(1ms);
  EXPECT_NE(pool.submit(heal_pid).get(Deadline::after(kPatience)), first);
  EXPECT_EQ(pool.statistics().restarts, 0U);
}

TEST_F(PoolRecovery, negative_limits_mean_no_limit) {
  Pool pool({.workers = 1, .devices = "none"}, {.idle_limit = -1ms, .start_limit = -1s});
  ASSERT_EQ(pool.wait_ready(Deadline::after(kPatience)), WaitResult::done);
  const auto first = pool.submit(heal_pid).get(Deadline::after(kPatience));
  std::this_thread::sleep_for(100ms);  // several checks of the limits
  EXPECT_EQ(pool.submit(heal_pid).get(Deadline::after(kPatience)), first) << "the idle worker was stopped";
  EXPECT_EQ(pool.statistics().restarts, 0U);
}

TEST_F(PoolRecovery, a_lost_device_ends_the_worker_after_its_error_is_told) {
  Pool pool({.workers = 1, .devices = "none"});
  const auto before = pool.submit(heal_pid).get();
  expect_error(Errc::device_fault, [&] { pool.submit(heal_fault).get(); }, {"an illegal address", "'heal_fault'"});
  EXPECT_NE(pool.submit(heal_pid).get(Deadline::after(kPatience)), before);
}

TEST_F(PoolRecovery, the_keeper_s_death_ends_all_waits) {
  Pool pool({.workers = 1, .devices = "none"});
  const auto runs = pool.submit(heal_sleep, 60'000);
  static_cast<void>(pool.wait_ready(Deadline::after(kPatience)));
  ASSERT_EQ(::kill(pool.session().keeper_pid(), SIGKILL), 0);
  expect_error(Errc::peer_lost, [&] { runs.get(Deadline::after(kPatience)); }, {"keeper"});
  // It may not be known yet when it is submitted.
  expect_error(Errc::peer_lost, [&] { pool.submit(heal_double, 1).get(Deadline::after(kPatience)); }, {"keeper"});
}

TEST_F(PoolRecovery, ending_cancels_what_has_not_begun_and_kills_what_does_not_end) {
  Pool pool({.workers = 1, .devices = "none"});
  static_cast<void>(pool.wait_ready(Deadline::after(kPatience)));
  const auto runs = pool.submit(heal_sleep, 60'000);
  std::vector<Future<int>> waits;
  for (int i = 0; i < 10; ++i) waits.push_back(pool.submit(heal_double, i));
  std::this_thread::sleep_for(50ms);
  pool.end(50ms);
  expect_error(Errc::cancelled, [&] { waits[9].get(); }, {"'heal_double'", "ended"});
  EXPECT_THROW(runs.get(), Error);
}

}  // namespace
}  // namespace drover::pool
