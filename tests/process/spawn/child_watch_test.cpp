#include "process/spawn/child_watch.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/inspect/process_table.hpp"
#include "process/spawn/spawn_support.hpp"
#include "support/build.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/peer_group.hpp"
#include "support/redirected.hpp"

namespace drover::process {
namespace {

using namespace std::chrono_literals;
using test::FaultSeam;
using test::PeerGroup;
using test::PeerMode;
using test::Redirected;

Deadline soon() { return Deadline::after(60s); }

SpawnOptions session_shell(const std::string& command) {
  SpawnOptions options = test::shell_program(command);
  options.group = ChildGroup::own_session;
  options.streams = {StandardStream::null(), StandardStream::pipe(), StandardStream::pipe()};
  return options;
}

ChildProcess start(ChildWatch& watch, const std::string& name, const std::string& command) {
  auto child = watch.spawn(session_shell(command));
  WatchedChild what{.name = name, .output = child.take_pipe(1), .error = child.take_pipe(2)};
  watch.add(child, std::move(what));
  return child;
}

// Waits as a Process does.
std::string finish(ChildWatch& watch, ChildProcess& child) {
  EXPECT_TRUE(pidfd_wait(child.pidfd(), soon()));
  auto tail = watch.finish(child.pid());
  EXPECT_TRUE(child.wait(soon()));
  return tail;
}

bool is_running(pid_t pid) {
  const auto found = read_process(pid);
  return found && !found->has_ended();
}

TEST(ChildWatch, lines_are_passed_on_with_the_name_before_finish_returns) {
  Redirected output(STDOUT_FILENO);
  Redirected error(STDERR_FILENO);
  const auto watch = ChildWatch::instance();
  auto child = start(*watch, "worker-1", "echo out; echo err >&2; printf partial");
  EXPECT_EQ(finish(*watch, child), "err\n");
  EXPECT_EQ(error.read_rest(), "[worker-1] err\n");
  EXPECT_EQ(output.read_rest(), "[worker-1] out\n[worker-1] partial\n");
}

TEST(ChildWatch, line_is_passed_on_while_the_child_runs) {
  Redirected output(STDOUT_FILENO);
  const auto watch = ChildWatch::instance();
  auto child = start(*watch, "w", "echo first; exec sleep 1000");
  EXPECT_EQ(output.read_line(), "[w] first");
  EXPECT_EQ(child.wait(Deadline::after(0s)), std::nullopt);
  child.kill(SIGKILL);
  static_cast<void>(finish(*watch, child));
}

// The parent waits for children that write more than every buffer on the way holds.
TEST(ChildWatch, concurrent_big_writers_are_never_mixed_within_a_line) {
  constexpr int kWriters = 4;
  constexpr int kLines = 20000;
  Redirected output(STDOUT_FILENO);
  std::string text;
  std::thread reader([&] { text = output.read_to_end(); });
  {
    const auto watch = ChildWatch::instance();
    std::vector<ChildProcess> children;
    for (int i = 0; i < kWriters; ++i) {
      const auto filler = std::string(static_cast<std::size_t>(20 + 40 * i), static_cast<char>('a' + i));
      children.push_back(
          start(*watch, fmt::format("w{}", i), fmt::format("seq -f '%.0f {} end' {}", filler, kLines)));
    }
    for (auto& child : children) static_cast<void>(finish(*watch, child));
  }
  output.restore();
  reader.join();
  std::map<std::string, int> last;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::string filler;
    std::string end;
    int number = 0;
    words >> name >> number >> filler >> end;
    ASSERT_TRUE(name.starts_with("[w") && end == "end") << line;
    ASSERT_EQ(number, last[name] + 1) << line;
    last[name] = number;
  }
  EXPECT_EQ(last.size(), std::size_t{kWriters});
  for (const auto& [name, count] : last) EXPECT_EQ(count, kLines) << name;
}

TEST(ChildWatch, closed_output_neither_kills_the_parent_nor_stops_the_children) {
  Redirected output(STDOUT_FILENO);
  output.close_reader();
  const auto watch = ChildWatch::instance();
  auto child = start(*watch, "w", "seq 1000000");
  ASSERT_TRUE(pidfd_wait(child.pidfd(), soon()));
  static_cast<void>(watch->finish(child.pid()));
  EXPECT_EQ(child.wait(soon()), ExitStatus::exited(0));
}

TEST(ChildWatch, slow_reader_does_not_block_the_parent) {
  Redirected output(STDOUT_FILENO);
  {
    const auto watch = ChildWatch::instance();
    auto child = start(*watch, "w", "seq 1000000");
    EXPECT_EQ(child.wait(Deadline::after(300ms)), std::nullopt) << "it is held up, as it would be without us";
    auto other = start(*watch, "v", "echo to stderr >&2");
    EXPECT_EQ(finish(*watch, other), "to stderr\n") << "the other stream goes on";
    child.kill(SIGKILL);
    static_cast<void>(finish(*watch, child));
  }
  const auto text = output.read_rest();
  EXPECT_TRUE(text.starts_with("[w] 1\n[w] 2\n[w] 3\n"));
  EXPECT_TRUE(text.ends_with('\n'));
}

TEST(ChildWatch, tail_is_the_last_lines_of_standard_error) {
  const Redirected error(STDERR_FILENO);
  const auto watch = ChildWatch::instance();
  auto child = start(*watch, "w", "seq 2000 >&2; echo out");
  const auto tail = finish(*watch, child);
  EXPECT_LE(tail.size(), 4096U);
  EXPECT_GT(tail.size(), 3000U);
  EXPECT_TRUE(tail.ends_with("\n1999\n2000\n"));
  EXPECT_EQ(tail.find("out"), std::string::npos);
  const auto first = std::stoi(tail.substr(0, tail.find('\n')));
  EXPECT_GT(first, 1000) << "begins with a whole line";
  EXPECT_EQ(watch->tail(child.pid()), "") << "finished ones are forgotten";
}

TEST(ChildWatch, orphans_of_a_killed_child_are_killed) {
  const Redirected output(STDOUT_FILENO);
  const auto watch = ChildWatch::instance();
  auto child = watch->spawn(session_shell("sleep 1000 & echo $! >&2; (sleep 1000 & echo $! >&2); wait"));
  Fd printed = child.take_pipe(2);
  std::string text;
  for (char byte = 0; std::ranges::count(text, '\n') < 2 && ::read(printed.get(), &byte, 1) == 1;)
    text.push_back(byte);
  watch->add(child, {.name = "w", .output = child.take_pipe(1), .error = {}});
  ASSERT_EQ(::kill(child.pid(), SIGKILL), 0);
  static_cast<void>(finish(*watch, child));
  std::istringstream words(text);
  for (pid_t pid = 0; words >> pid;) EXPECT_FALSE(is_running(pid)) << pid;
}

TEST(ChildWatch, all_children_share_one_thread_that_ends_with_the_last) {
  const auto threads = [] {
    const auto all = std::filesystem::directory_iterator("/proc/self/task");
    return std::distance(begin(all), end(all));
  };
  const auto before = threads();
  auto first = ChildWatch::instance();
  auto second = ChildWatch::instance();
  EXPECT_EQ(first, second);
  EXPECT_EQ(threads(), before + 1);
  first.reset();
  EXPECT_EQ(threads(), before + 1);
  second.reset();
  EXPECT_EQ(threads(), before);
}

TEST(ChildWatch, failure_to_spawn_reaches_the_caller) {
  const auto watch = ChildWatch::instance();
  test::expect_error(Errc::not_found, [&] { static_cast<void>(watch->spawn({.executable = "/no/such/program"})); },
                     {"execve", "/no/such/program"});
}

TEST(ChildWatch, many_threads_may_start_children) {
  const Redirected output(STDOUT_FILENO);
  const auto watch = ChildWatch::instance();
  std::atomic<int> successes = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        auto child = start(*watch, "w", "echo hello; exit 0");
        static_cast<void>(finish(*watch, child));
        successes += child.wait(soon()) == ExitStatus::exited(0) ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(successes, 20);
}

// The parent-death signal is bound to the thread that starts a child, so the watching thread starts it.
TEST(ChildWatch, parent_death_signal_outlives_the_thread_that_asked) {
  const auto watch = ChildWatch::instance();
  auto options = session_shell("exec sleep 1000");
  options.parent_death_signal = SIGKILL;
  std::optional<ChildProcess> by_watch;
  std::optional<ChildProcess> by_thread;
  std::thread([&] {
    by_watch = watch->spawn(options);
    by_thread = ChildProcess::spawn(options);
  }).join();
  EXPECT_EQ(by_thread->wait(soon()), ExitStatus::killed(SIGKILL));
  EXPECT_EQ(by_watch->wait(Deadline::after(50ms)), std::nullopt);
}

TEST(ChildWatch, lack_of_descriptors_is_an_error) {
  const FaultSeam fail("eventfd", EMFILE);
  test::expect_error(Errc::limit_reached, [] { static_cast<void>(ChildWatch::instance()); }, {"eventfd"});
}

DROVER_PEER_BODY(fork_with_a_watch) {
  const auto watch = ChildWatch::instance();
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 1;
    try {
      static_cast<void>(ChildWatch::instance());
    } catch (const Error& error) {
      status = error.code() == Errc::forked ? 0 : 2;
    }
    ::_exit(status);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ChildWatch, forked_child_has_no_instance) {
  if (test::kIsSanitized)
    GTEST_SKIP() << "the child allocates, and the sanitizer's allocator does not survive a fork";
  PeerGroup group("fork_with_a_watch", {.mode = PeerMode::processes, .size = 1});
  group.start();
  group.expect_success();
}

// An undetected process writes to the pipe of a dead child forever. What is read is bounded by everything that
// buffers lines while standard error is not read: two pipes, one piece and the writer.
TEST(ChildWatch, output_of_an_undetected_writer_is_not_read_for_ever) {
  constexpr int kLines = 512;         // of 8 bytes: what a pipe takes in one piece
  constexpr int kHeldUp = 40;         // batches, which almost fill the writer
  constexpr int kMostOnTheWay = 120;  // batches; 3 * 64 KiB and 256 KiB are 90 even without the names
  const Redirected error(STDERR_FILENO);
  const auto watch = ChildWatch::instance();
  auto child = start(*watch, "w", "exec sleep 1000");
  const Fd theirs(::open(fmt::format("/proc/{}/fd/2", child.pid()).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(theirs.is_open());
  std::vector<std::string> batches(kMostOnTheWay + 1);  // made beforehand, so that they are written faster than read
  for (std::size_t number = 0; number < batches.size(); ++number) {
    for (int i = 0; i < kLines; ++i) batches[number] += fmt::format("{:07}\n", number);
  }
  std::atomic<int> batch = 0;
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    sigset_t all{};
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);  // SIGPIPE, once the pipe is closed
    for (const auto& lines : batches) {
      while (!is_over && ::write(theirs.get(), lines.data(), lines.size()) < 0) continue;
      ++batch;
    }
    const auto& last = batches.back();
    while (!is_over) static_cast<void>(::write(theirs.get(), last.data(), last.size()) < 0);
  });
  while (batch < kHeldUp) std::this_thread::sleep_for(1ms);
  child.kill(SIGKILL);
  const auto tail = finish(*watch, child);
  is_over = true;
  writer.join();
  EXPECT_LT(std::stoi(tail.substr(tail.size() - 8)), kMostOnTheWay);
}

