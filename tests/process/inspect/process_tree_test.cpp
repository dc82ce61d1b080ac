#include "process/inspect/process_tree.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/sys.hpp"
#include "drover/process/child_process.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/inspect/process_table.hpp"
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
using test::PeerOutcome;

Deadline soon() { return Deadline::after(60s); }

bool is_running(pid_t pid) {
  const auto found = read_process(pid);
  return found && !found->has_ended();
}

// A program that leads its own session and has printed the ids that it started, one per line.
class Tree {
 public:
  explicit Tree(const std::string& script, int lines) : child_(ChildProcess::spawn(options(script))) {
    std::string text;
    const Fd output = child_.take_pipe(STDOUT_FILENO);
    for (char byte = 0; lines > 0 && ::read(output.get(), &byte, 1) == 1;) {
      text.push_back(byte);
      if (byte == '\n') --lines;
    }
    std::istringstream words(text);
    for (pid_t pid = 0; words >> pid;) pids_.push_back(pid);
  }
  [[nodiscard]] ChildProcess& root() { return child_; }
  [[nodiscard]] const ChildProcess& root() const { return child_; }
  [[nodiscard]] const std::vector<pid_t>& pids() const { return pids_; }
  [[nodiscard]] int running() const {
    return static_cast<int>(std::count_if(pids_.begin(), pids_.end(), is_running));
  }

 private:
  static SpawnOptions options(const std::string& script) {
    SpawnOptions options{.executable = "/bin/sh", .arguments = {"-c", script}};
    options.group = ChildGroup::own_session;
    options.streams.output = StandardStream::pipe();
    return options;
  }

  ChildProcess child_;
  std::vector<pid_t> pids_;
};

TEST(ProcessTable, own_process_and_parent_are_in_it) {
  const auto self = read_process(::getpid());
  ASSERT_TRUE(self);
  EXPECT_EQ(self->parent, ::getppid());
  EXPECT_EQ(self->session, ::getsid(0));
  EXPECT_FALSE(self->has_ended());
  const auto all = read_processes().value();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                          [&](const auto& each) { return each.pid == ::getpid() && each.start == self->start; }));
  EXPECT_EQ(read_process(0), std::nullopt);
}

// A name in the table may hold anything, also what separates its fields.
TEST(ProcessTable, odd_name_does_not_confuse) {
  std::string before(16, '\0');
  ASSERT_EQ(::prctl(PR_GET_NAME, before.data()), 0);
  ASSERT_EQ(::prctl(PR_SET_NAME, "a) Z 1 (b"), 0);
  const auto self = read_process(::getpid());
  ::prctl(PR_SET_NAME, before.c_str());
  ASSERT_TRUE(self);
  EXPECT_EQ(self->parent, ::getppid());
  EXPECT_FALSE(self->has_ended());
}

TEST(ProcessTable, ended_child_is_seen_as_ended) {
  auto child = ChildProcess::spawn({.executable = "/bin/true"});
  ASSERT_TRUE(pidfd_wait(child.pidfd(), soon()));
  EXPECT_TRUE(read_process(child.pid())->has_ended());
}

TEST(KillTree, process_without_children_is_killed) {
  Tree tree("echo $$; exec sleep 1000", 1);
  EXPECT_EQ(tree.root().kill_tree(soon()), WaitResult::done);
  const auto status = tree.root().wait(soon());
  EXPECT_EQ(status, ExitStatus::killed(SIGKILL));
  EXPECT_EQ(status->reason(), KillReason::parent);
}

TEST(KillTree, children_and_their_children_are_killed) {
  Tree tree(R"(echo $$; sh -c 'echo $$; sh -c "echo \$\$; sleep 1000; :"; :' & wait)", 3);
  ASSERT_EQ(tree.running(), 3);
  EXPECT_EQ(tree.root().kill_tree(soon()), WaitResult::done);
  EXPECT_EQ(tree.running(), 0);
}

