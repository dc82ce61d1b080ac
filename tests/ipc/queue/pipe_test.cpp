// Pipes: both directions, and how an end learns that the other is gone.
#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/ipc/pipe.hpp"
#include "support/expect_error.hpp"
#include "support/peer_group.hpp"
#include "support/test_session.hpp"

namespace drover::ipc {
namespace {

using namespace std::chrono_literals;
using test::PeerGroup;
using test::PeerMode;
using test::PeerOutcome;
using test::TestSession;

bool is_readable(int fd, Deadline deadline) {
  pollfd look{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&look, 1, deadline.poll_timeout()) == 1;
}

class PipeTest : public ::testing::Test {
 protected:
  TestSession session;
  std::shared_ptr<Membership> self = session.join();
};

TEST_F(PipeTest, messages_go_both_ways_in_order) {
  auto [left, right] = Pipe::make(self);
  for (const char* text : {"one", "two"}) ASSERT_EQ(left.send(text), PutResult::put);
  ASSERT_EQ(right.send("three"), PutResult::put);
  Message message;
  ASSERT_EQ(right.receive(message), GetResult::got);
  EXPECT_EQ(message.text(), "one");
  ASSERT_EQ(right.receive(message), GetResult::got);
  EXPECT_EQ(message.text(), "two");
  ASSERT_EQ(left.receive(message), GetResult::got);
  EXPECT_EQ(message.text(), "three");
  EXPECT_EQ(left.receive(message, Deadline::after({})), GetResult::timed_out);
}

TEST_F(PipeTest, large_messages_cross) {
  auto [left, right] = Pipe::make(self, {.capacity = 2, .bytes = 1 << 16});
  for (const std::size_t bytes : {std::size_t{2000}, std::size_t{60'000}, std::size_t{1 << 20}}) {
    const std::string text(bytes, 'x');
    ASSERT_EQ(left.send(text), PutResult::put);
    Message message;
    ASSERT_EQ(right.receive(message), GetResult::got);
    EXPECT_EQ(message.text(), text);
  }
}

TEST_F(PipeTest, a_destroyed_end_is_reported_after_its_messages) {
  auto ends = Pipe::make(self);
  std::optional<Pipe> right(std::move(ends.second));
  Pipe left = std::move(ends.first);
  ASSERT_EQ(right->send("last words"), PutResult::put);
  right.reset();
  EXPECT_EQ(left.send("anyone?"), PutResult::peer_lost);
  Message message;
  ASSERT_EQ(left.receive(message), GetResult::got);
  EXPECT_EQ(message.text(), "last words");
  EXPECT_EQ(left.receive(message), GetResult::peer_lost);
}

TEST_F(PipeTest, a_pending_receive_ends_when_the_other_end_is_destroyed) {
  auto ends = Pipe::make(self);
  std::optional<Pipe> right(std::move(ends.second));
  std::thread waiter([&] {
    Message message;
    EXPECT_EQ(ends.first.receive(message), GetResult::peer_lost);
  });
  right.reset();
  waiter.join();
}

TEST_F(PipeTest, another_copy_of_an_end_keeps_it_open) {
  auto ends = Pipe::make(self);
  std::optional<Pipe> right(std::move(ends.second));
  const Pipe copy(self, right->handle());
  right.reset();
  EXPECT_EQ(ends.first.send("still there"), PutResult::put);
}

TEST_F(PipeTest, its_descriptor_is_readable_while_a_message_may_be_waiting) {
  auto [left, right] = Pipe::make(self);
  const int fd = right.fd();
  EXPECT_FALSE(is_readable(fd, Deadline::after({})));
  for (int round = 0; round < 20; ++round) {
    ASSERT_EQ(left.send("x"), PutResult::put);
    ASSERT_TRUE(is_readable(fd, Deadline::never()));
    Message message;
    ASSERT_EQ(right.receive(message), GetResult::got);
    ASSERT_EQ(right.receive(message, Deadline::after({})), GetResult::timed_out);
    ASSERT_FALSE(is_readable(fd, Deadline::after({})));
  }
}

TEST_F(PipeTest, its_descriptor_is_readable_when_the_other_end_is_gone) {
  auto ends = Pipe::make(self);
  std::optional<Pipe> right(std::move(ends.second));
  const int fd = ends.first.fd();
  right.reset();
  EXPECT_TRUE(is_readable(fd, Deadline::never()));
}

TEST_F(PipeTest, its_descriptor_is_readable_when_the_session_is_over) {
  auto [left, right] = Pipe::make(self);
  const int fd = right.fd();
  session.end();
  EXPECT_TRUE(is_readable(fd, Deadline::never()));
}

TEST_F(PipeTest, a_handle_round_trips_as_text_and_nonsense_is_refused) {
  const auto [left, right] = Pipe::make(self);
  const PipeHandle handle = PipeHandle::parse(left.handle().to_string());
  EXPECT_EQ(handle.incoming, left.handle().incoming);
  EXPECT_EQ(handle.outgoing, left.handle().outgoing);
  for (const char* text : {"", "queue:1:0:1", "queue:1:0:1/", "/queue:1:0:1", "queue:1:0:1/lock"}) {
    test::expect_error(Errc::invalid_argument, [&] { std::ignore = PipeHandle::parse(text); });
  }
}

// The peer has the other end: the handles are in the order of the test's end.
Pipe other_end(const test::Invited& invited) {
  return {invited.membership, {.incoming = invited.handles.at(1), .outgoing = invited.handles.at(0)}};
}

DROVER_PEER_BODY(echo_through_pipe) {
  const auto invited = test::accept_invitation(peer.channel());
  Pipe pipe = other_end(invited);
  Message message;
  while (pipe.receive(message) == GetResult::got) {
    if (message.text() == "end") return;
    if (pipe.send(message.bytes()) != PutResult::put) return;
    peer.reach("answered");
  }
}

class PipePeers : public ::testing::TestWithParam<PeerMode> {};

TEST_P(PipePeers, a_peer_replies) {
  TestSession session;
  const auto self = session.join();
  auto ends = Pipe::make(self);
  Pipe pipe = std::move(ends.first);
  PeerGroup group("echo_through_pipe", {.mode = GetParam(), .size = 1});
  group.start();
  session.invite(group.channel(0), std::vector{pipe.handle().incoming, pipe.handle().outgoing});
  for (int round = 0; round < 200; ++round) {
    const std::string text(static_cast<std::size_t>(round) * 31, 'p');
    ASSERT_EQ(pipe.send(text), PutResult::put);
    Message message;
    ASSERT_EQ(pipe.receive(message), GetResult::got);
    ASSERT_EQ(message.text(), text);
  }
  ASSERT_EQ(pipe.send("end"), PutResult::put);
  group.expect_success();
}

TEST_P(PipePeers, a_dead_peer_is_reported_after_its_last_reply) {
  TestSession session;
  const auto self = session.join();
  auto ends = Pipe::make(self);
  Pipe pipe = std::move(ends.first);
  PeerGroup group("echo_through_pipe", {.mode = GetParam(), .size = 1});
  group.kill_at(0, "answered");
  group.start();
  const Owner owner = session.invite(group.channel(0), std::vector{pipe.handle().incoming, pipe.handle().outgoing});
  {
    const Pipe given_away = std::move(ends.second);
  }
  ASSERT_EQ(pipe.send("hello"), PutResult::put);
  ASSERT_EQ(group.wait(Deadline::never()).front().kind, PeerOutcome::Kind::abandoned);
  session.recover(owner);
  Message message;
  ASSERT_EQ(pipe.receive(message), GetResult::got);
  EXPECT_EQ(message.text(), "hello");
  EXPECT_EQ(pipe.receive(message), GetResult::peer_lost);
  EXPECT_EQ(pipe.send("more"), PutResult::peer_lost);
}

INSTANTIATE_TEST_SUITE_P(Pipe, PipePeers, ::testing::Values(PeerMode::threads, PeerMode::processes),
                         [](const auto& mode) { return to_string(mode.param); });

}  // namespace
}  // namespace drover::ipc
