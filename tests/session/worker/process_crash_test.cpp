// The crash table of docs/processes.md, row by row.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/ipc/event.hpp"
#include "drover/process/child_process.hpp"
#include "drover/session/process.hpp"
#include "drover/session/worker.hpp"
#include "process/inspect/process_table.hpp"
#include "session/client/session_helpers.hpp"
#include "support/build.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"
#include "support/redirected.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace drover::session {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using test::is_running;
using test::PeerGroup;
using test::PeerMode;
using test::PeerOutcome;
using test::Redirected;

constexpr const char* kBeforeMain = "DROVER_TEST_BEFORE_MAIN";

Deadline soon() { return Deadline::after(60s); }

// A worker that fails or is stopped before main.
struct BeforeMain {
  // Has left the worker's terminal session, and shows no environment.
  [[noreturn]] static void leave_an_heir() {
    std::array<int, 2> ready{};
    const std::string path = std::getenv("DROVER_TEST_HEIR");
    if (::pipe(ready.data()) != 0) ::_exit(5);
    if (::fork() == 0) {
      ::setsid();
      for (char** entry = environ; *entry != nullptr; ++entry) std::memset(*entry, 0, std::strlen(*entry));
      std::ofstream(path) << ::getpid();
      static_cast<void>(::write(ready[1], "x", 1) < 0);
      for (;;) ::pause();
    }
    char byte = 0;
    static_cast<void>(::read(ready[0], &byte, 1) < 0);
    ::_exit(4);
  }
  BeforeMain() {
    const char* const what = std::getenv(kBeforeMain);
    if (what == nullptr) return;
    if (std::string(what) == "exit") {
      fmt::print(stderr, "no such library\nsecond line\n");
      ::_exit(3);
    }
    if (std::string(what) == "heir") leave_an_heir();
    for (;;) ::pause();
  }
};
const BeforeMain before_main;

// A keeper that dies at its nth look for a process that it kills, from when a file exists.
constexpr const char* kKeeperDies = "DROVER_TEST_KEEPER_DIES";
struct KeeperDeath {
  static int strike(const char* call) noexcept {
    static int left = std::atoi(std::getenv("DROVER_TEST_KEEPER_DIES_AT"));
    const bool counts = std::strcmp(call, "pidfd_open") == 0 && ::access(std::getenv(kKeeperDies), F_OK) == 0;
    if (counts && --left == 0) ::kill(::getpid(), SIGKILL);
    return 0;
  }
  KeeperDeath() {
    std::ifstream arguments("/proc/self/cmdline");
    std::string text;
    while (std::getline(arguments, text, '\0')) {
      if (std::getenv(kKeeperDies) != nullptr && text == "--drover-role=keeper") sys::set_fault(strike);
    }
  }
};
const KeeperDeath keeper_death;

void sleep_for_ever() {
  for (;;) ::pause();
}