// The process in between has ended, so only the session leads to the orphan.
TEST(KillTree, orphan_in_the_session_is_killed) {
  Tree tree("echo $$; (sleep 1000 & echo $!) ; exec sleep 1000", 2);
  ASSERT_EQ(tree.running(), 2);
  EXPECT_EQ(tree.root().kill_tree(soon()), WaitResult::done);
  EXPECT_EQ(tree.running(), 0);
}

TEST(KillTree, child_in_a_session_of_its_own_is_killed) {
  Tree tree("echo $$; setsid sh -c 'echo $$; exec sleep 1000' & wait", 2);
  ASSERT_EQ(tree.running(), 2);
  EXPECT_EQ(tree.root().kill_tree(soon()), WaitResult::done);
  EXPECT_EQ(tree.running(), 0);
}

TEST(KillTree, killed_root_leaves_no_process) {
  Tree tree("echo $$; sleep 1000 & echo $!; (sleep 1000 & echo $!); wait", 3);
  ASSERT_EQ(tree.running(), 3);
  tree.root().kill(SIGKILL);
  ASSERT_TRUE(pidfd_wait(tree.root().pidfd(), soon()));
  ASSERT_EQ(tree.running(), 2);
  EXPECT_EQ(tree.root().kill_tree(soon()), WaitResult::done);
  EXPECT_EQ(tree.running(), 0);
  EXPECT_EQ(tree.root().wait(soon()), ExitStatus::killed(SIGKILL));
}

TEST(KillTree, stopped_processes_are_killed) {
  Tree tree("echo $$; sleep 1000 & echo $!; wait", 2);
  ASSERT_EQ(::kill(tree.pids().at(1), SIGSTOP), 0);
  tree.root().kill(SIGSTOP);
  EXPECT_EQ(tree.root().kill_tree(soon()), WaitResult::done);
  EXPECT_EQ(tree.running(), 0);
}

// Starts others as fast as it can, each of which does the same.
TEST(KillTree, growing_tree_is_killed_whole) {
  Tree tree("grow() { while :; do sh -c 'sleep 1000 & sleep 0.01' & sleep 0.003; done; }; echo $$; grow & grow", 1);
  EXPECT_EQ(tree.root().kill_tree(soon()), WaitResult::done);
  const auto all = read_processes().value();
  EXPECT_TRUE(std::none_of(all.begin(), all.end(),
                           [&](const auto& each) { return each.session == tree.root().pid() && !each.has_ended(); }));
}

TEST(KillTree, several_trees_are_killed_at_once) {
  const std::string script = "echo $$; setsid sh -c 'echo $$; exec sleep 1000' & wait";
  Tree first(script, 2);
  Tree second(script, 2);
  const std::array roots = {TreeRoot{.pid = first.root().pid(), .pidfd = first.root().pidfd()},
                            TreeRoot{.pid = second.root().pid(), .pidfd = second.root().pidfd()}};
  EXPECT_EQ(kill_trees(roots, soon()), WaitResult::done);
  EXPECT_EQ(first.running() + second.running(), 0);
  EXPECT_EQ(kill_trees({}, soon()), WaitResult::done);
}

// Neither a parent nor a session leads to it any more.
TEST(KillTree, daemon_of_a_dead_root_is_known_by_its_mark) {
  Tree tree("DROVER_TEST_MARK=1; export DROVER_TEST_MARK; echo $$; setsid sh -c 'sleep 1000 & echo $!'; exit", 2);
  ASSERT_TRUE(pidfd_wait(tree.root().pidfd(), soon()));
  ASSERT_EQ(tree.running(), 1);
  const auto kill_marked = [&](const std::string& mark) {
    return kill_trees(std::array{TreeRoot{.pid = tree.root().pid(), .pidfd = tree.root().pidfd(), .mark = mark}},
                      soon());
  };
  EXPECT_EQ(kill_marked("DROVER_TEST_MARK=2"), WaitResult::done);
  EXPECT_EQ(kill_marked("DROVER_TEST_MARK="), WaitResult::done);
  EXPECT_EQ(tree.running(), 1) << "marks are compared whole";
  EXPECT_EQ(kill_marked("DROVER_TEST_MARK=1"), WaitResult::done);
  EXPECT_EQ(tree.running(), 0);
}

