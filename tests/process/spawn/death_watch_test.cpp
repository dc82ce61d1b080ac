#include "process/spawn/death_watch.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/process/child_process.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/inspect/process_table.hpp"
#include "support/peer_group.hpp"

namespace drover::process {
namespace {

using namespace std::chrono_literals;
using test::PeerGroup;
using test::PeerMode;
using test::PeerOutcome;

Deadline before_long() { return Deadline::after(60s); }

std::string first_line(const Fd& from) {
  std::string text;
  for (char byte = 0; ::read(from.get(), &byte, 1) == 1 && byte != '\n';) text.push_back(byte);
  return text;
}

// Nobody reads it, and there is no room.
void fill_standard_error() {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  const std::string piece(4096, 'x');
  while (::write(ends[1], piece.data(), piece.size()) > 0) continue;
  ASSERT_EQ(::fcntl(ends[1], F_SETFL, 0), 0);
  ASSERT_EQ(::dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
}

// As careless code does that closes what is not its own, and then opens files of its own, which tell of something all
// the time.
void take_the_numbers_of_all_epolls() {
  std::vector<int> numbers;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (std::filesystem::read_symlink(entry.path(), ignored) == "anon_inode:[eventpoll]") {
      numbers.push_back(std::stoi(entry.path().filename()));
    }
  }
  ASSERT_FALSE(numbers.empty());
  const int foreign = ::epoll_create1(EPOLL_CLOEXEC);
  const int busy = ::eventfd(1, EFD_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  ASSERT_EQ(::epoll_ctl(foreign, EPOLL_CTL_ADD, busy, &event), 0);
  for (const int number : numbers) ASSERT_EQ(::dup3(foreign, number, O_CLOEXEC), number);
}

// Depends on the process whose pidfd it receives, and has a child of its own.
DROVER_PEER_BODY(depend_on_another) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::setsid();
  SpawnOptions options{.executable = "/bin/sh", .arguments = {"-c", "setsid sh -c 'sleep 1000 & echo $!'; :"}};
  options.streams.output = StandardStream::pipe();
  auto middle = ChildProcess::spawn(options);
  const auto orphan = first_line(middle.take_pipe(STDOUT_FILENO));
  EXPECT_TRUE(middle.wait(before_long()));
  peer.channel().send(orphan);
  ChannelMessage message;
  ASSERT_EQ(peer.channel().receive(message, before_long()), ReceiveResult::message);
  DeathWatch watch([&](const std::string& reason) { peer.channel().send("last words: " + reason); });
  if (message.bytes == "silenced") fill_standard_error();
  watch.depend_on(std::move(message.fds.at(0)), "the other has ended");
  if (message.bytes == "robbed") take_the_numbers_of_all_epolls();
  static_cast<void>(peer.receive_text());  // until killed
}

class DeathWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    group_.start();
    orphan_ = static_cast<pid_t>(std::stol(group_.receive_text(0)));
  }
  void let_it_depend(const std::string& how = "depend") {
    const Fd pidfd(pidfd_open(other_.pid()));
    group_.channel(0).send(how, std::array{pidfd.get()});
  }
  void expect_end() {
    EXPECT_EQ(group_.receive_text(0), "last words: the other has ended");
    EXPECT_EQ(group_.wait(before_long()).at(0).kind, PeerOutcome::Kind::abandoned);
    const auto found = read_process(orphan_);
    EXPECT_TRUE(!found || found->has_ended()) << "what was below it goes first";
  }

  ChildProcess other_ = ChildProcess::spawn({.executable = "/bin/sleep", .arguments = {"1000"}});
  PeerGroup group_{"depend_on_another", {.mode = PeerMode::processes, .size = 1}};
  pid_t orphan_ = 0;
};

TEST_F(DeathWatchTest, process_ends_with_the_other_and_takes_everything_below_along) {
  let_it_depend();
  EXPECT_EQ(group_.wait(Deadline::after(50ms)).at(0).kind, PeerOutcome::Kind::running);
  other_.kill(SIGKILL);
  expect_end();
}

TEST_F(DeathWatchTest, death_before_the_watch_began_is_noticed) {
  other_.kill(SIGKILL);
  let_it_depend();
  expect_end();
}

TEST_F(DeathWatchTest, unread_standard_error_does_not_delay_the_end) {
  let_it_depend("silenced");
  EXPECT_EQ(group_.wait(Deadline::after(50ms)).at(0).kind, PeerOutcome::Kind::running);
  other_.kill(SIGKILL);
  expect_end();
}

TEST_F(DeathWatchTest, events_of_a_foreign_file_with_its_number_are_not_believed) {
  let_it_depend("robbed");
  EXPECT_EQ(group_.wait(Deadline::after(50ms)).at(0).kind, PeerOutcome::Kind::running);
  other_.kill(SIGKILL);
  expect_end();
}

}  // namespace
}  // namespace drover::process