// A child, an orphan in the same terminal session, and a daemon that has left it; their ids go to standard output.
std::string start_family() {
  SpawnOptions options{.executable = "/bin/sh",
                       .arguments = {"-c",
                                     "sleep 1000 & echo $!; (sleep 1000 & echo $!); "
                                     "setsid sh -c 'sleep 1000 & echo $!'; exec sleep 1000"}};
  options.streams.output = StandardStream::pipe();
  static auto root = ChildProcess::spawn(options);
  std::string text = fmt::format("{}\n", root.pid());
  static const Fd output = root.take_pipe(STDOUT_FILENO);
  for (char byte = 0; std::count(text.begin(), text.end(), '\n') < 4 && ::read(output.get(), &byte, 1) == 1;) {
    text.push_back(byte);
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

const auto throw_up = entry("crash.throw", [](Worker& worker) {
  if (worker.arguments().empty()) throw std::runtime_error("no such model\nin two lines");
  throw 42;  // NOLINT(hicpp-exception-baseclass)
});
const auto abort_now = entry("crash.abort", [](Worker&) { std::abort(); });
const auto sleep_on = entry("crash.sleep", [](Worker&) { sleep_for_ever(); });
const auto ignore_term = entry("crash.ignore_term", [](Worker&) {
  static_cast<void>(std::signal(SIGTERM, SIG_IGN));
  fmt::print("{}\n", start_family());
  static_cast<void>(std::fflush(stdout));
  sleep_for_ever();
});
const auto with_family = entry("crash.family", [](Worker&) {
  fmt::print("{}\n", start_family());
  static_cast<void>(std::fflush(stdout));
  sleep_for_ever();
});

// As careless code does that thinks every descriptor is its own.
const auto close_everything = entry("crash.careless", [](Worker&) {
  fmt::print("{}\n", start_family());
  static_cast<void>(std::fflush(stdout));
  ::close_range(3, ~0U, 0);
  sleep_for_ever();
});

std::vector<pid_t> pids_in(const std::string& text) {
  std::istringstream words(text);
  std::vector<pid_t> pids;
  for (std::string word; words >> word;) {
    if (word.find_first_not_of("0123456789") == std::string::npos)
      pids.push_back(static_cast<pid_t>(std::stol(word)));
  }
  return pids;
}

int running(const std::vector<pid_t>& pids) {
  return static_cast<int>(std::count_if(pids.begin(), pids.end(), is_running));
}

class ProcessCrash : public ::testing::Test {
 protected:
  // A worker whose descendants have sent their ids.
  Process start_with_family(const Entry& what) {
    const Redirected output(STDOUT_FILENO);
    auto worker = Process::start(session_, {.entry = what, .name = "w"});
    family_ = pids_in(output.read_line());
    EXPECT_EQ(running(family_), 4);
    return worker;
  }

  Session session_ = Session::start();
  std::vector<pid_t> family_;
};

TEST_F(ProcessCrash, exception_of_an_entry_is_reported_with_type_and_text) {
  Redirected error(STDERR_FILENO);
  auto worker = Process::start(session_, {.entry = throw_up, .name = "w"});
  EXPECT_EQ(worker.wait(soon()), ExitStatus::exited(70));
  EXPECT_EQ(worker.failure(), "std::runtime_error: no such model\nin two lines");
  EXPECT_NE(worker.describe().find("exited with status 70: std::runtime_error: no such model"), std::string::npos);
  EXPECT_EQ(error.read_rest(), "[w] std::runtime_error: no such model\n[w] in two lines\n");
}

TEST_F(ProcessCrash, other_thrown_objects_are_reported_by_type) {
  const Redirected error(STDERR_FILENO);
  auto worker = Process::start(session_, {.entry = throw_up, .arguments = {"int"}});
  EXPECT_EQ(worker.wait(soon()), ExitStatus::exited(70));
  EXPECT_EQ(worker.failure(), "int");
}

TEST_F(ProcessCrash, own_signal_is_reported) {
  auto worker = Process::start(session_, {.entry = abort_now});
  EXPECT_EQ(worker.wait(soon()), ExitStatus::killed(SIGABRT));
  EXPECT_EQ(worker.failure(), "");
}

TEST_F(ProcessCrash, killed_worker_leaves_no_process) {
  auto worker = start_with_family(with_family);
  ASSERT_EQ(::kill(worker.pid(), SIGKILL), 0);
  const auto status = worker.wait(soon());
  EXPECT_EQ(status, ExitStatus::killed(SIGKILL));
  EXPECT_NE(status->reason(), KillReason::parent);
  EXPECT_EQ(running(family_), 0);
}

TEST_F(ProcessCrash, wait_for_an_event_ends_with_an_error_when_the_last_worker_is_killed) {
  if (test::kIsThreadSanitized) GTEST_SKIP() << "the sanitizer has a thread of its own";
  Event event(session_);
  auto worker = Process::start(session_, {.entry = sleep_on});
  ASSERT_EQ(worker.wait_ready(soon()), WaitResult::done);
  worker.kill(SIGKILL);
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(event.wait()); }, {"would never end"});
  EXPECT_EQ(worker.wait(soon()), ExitStatus::killed(SIGKILL));
}

// Even if nothing waits for the worker.
TEST_F(ProcessCrash, orphans_are_killed_without_a_call) {
  auto worker = start_with_family(with_family);
  ASSERT_EQ(::kill(worker.pid(), SIGKILL), 0);
  EXPECT_TRUE(eventually([&] { return running(family_) == 0; }));
}

TEST_F(ProcessCrash, worker_that_ends_before_it_is_ready_is_an_error_with_its_last_words) {
  const Redirected error(STDERR_FILENO);
  auto worker = Process::start(session_, {.entry = sleep_on, .name = "w", .environment = {{kBeforeMain, "exit"}}});
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(worker.wait_ready(soon())); },
                     {fmt::format("w (process {}) exited with status 3", worker.pid()), "before it joined",
                      "no such library\n  second line"});
}