TEST(KillTree, no_other_process_is_touched) {
  Tree bystander("echo $$; sleep 1000 & echo $!; wait", 2);
  Tree tree("echo $$; sleep 1000 & echo $!; wait", 2);
  EXPECT_EQ(tree.root().kill_tree(soon()), WaitResult::done);
  EXPECT_EQ(bystander.running(), 2);
  EXPECT_EQ(bystander.root().kill_tree(soon()), WaitResult::done);
}

TEST(KillTree, root_reaped_by_other_code_is_left_alone) {
  Tree tree("echo $$", 1);
  ASSERT_EQ(::waitpid(tree.root().pid(), nullptr, 0), tree.root().pid());
  EXPECT_EQ(kill_tree(tree.root().pid(), tree.root().pidfd(), soon()), WaitResult::done);
  test::expect_error(Errc::not_found, [&] { static_cast<void>(tree.root().wait(soon())); }, {"waitid"});
}

TEST(KillTree, own_process_is_refused) {
  test::expect_error(Errc::invalid_argument, [] { static_cast<void>(kill_tree(::getpid(), 0, soon())); },
                     {"another process"});
}

TEST(KillTree, without_descriptors_left_it_kills_by_id) {
  Tree tree("echo $$; sleep 1000 & echo $!; wait", 2);
  const FaultSeam fail("pidfd_open", EMFILE);
  EXPECT_EQ(tree.root().kill_tree(soon()), WaitResult::done);
  EXPECT_GT(fail.strikes(), 0);
  while (tree.running() > 0) std::this_thread::sleep_for(1ms);  // the harness ends this if they live on
}

// A root that adopts: what leaves both its parent and its session is still below it.
DROVER_PEER_BODY(adopt_a_daemon) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  SpawnOptions options{.executable = "/bin/sh", .arguments = {"-c", "setsid sh -c 'sleep 1000 & echo $!' & wait"}};
  options.streams.output = StandardStream::pipe();
  auto middle = ChildProcess::spawn(options);
  std::string text;
  const Fd output = middle.take_pipe(STDOUT_FILENO);
  for (char byte = 0; ::read(output.get(), &byte, 1) == 1 && byte != '\n';) text.push_back(byte);
  EXPECT_EQ(middle.wait(Deadline::never()), ExitStatus::exited(0));
  peer.channel().send(text);
  peer.reach("adopted");
}

TEST(KillTree, daemon_of_a_root_that_adopts_is_killed) {
  PeerGroup group("adopt_a_daemon", {.mode = PeerMode::processes, .size = 1});
  group.hold_at(0, "adopted");
  group.start();
  const auto daemon = static_cast<pid_t>(std::stol(group.receive_text(0)));
  group.wait_until_held(0, "adopted");
  ASSERT_EQ(read_process(daemon)->parent, group.pid(0));
  ASSERT_NE(read_process(daemon)->session, ::getsid(group.pid(0)));
  const Fd pidfd(pidfd_open(group.pid(0)));
  EXPECT_EQ(kill_tree(group.pid(0), pidfd.get(), soon()), WaitResult::done);
  EXPECT_FALSE(is_running(daemon));
  EXPECT_EQ(group.wait(soon()).at(0).kind, PeerOutcome::Kind::abandoned);
}

DROVER_PEER_BODY(kill_all_below) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // Starts nothing after its last line: a process that appears during the kill may be mistaken for a child of the
  // test.
  Tree tree("echo $$; sleep 1000 & echo $!; setsid sh -c 'sleep 1000 & echo $!; wait' & wait", 3);
  ASSERT_EQ(tree.running(), 3);
  EXPECT_EQ(kill_descendants(soon()), WaitResult::done);
  EXPECT_EQ(tree.running(), 0);
  EXPECT_EQ(tree.root().wait(soon()), ExitStatus::killed(SIGKILL)) << "a child of our own is ours to reap";
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "adopted ones are reaped";
}

TEST(KillDescendants, descendants_are_killed_and_the_process_continues) {
  PeerGroup group("kill_all_below", {.mode = PeerMode::processes, .size = 1});
  group.start();
  group.expect_success();
}

