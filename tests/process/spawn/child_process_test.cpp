#include "drover/process/child_process.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "process/spawn/spawn_support.hpp"
#include "support/build.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/peer_group.hpp"

namespace drover::process {
namespace {

using namespace std::chrono_literals;
using test::FaultSeam;
using test::PeerGroup;
using test::PeerMode;

ChildProcess spawn_shell(const std::string& command) { return ChildProcess::spawn(test::shell_program(command)); }

ChildProcess spawn_sleeper() { return ChildProcess::spawn({.executable = "/bin/sleep", .arguments = {"1000"}}); }

// Neither running nor waiting to be reaped.
bool is_gone(pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == -1 && errno == ECHILD; }

TEST(ChildProcess, wait_returns_how_it_ended) {
  EXPECT_EQ(spawn_shell("exit 0").wait(Deadline::never()), ExitStatus::exited(0));
  EXPECT_EQ(spawn_shell("exit 255").wait(Deadline::never()), ExitStatus::exited(255));
  EXPECT_EQ(spawn_shell("kill -TERM $$").wait(Deadline::never()), ExitStatus::killed(SIGTERM));
  EXPECT_EQ(spawn_shell("kill -ABRT $$").wait(Deadline::never()), ExitStatus::killed(SIGABRT));
}

TEST(ChildProcess, wait_may_be_repeated) {
  auto child = spawn_shell("exit 5");
  const auto first = child.wait(Deadline::never());
  EXPECT_EQ(child.wait(Deadline::never()), first);
  EXPECT_EQ(child.wait(Deadline::after(0s)), first);
}

TEST(ChildProcess, wait_returns_nothing_when_the_deadline_passes) {
  auto child = spawn_sleeper();
  EXPECT_EQ(child.wait(Deadline::after(0s)), std::nullopt);
  EXPECT_EQ(child.wait(Deadline::after(2ms)), std::nullopt);
  child.kill(SIGKILL);
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::killed(SIGKILL));
}

TEST(ChildProcess, stopped_child_has_not_ended) {
  auto child = spawn_sleeper();
  child.kill(SIGSTOP);
  EXPECT_EQ(child.wait(Deadline::after(20ms)), std::nullopt);
}

TEST(ChildProcess, pidfd_is_readable_once_it_has_ended) {
  auto child = spawn_sleeper();
  pollfd ended{.fd = child.pidfd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ended, 1, 0), 0);
  child.kill(SIGTERM);
  EXPECT_EQ(::poll(&ended, 1, -1), 1);
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::killed(SIGTERM));
}

TEST(ChildProcess, destruction_kills_and_reaps) {
  pid_t pid = 0;
  {
    const auto child = spawn_sleeper();
    pid = child.pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_TRUE(is_gone(pid));
}

TEST(ChildProcess, destruction_reaps_an_ended_or_stopped_child) {
  auto ended = std::make_unique<ChildProcess>(spawn_shell("exit 0"));
  auto stopped = std::make_unique<ChildProcess>(spawn_sleeper());
  stopped->kill(SIGSTOP);
  for (auto* const child : {&ended, &stopped}) {
    const pid_t pid = (*child)->pid();
    child->reset();
    EXPECT_TRUE(is_gone(pid));
  }
}

TEST(ChildProcess, moved_from_object_owns_nothing) {
  auto first = spawn_sleeper();
  const pid_t pid = first.pid();
  auto second = std::move(first);
  EXPECT_EQ(second.pid(), pid);
  EXPECT_EQ(first.pid(), 0);  // NOLINT(bugprone-use-after-move): what is tested
  EXPECT_NO_THROW(first.kill(SIGKILL));
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(first.wait(Deadline::never())); },
                     {"moved-from"});
  EXPECT_EQ(second.wait(Deadline::after(0s)), std::nullopt);
}

TEST(ChildProcess, move_assignment_ends_what_was_owned) {
  auto first = spawn_sleeper();
  auto second = spawn_sleeper();
  const pid_t lost = first.pid();
  const pid_t kept = second.pid();
  first = std::move(second);
  EXPECT_TRUE(is_gone(lost));
  EXPECT_EQ(first.pid(), kept);
  auto& alias = first;
  first = std::move(alias);
  EXPECT_EQ(first.wait(Deadline::after(0s)), std::nullopt) << "moving to itself must not end it";
}

