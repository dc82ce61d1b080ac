#include "process/death_watch.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "drover/process/child_process.hpp"
#include "process/pidfd.hpp"
#include "process/process_table.hpp"
#include "support/peer_group.hpp"

namespace drover {
namespace {

using namespace std::chrono_literals;
using test::PeerGroup;
using test::PeerMode;
using test::PeerOutcome;

Deadline soon() { return Deadline::after(60s); }

std::string first_line(const Fd& from) {
  std::string text;
  for (char byte = 0; ::read(from.get(), &byte, 1) == 1 && byte != '\n';) text.push_back(byte);
  return text;
}

// Depends on the process whose pidfd it is sent, and has a child of its own.
DROVER_PEER_BODY(depend_on_another) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::setsid();
  SpawnOptions options{.executable = "/bin/sh", .arguments = {"-c", "setsid sh -c 'sleep 1000 & echo $!'; :"}};
  options.streams.output = StandardStream::pipe();
  auto middle = ChildProcess::spawn(options);
  const auto orphan = first_line(middle.take_pipe(STDOUT_FILENO));
  EXPECT_TRUE(middle.wait(soon()));
  peer.channel().send(orphan);
  ChannelMessage message;
  ASSERT_EQ(peer.channel().receive(message, soon()), ReceiveResult::message);
  DeathWatch watch([&](const std::string& reason) { peer.channel().send("last words: " + reason); });
  watch.depend_on(std::move(message.fds.at(0)), "the other has ended");
  static_cast<void>(peer.receive_text());  // until killed
}

class DeathWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    group_.start();
    orphan_ = static_cast<pid_t>(std::stol(group_.receive_text(0)));
  }
  void let_it_depend() {
    const Fd pidfd(pidfd_open(other_.pid()));
    group_.channel(0).send("depend", std::array{pidfd.get()});
  }
  void expect_end() {
    EXPECT_EQ(group_.receive_text(0), "last words: the other has ended");
    EXPECT_EQ(group_.wait(soon()).at(0).kind, PeerOutcome::Kind::abandoned);
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

}  // namespace
}  // namespace drover