// What happens to a hunter at the nth call of a name, and the descriptors that are not to be touched then.
struct Mishap {
  std::string call;
  int nth = 1;
  bool is_death = false;
  std::array<bool, 256> keeps{};
};
Mishap mishap;

int happen(const char* call) noexcept {
  if (mishap.call != call || --mishap.nth != 0) return 0;
  if (mishap.is_death) ::kill(::getpid(), SIGKILL);
  for (std::size_t fd = 0; fd < mishap.keeps.size(); ++fd) {
    if (!mishap.keeps.at(fd)) ::close(static_cast<int>(fd));
  }
  return 0;
}

DROVER_PEER_BODY(hunt_with_a_mishap) {
  ::prctl(PR_SET_CHILD_SUBREAPER, peer.parameter("adopts") == "yes" ? 1 : 0);
  Tree tree("echo $$; sleep 1000 & echo $!; setsid sh -c 'echo $$; exec sleep 1000' & wait", 3);
  ASSERT_EQ(tree.running(), 3);
  std::string text;
  for (const pid_t pid : tree.pids()) text += std::to_string(pid) + " ";
  peer.channel().send(text);
  mishap = {.call = peer.parameter("call"), .nth = std::stoi(peer.parameter("nth"))};
  mishap.is_death = peer.parameter("what") == "death";
  for (std::size_t fd = 0; fd < mishap.keeps.size(); ++fd) {
    mishap.keeps.at(fd) = ::fcntl(static_cast<int>(fd), F_GETFD) >= 0;
  }
  sys::set_fault(happen);
  EXPECT_EQ(kill_descendants(soon()), WaitResult::done);
  sys::set_fault(nullptr);
  EXPECT_LE(mishap.nth, 0) << "it did not happen";
  EXPECT_EQ(tree.running(), 0);
}

// As threads of a worker do that think every descriptor is theirs, while the worker ends.
TEST(KillDescendants, process_whose_descriptors_are_closed_finds_all_descendants) {
  for (const std::string adopts : {"yes", "no"}) {
    for (const std::string call : {"openat", "pidfd_open"}) {
      for (const std::string nth : {"1", "2", "3"}) {
        SCOPED_TRACE(fmt::format("adopts: {}, {} {}", adopts, call, nth));
        PeerGroup group("hunt_with_a_mishap", {.mode = PeerMode::processes, .size = 1},
                        {{"adopts", adopts}, {"call", call}, {"nth", nth}, {"what", "closing"}});
        group.start();
        group.expect_success();
      }
    }
  }
}

// Of the processes whose ids the peer has sent, once it is dead.
void expect_none_stopped(PeerGroup& group) {
  std::istringstream words(group.receive_text(0));
  EXPECT_EQ(group.wait(soon()).at(0).kind, PeerOutcome::Kind::abandoned);
  for (pid_t pid = 0; words >> pid;) {
    const auto left = read_process(pid);
    EXPECT_FALSE(left && left->state == 'T') << pid;
    ::kill(pid, SIGKILL);
  }
}

TEST(KillDescendants, killed_killer_leaves_no_process_stopped) {
  for (int nth = 1; nth <= 3; ++nth) {
    PeerGroup group("hunt_with_a_mishap", {.mode = PeerMode::processes, .size = 1},
                    {{"adopts", "yes"}, {"call", "pidfd_open"}, {"nth", std::to_string(nth)}, {"what", "death"}});
    group.start();
    SCOPED_TRACE(nth);
    expect_none_stopped(group);
  }
}

void hunt_marked(test::Peer& peer, const Tree& tree) {
  peer.channel().send(fmt::format("{}", fmt::join(tree.pids(), " ")));
  mishap = {.call = peer.parameter("call"), .nth = std::stoi(peer.parameter("nth"))};
  mishap.is_death = true;
  sys::set_fault(happen);
  const TreeRoot root{.pid = tree.root().pid(), .pidfd = tree.root().pidfd(), .mark = "DROVER_TEST_MARK=5"};
  static_cast<void>(kill_trees(std::array{root}, soon()));
  ADD_FAILURE() << "it was not killed";
}