TEST(ChildWatch, child_has_the_caller_s_cpus_and_niceness) {
  const auto watch = ChildWatch::instance();
  cpu_set_t before{};
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  std::size_t last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &before)) --last;
  std::string text;
  std::thread([&] {  // what it sets is its own
    cpu_set_t one{};
    CPU_SET(last, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    ASSERT_EQ(::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + 1), 0);
    auto child = watch->spawn(session_shell("grep Cpus_allowed_list /proc/self/status; nice"));
    const Fd printed = child.take_pipe(1);
    for (char byte = 0; ::read(printed.get(), &byte, 1) == 1;) text.push_back(byte);
    EXPECT_EQ(child.wait(soon()), ExitStatus::exited(0));
  })
      .join();
  EXPECT_EQ(text, fmt::format("Cpus_allowed_list:\t{}\n{}\n", last, ::getpriority(PRIO_PROCESS, 0) + 1));
}

DROVER_PEER_BODY(watch_without_streams) {
  ::close(STDOUT_FILENO);
  const Fd stranger(::open("/dev/null", O_RDWR | O_CLOEXEC));
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  const Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  ASSERT_EQ(::dup3(ours.get(), stranger.get(), O_CLOEXEC), STDOUT_FILENO) << "as a descriptor of our own would be";
  {
    const auto watch = ChildWatch::instance();
    auto child = start(*watch, "w", "echo lost");
    static_cast<void>(finish(*watch, child));
  }
  char byte = 0;
  EXPECT_EQ(::read(theirs.get(), &byte, 1), -1) << "lines went to a descriptor that is no standard stream";
}

TEST(ChildWatch, what_has_the_number_of_a_closed_stream_gets_no_lines) {
  PeerGroup group("watch_without_streams", {.mode = PeerMode::processes, .size = 1});
  group.start();
  group.expect_success();
}

}  // namespace
}  // namespace drover::process