TEST_F(ProcessCrash, worker_killed_before_it_is_ready_is_an_error) {
  auto worker = Process::start(session_, {.entry = sleep_on, .name = "w", .environment = {{kBeforeMain, "hang"}}});
  ASSERT_EQ(::kill(worker.pid(), SIGKILL), 0);
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(worker.wait_ready(soon())); },
                     {"killed by SIGKILL", "before it joined"});
}

TEST_F(ProcessCrash, worker_ended_by_sigterm_leaves_no_process) {
  auto worker = start_with_family(with_family);
  EXPECT_EQ(worker.end(60s), ExitStatus::killed(SIGTERM));
  EXPECT_EQ(running(family_), 0);
}

TEST_F(ProcessCrash, end_kills_what_ignores_it_and_everything_below) {
  auto worker = start_with_family(ignore_term);
  const auto status = worker.end(50ms);
  EXPECT_EQ(status, ExitStatus::killed(SIGKILL));
  EXPECT_EQ(status.reason(), KillReason::parent);
  EXPECT_EQ(running(family_), 0);
}

TEST_F(ProcessCrash, destruction_kills_everything_below) {
  {
    const auto worker = start_with_family(with_family);
  }
  EXPECT_EQ(running(family_), 0);
}

TEST_F(ProcessCrash, stopped_worker_can_be_ended) {
  auto worker = start_with_family(with_family);
  worker.kill(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return process::read_process(worker.pid())->stands_still(); }));
  EXPECT_EQ(worker.end(10ms), ExitStatus::killed(SIGKILL));
  EXPECT_EQ(running(family_), 0);
}

TEST_F(ProcessCrash, worker_ends_with_the_keeper_and_reports_why) {
  const Redirected error(STDERR_FILENO);
  auto worker = start_with_family(with_family);
  const auto keeper = session_.keeper_pid();
  ASSERT_EQ(::kill(keeper, SIGKILL), 0);
  EXPECT_EQ(worker.wait(soon()), ExitStatus::killed(SIGKILL));
  EXPECT_EQ(worker.failure(),
            fmt::format("a worker ends because the keeper of its session, process {}, has ended", keeper));
  EXPECT_EQ(running(family_), 0);
}

TEST_F(ProcessCrash, worker_ends_with_the_session) {
  const Redirected error(STDERR_FILENO);
  auto worker = start_with_family(with_family);
  session_.end();
  EXPECT_EQ(worker.wait(soon()), ExitStatus::killed(SIGKILL));
  EXPECT_TRUE(eventually([&] { return running(family_) == 0; }));
}

// Two workers with four processes below each: it stops them one after the other, then kills them.
TEST(KeeperCrash, keeper_killed_at_any_step_of_ending_a_session_leaves_no_process) {
  for (int step = 1; step <= 16 && !HasFailure(); ++step) {
    SCOPED_TRACE(step);
    const test::TemporaryFolder folder;
    const std::string path = folder.path() / "dies";
    const test::ScopedEnvironment where(kKeeperDies, path);
    const test::ScopedEnvironment when("DROVER_TEST_KEEPER_DIES_AT", std::to_string(step));
    const Redirected error(STDERR_FILENO);
    Redirected output(STDOUT_FILENO);
    auto session = Session::start();
    auto workers = start_all(session, {{.entry = with_family}, {.entry = with_family}});
    auto pids = pids_in(output.read_line() + output.read_line());
    output.restore();
    for (const auto& worker : workers) pids.push_back(worker.pid());
    EXPECT_EQ(running(pids), 10);
    std::ofstream(path) << "now";
    session.end();
    EXPECT_TRUE(eventually([&] { return running(pids) == 0; })) << running(pids) << " are left";
    for (const pid_t pid : pids) ::kill(pid, SIGCONT);
  }
}

TEST_F(ProcessCrash, stopped_worker_ends_with_the_keeper) {
  const Redirected error(STDERR_FILENO);
  auto worker = start_with_family(with_family);
  ASSERT_EQ(worker.wait_ready(soon()), WaitResult::done);
  worker.kill(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return process::read_process(worker.pid())->stands_still(); }));
  ASSERT_EQ(::kill(session_.keeper_pid(), SIGKILL), 0);
  EXPECT_EQ(worker.wait(soon()), ExitStatus::killed(SIGKILL));
  EXPECT_EQ(running(family_), 0);
}