// The root has ended, as a worker whose remains are killed.
DROVER_PEER_BODY(hunt_remains_with_a_mishap) {
  const Tree tree(
      "DROVER_TEST_MARK=5; export DROVER_TEST_MARK; echo $$; sleep 1000 & echo $!; setsid sh -c 'sleep 1000 & echo "
      "$!'",
      3);
  ASSERT_TRUE(pidfd_wait(tree.root().pidfd(), soon()));
  ASSERT_EQ(tree.running(), 2);
  hunt_marked(peer, tree);
}

DROVER_PEER_BODY(hunt_root_with_a_mishap) {
  const Tree tree("export DROVER_TEST_MARK=5; echo $$; exec sleep 1000", 1);
  ASSERT_EQ(tree.running(), 1);
  hunt_marked(peer, tree);
}

TEST(KillTree, killed_killer_leaves_no_marked_process_stopped) {
  for (int nth = 1; nth <= 6; ++nth) {
    SCOPED_TRACE(nth);
    const bool has_root = nth > 2;
    PeerGroup group(
        has_root ? "hunt_root_with_a_mishap" : "hunt_remains_with_a_mishap", {.mode = PeerMode::processes, .size = 1},
        {{"call", has_root ? "openat" : "pidfd_open"}, {"nth", std::to_string(has_root ? nth - 2 : nth)}});
    group.start();
    expect_none_stopped(group);
  }
}

// Its id and session may be a stranger's, but its mark is its own.
TEST(KillTree, daemon_of_a_reaped_root_is_found_by_its_mark) {
  Tree tree("DROVER_TEST_MARK=3; export DROVER_TEST_MARK; echo $$; setsid sh -c 'sleep 1000 & echo $!'; exit", 2);
  ASSERT_EQ(::waitpid(tree.root().pid(), nullptr, 0), tree.root().pid());
  ASSERT_EQ(tree.running(), 1);
  const TreeRoot root{.pid = tree.root().pid(), .pidfd = tree.root().pidfd(), .mark = "DROVER_TEST_MARK=3"};
  EXPECT_EQ(kill_trees(std::array{root}, soon()), WaitResult::done);
  EXPECT_EQ(tree.running(), 0);
}

// No process inherits a mark before it exists, so older processes are not even read.
TEST(KillTree, process_older_than_the_root_cannot_have_its_mark) {
  const std::string script = "DROVER_TEST_MARK=4; export DROVER_TEST_MARK; exec sh -c 'echo $$; exec sleep 1000'";
  Tree older(script, 1);
  const auto began = [](Tree& tree) { return read_process(tree.root().pid())->start; };
  std::this_thread::sleep_for(20ms);  // the time of the start is counted in ticks of 10 ms
  Tree tree(script, 1);
  ASSERT_LT(began(older), began(tree));
  const TreeRoot root{.pid = tree.root().pid(), .pidfd = tree.root().pidfd(), .mark = "DROVER_TEST_MARK=4"};
  EXPECT_EQ(kill_trees(std::array{root}, soon()), WaitResult::done);
  EXPECT_EQ(tree.running(), 0);
  EXPECT_EQ(older.running(), 1);
}

TEST(KillTree, failed_scan_is_not_an_empty_one) {
  Tree tree("echo $$; sleep 1000 & echo $!; wait", 2);
  {
    const test::CapturedLog log;
    const FaultSeam fail("openat", EMFILE);
    EXPECT_FALSE(read_processes());
    EXPECT_EQ(tree.root().kill_tree(Deadline::after(20ms)), WaitResult::timed_out);
    EXPECT_TRUE(log.contains("too many files are open"));
  }
  EXPECT_TRUE(pidfd_wait(tree.root().pidfd(), soon())) << "the root is killed even so";
  EXPECT_EQ(tree.root().kill_tree(soon()), WaitResult::done);
  EXPECT_EQ(tree.running(), 0);
}

}  // namespace
}  // namespace drover::process