TEST(ChildProcess, kill_after_the_end_does_nothing) {
  auto child = spawn_shell("exit 0");
  pollfd ended{.fd = child.pidfd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(::poll(&ended, 1, -1), 1);
  EXPECT_NO_THROW(child.kill(SIGKILL)) << "ended, not reaped";
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::exited(0));
  EXPECT_NO_THROW(child.kill(SIGKILL)) << "reaped";
}

TEST(ChildProcess, signal_that_does_not_exist_is_an_error) {
  auto child = spawn_sleeper();
  test::expect_error(Errc::invalid_argument, [&] { child.kill(1000); }, {"process " + std::to_string(child.pid())});
}

TEST(ChildProcess, interrupted_wait_continues) {
  auto child = spawn_shell("exit 4");
  const FaultSeam poll("poll", EINTR, {.times = 3});
  const FaultSeam waitid("waitid", EINTR, {.times = 3});
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::exited(4));
  EXPECT_EQ(poll.strikes(), 3);
  EXPECT_EQ(waitid.strikes(), 3);
}

TEST(ChildProcess, failed_wait_is_an_error_and_can_be_repeated) {
  auto child = spawn_shell("exit 4");
  for (const char* const call : {"poll", "waitid"}) {
    const FaultSeam fail(call, ENOMEM, {.times = 1});
    test::expect_error(Errc::out_of_memory, [&] { static_cast<void>(child.wait(Deadline::never())); },
                       {call, "process " + std::to_string(child.pid())});
  }
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::exited(4));
}

// A program that ignores SIGCHLD has the kernel reap its children; the pid may then name a stranger.
TEST(ChildProcess, child_reaped_by_other_code_is_reported_and_no_unrelated_process_killed) {
  const test::CapturedLog log;
  {
    auto child = spawn_shell("exit 0");
    const pid_t pid = child.pid();
    ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
    test::expect_error(Errc::not_found, [&] { static_cast<void>(child.wait(Deadline::never())); },
                       {"waitid", "SIGCHLD"});
    const FaultSeam never_by_pid("kill", 0);
    EXPECT_NO_THROW(child.kill(SIGKILL));
    EXPECT_EQ(never_by_pid.calls(), 0) << "a signal by pid could reach another process";
  }
  EXPECT_TRUE(log.contains("could not be reaped"));
}

DROVER_PEER_BODY(tell_executable) { peer.channel().send(own_executable()); }

TEST(OwnExecutable, program_started_again_is_the_same) {
  PeerGroup group("tell_executable", {.mode = PeerMode::processes, .size = 2});
  group.start();
  EXPECT_EQ(group.receive_text(0), own_executable());
  EXPECT_EQ(group.receive_text(1), own_executable());
  group.expect_success();
}

TEST(OwnExecutable, failure_to_find_it_is_an_error) {
  const FaultSeam fail("readlink", EACCES);
  test::expect_error(Errc::permission_denied, [] { static_cast<void>(own_executable()); }, {"/proc/self/exe"});
}

DROVER_PEER_BODY(fork_with_a_child) {
  auto child = ChildProcess::spawn({.executable = "/bin/sleep", .arguments = {"1000"}});
  const pid_t forked = ::fork();
  if (forked == 0) {
    int throws = 0;
    const auto count = [&](const auto& call) {
      try {
        call();
      } catch (const Error& error) {
        throws += error.code() == Errc::forked ? 1 : 0;
      }
    };
    count([&] { static_cast<void>(child.wait(Deadline::never())); });
    count([&] { child.kill(SIGKILL); });
    count([&] { static_cast<void>(child.kill_tree(Deadline::never())); });
    {
      const ChildProcess owner = std::move(child);
    }
    ::_exit(throws);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(forked, &status, 0), forked);
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_EQ(child.wait(Deadline::after(0s)), std::nullopt) << "it is the parent's, and lives";
}

TEST(ChildProcess, forked_child_owns_nothing) {
  if (test::kIsSanitized)
    GTEST_SKIP() << "the child allocates, and the sanitizer's allocator does not survive a fork";
  PeerGroup group("fork_with_a_child", {.mode = PeerMode::processes, .size = 1});
  group.start();
  group.expect_success();
}

}  // namespace
}  // namespace drover::process