TEST_F(ProcessCrash, worker_survives_the_thread_that_started_it) {
  std::vector<Process> workers;
  std::thread([&] { workers.push_back(Process::start(session_, {.entry = sleep_on})); }).join();
  EXPECT_EQ(workers.front().wait_ready(soon()), WaitResult::done);
  EXPECT_EQ(workers.front().wait(Deadline::after(50ms)), std::nullopt);
}

// An application in its own process: sends the ids of keeper, workers and their descendants.
DROVER_PEER_BODY(application_with_workers) {
  const bool is_held = peer.parameter("workers") == "held";
  const bool is_careless = peer.parameter("workers") == "careless";
  auto session = Session::start();
  std::string text = fmt::format("{} ", session.keeper_pid());
  std::vector<Process> workers;
  {
    const Redirected output(STDOUT_FILENO);
    for (int i = 0; i < 2; ++i) {
      ProcessOptions options{.entry = is_careless ? close_everything : with_family, .name = fmt::format("w{}", i)};
      if (is_held) options.environment = {{kBeforeMain, "hang"}};
      workers.push_back(Process::start(session, options));
      text += fmt::format("{} ", workers.back().pid());
      if (is_held) continue;
      EXPECT_EQ(workers.back().wait_ready(soon()), WaitResult::done);
      text += output.read_line() + " ";
    }
  }
  if (peer.parameter("workers") == "stopped") workers.front().kill(SIGSTOP);
  peer.channel().send(text);
  peer.reach("started");
  sleep_for_ever();
}

class ApplicationCrash : public ::testing::Test {
 protected:
  // The ids of keeper, workers and families.
  std::vector<pid_t> start(const std::string& workers) {
    group_ = std::make_unique<PeerGroup>("application_with_workers",
                                         test::PeerShape{.mode = PeerMode::processes, .size = 1},
                                         std::map<std::string, std::string>{{"workers", workers}});
    group_->hold_at(0, "started");
    group_->start();
    const auto pids = pids_in(group_->receive_text(0));
    group_->wait_until_held(0, "started");
    EXPECT_EQ(running(pids), static_cast<int>(pids.size()));
    return pids;
  }
  void expect_all_gone(const std::vector<pid_t>& pids) {
    EXPECT_EQ(group_->wait(soon()).at(0).kind, PeerOutcome::Kind::abandoned);
    EXPECT_TRUE(eventually([&] { return running(pids) == 0; })) << running(pids) << " of " << pids.size();
  }

  std::unique_ptr<PeerGroup> group_;
};

TEST_F(ApplicationCrash, killed_application_takes_workers_and_all_below_along) {
  const auto pids = start("running");
  ASSERT_EQ(pids.size(), 1 + 2 * 5U);
  group_->kill(0);
  expect_all_gone(pids);
}

TEST_F(ApplicationCrash, application_and_keeper_killed_together_leave_no_process) {
  const auto pids = start("running");
  ASSERT_EQ(::kill(pids.front(), SIGSTOP), 0);  // so that it can do nothing in between
  group_->kill(0);
  ASSERT_EQ(::kill(pids.front(), SIGKILL), 0);
  expect_all_gone(pids);
}

// The keeper notices the death of the application and stops workers in order to kill them.
TEST_F(ApplicationCrash, keeper_killed_shortly_after_the_application_leaves_no_process) {
  for (int round = 0; round < 12 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const auto pids = start("running");
    group_->kill(0);
    std::this_thread::sleep_for(round * 500us);
    ::kill(pids.front(), SIGKILL);  // unless it has ended
    expect_all_gone(pids);
  }
}

// Not even with a keeper that does nothing.
TEST_F(ApplicationCrash, workers_end_by_themselves_when_the_application_does) {
  const auto pids = start("running");
  ASSERT_EQ(::kill(pids.front(), SIGSTOP), 0);
  group_->kill(0);
  const std::vector<pid_t> workers(pids.begin() + 1, pids.end());
  expect_all_gone(workers);
  ASSERT_EQ(::kill(pids.front(), SIGKILL), 0);
}

TEST_F(ApplicationCrash, worker_that_has_not_reached_init_ends_with_the_application) {
  const auto pids = start("held");
  ASSERT_EQ(pids.size(), 3U);
  ASSERT_EQ(::kill(pids.front(), SIGSTOP), 0);
  group_->kill(0);
  const std::vector<pid_t> workers(pids.begin() + 1, pids.end());
  expect_all_gone(workers);
  ASSERT_EQ(::kill(pids.front(), SIGKILL), 0);
}

TEST_F(ApplicationCrash, worker_that_closed_all_descriptors_ends_with_the_application) {
  const auto pids = start("careless");
  ASSERT_EQ(::kill(pids.front(), SIGSTOP), 0);
  group_->kill(0);
  const std::vector<pid_t> workers(pids.begin() + 1, pids.end());
  expect_all_gone(workers);
  ASSERT_EQ(::kill(pids.front(), SIGKILL), 0);
}

TEST_F(ApplicationCrash, stopped_worker_ends_with_the_application) {
  const auto pids = start("stopped");
  ASSERT_EQ(::kill(pids.front(), SIGSTOP), 0);
  group_->kill(0);
  const std::vector<pid_t> workers(pids.begin() + 1, pids.end());
  expect_all_gone(workers);
  ASSERT_EQ(::kill(pids.front(), SIGKILL), 0);
}

DROVER_PEER_BODY(fork_with_a_worker) {
  auto session = Session::start();
  auto worker = Process::start(session, {.entry = sleep_on});
  ASSERT_EQ(worker.wait_ready(soon()), WaitResult::done);
  const pid_t forked = ::fork();
  if (forked == 0) {
    int throws = 0;
    try {
      worker.kill(SIGKILL);
    } catch (const Error& error) {
      throws += error.code() == Errc::forked ? 1 : 0;
    }
    {
      const Process owner = std::move(worker);
    }
    ::_exit(throws);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(forked, &status, 0), forked);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(worker.wait(Deadline::after(50ms)), std::nullopt) << "it is the parent's, and lives";
}

TEST(ForkedChild, owns_no_worker) {
  if (test::kIsSanitized)
    GTEST_SKIP() << "the child allocates, and the sanitizer's allocator does not survive a fork";
  PeerGroup group("fork_with_a_worker", test::PeerShape{.mode = PeerMode::processes, .size = 1});
  group.start();
  group.expect_success();
}

// Who was forked from the worker holds its channel open, and nothing leads to it.
TEST_F(ProcessCrash, heir_of_a_worker_does_not_hide_its_end) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() / "heir";
  const Redirected error(STDERR_FILENO);
  auto worker = Process::start(
      session_, {.entry = sleep_on, .environment = {{kBeforeMain, "heir"}, {"DROVER_TEST_HEIR", path}}});
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(worker.wait_ready(Deadline::never())); },
                     {"exited with status 4"});
  pid_t heir = 0;
  std::ifstream(path) >> heir;
  ASSERT_GT(heir, 1);
  EXPECT_TRUE(is_running(heir));
  EXPECT_EQ(::kill(heir, SIGKILL), 0);
}

bool ignores_term(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("SigIgn:")) return (std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1U) != 0;
  }
  return false;
}

TEST_F(ProcessCrash, all_are_ended_whatever_becomes_of_one) {
  auto workers = start_all(session_, {{.entry = sleep_on}, {.entry = ignore_term}, {.entry = sleep_on}});
  const Redirected output(STDOUT_FILENO);
  for (auto& worker : workers) ASSERT_EQ(worker.wait_ready(soon()), WaitResult::done);
  std::vector<pid_t> pids;
  for (const auto& worker : workers) pids.push_back(worker.pid());
  ASSERT_TRUE(eventually([&] { return ignores_term(pids.at(1)); }));
  const test::CapturedLog log;
  ASSERT_EQ(::kill(pids.front(), SIGKILL), 0);
  ASSERT_EQ(::waitpid(pids.front(), nullptr, 0), pids.front()) << "as a program that reaps all children";
  test::expect_error(Errc::not_found, [&] { end_all(workers, 50ms); }, {"SIGCHLD"});
  EXPECT_EQ(running(pids), 0);
  EXPECT_EQ(workers.at(1).wait(soon())->reason(), KillReason::parent);
}

}  // namespace
}  // namespace drover::session
