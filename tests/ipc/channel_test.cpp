#include "drover/ipc/channel.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/leftovers.hpp"

namespace drover::ipc {
namespace {

using namespace std::chrono_literals;
using test::FaultSeam;

std::string receive_text(Channel& channel) {
  ChannelMessage message;
  if (channel.receive(message, Deadline::never()) != ReceiveResult::message) return "nothing came";
  return message.bytes;
}

bool are_same_file(int one, int other) {
  const auto open = test::open_descriptors();
  return open.at(one) == open.at(other);
}

// Sends a message that drover itself never sends.
void send_raw(const Channel& channel, std::string_view bytes, int fd = -1) {
  iovec payload{const_cast<char*>(bytes.data()), bytes.size()};  // NOLINT: sendmsg only reads
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &payload;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    *reinterpret_cast<cmsghdr*>(control.data()) = {
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    std::memcpy(control.data() + CMSG_LEN(0), &fd, sizeof(fd));
  }
  ASSERT_EQ(::sendmsg(channel.fd(), &header, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

TEST(Channel, messages_keep_their_boundaries_and_order_both_ways) {
  auto [left, right] = Channel::make_pair();
  left.send("one");
  left.send("two, longer");
  right.send("back");
  EXPECT_EQ(receive_text(right), "one");
  EXPECT_EQ(receive_text(right), "two, longer");
  EXPECT_EQ(receive_text(left), "back");
}

TEST(Channel, message_of_any_allowed_size_arrives_whole) {
  auto [left, right] = Channel::make_pair();
  unsigned next = 0;
  for (const std::size_t size : {std::size_t{1}, std::size_t{2}, std::size_t{4095}, std::size_t{4096},
                                 Channel::kMaxBytes - 1, Channel::kMaxBytes}) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(next++ * 31);
    left.send(bytes);
    EXPECT_EQ(receive_text(right), bytes) << size;
  }
}

TEST(Channel, message_beyond_the_limits_is_refused_and_nothing_sent) {
  auto [left, right] = Channel::make_pair();
  test::expect_error(Errc::invalid_argument, [&] { left.send(""); }, {"1 to 65536 bytes"});
  test::expect_error(Errc::invalid_argument, [&] { left.send(std::string(Channel::kMaxBytes + 1, 'x')); });
  const std::vector<int> many(Channel::kMaxFds + 1, STDERR_FILENO);
  test::expect_error(Errc::invalid_argument, [&] { left.send("x", many); }, {"253"});
  ChannelMessage message;
  EXPECT_EQ(right.receive(message, Deadline::after(0s)), ReceiveResult::timed_out);
}

TEST(Channel, message_with_descriptors_arrives_whole) {
  auto [left, right] = Channel::make_pair();
  const auto first = make_memory_file("first", 1);
  const auto second = make_memory_file("second", 1);
  const std::array fds = {first.get(), second.get(), first.get()};
  left.send("files", fds);
  ChannelMessage message;
  ASSERT_EQ(right.receive(message, Deadline::never()), ReceiveResult::message);
  EXPECT_EQ(message.bytes, "files");
  ASSERT_EQ(message.fds.size(), 3U);
  for (std::size_t i = 0; i < fds.size(); ++i) {
    EXPECT_NE(message.fds[i].get(), fds.at(i));
    EXPECT_TRUE(are_same_file(message.fds[i].get(), fds.at(i)));
    EXPECT_EQ(::fcntl(message.fds[i].get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
}

TEST(Channel, maximum_number_of_descriptors_arrives) {
  auto [left, right] = Channel::make_pair();
  const auto file = make_memory_file("many", 1);
  left.send("x", std::vector<int>(Channel::kMaxFds, file.get()));
  ChannelMessage message;
  ASSERT_EQ(right.receive(message, Deadline::never()), ReceiveResult::message);
  EXPECT_EQ(message.fds.size(), Channel::kMaxFds);
}

TEST(Channel, message_object_can_be_reused) {
  auto [left, right] = Channel::make_pair();
  const auto file = make_memory_file("once", 1);
  const int number = file.get();
  left.send("with", {&number, 1});
  left.send("without");
  ChannelMessage message;
  ASSERT_EQ(right.receive(message, Deadline::never()), ReceiveResult::message);
  ASSERT_EQ(right.receive(message, Deadline::never()), ReceiveResult::message);
  EXPECT_EQ(message.bytes, "without");
  EXPECT_TRUE(message.fds.empty());
}

TEST(Channel, receive_returns_when_the_deadline_passes) {
  auto [left, right] = Channel::make_pair();
  ChannelMessage message;
  EXPECT_EQ(right.receive(message, Deadline::after(0s)), ReceiveResult::timed_out);
  EXPECT_EQ(right.receive(message, Deadline::after(2ms)), ReceiveResult::timed_out);
  left.send("late");
  EXPECT_EQ(right.receive(message, Deadline::after(0s)), ReceiveResult::message) << "a waiting message is received";
}

TEST(Channel, closed_end_is_peer_lost_after_all_messages_were_read) {
  auto [left, right] = Channel::make_pair();
  left.send("last words");
  left = Channel(Fd{});
  EXPECT_EQ(receive_text(right), "last words");
  ChannelMessage message{.bytes = "old", .fds = {}};
  EXPECT_EQ(right.receive(message, Deadline::never()), ReceiveResult::peer_lost);
  EXPECT_TRUE(message.bytes.empty());
  EXPECT_EQ(right.receive(message, Deadline::never()), ReceiveResult::peer_lost) << "and stays lost";
}

// The kernel reports our unread messages as a reset before it delivers theirs.
TEST(Channel, messages_of_a_lost_peer_arrive_even_if_ours_were_never_read) {
  auto [left, right] = Channel::make_pair();
  right.send("never read");
  left.send("first");
  left.send("second");
  left = Channel(Fd{});
  EXPECT_EQ(receive_text(right), "first");
  EXPECT_EQ(receive_text(right), "second");
  ChannelMessage message;
  EXPECT_EQ(right.receive(message, Deadline::never()), ReceiveResult::peer_lost);
}

TEST(Channel, send_to_a_closed_end_is_peer_lost_and_no_signal) {
  auto [left, right] = Channel::make_pair();
  right = Channel(Fd{});
  test::expect_error(Errc::peer_lost, [&] { left.send("anyone?"); }, {"message of 7 bytes and 0 descriptors"});
}

TEST(Channel, send_waits_until_there_is_room) {
  auto [left, right] = Channel::make_pair();
  constexpr int kMessages = 100;
  std::thread sender([&end = left] {
    for (int i = 0; i < kMessages; ++i) end.send(std::string(Channel::kMaxBytes, static_cast<char>(i)));
  });
  for (int i = 0; i < kMessages; ++i) {
    const auto bytes = receive_text(right);
    EXPECT_EQ(bytes, std::string(Channel::kMaxBytes, static_cast<char>(i)));
  }
  sender.join();
}

// Sends until the socket is full; returns the number of messages sent.
int fill(Channel& channel) {
  const std::string bytes(1000, 'x');
  int count = 0;
  while (channel.send(bytes, {}, Deadline::after(0s)) == SendResult::sent) ++count;
  return count;
}

TEST(Channel, send_with_a_deadline_gives_up_on_a_peer_that_does_not_read) {
  auto [left, right] = Channel::make_pair();
  const int sent = fill(left);
  EXPECT_GT(sent, 0);
  EXPECT_EQ(left.send("more", {}, Deadline::after(0s)), SendResult::timed_out);
  EXPECT_EQ(left.send("more", {}, Deadline::after(2ms)), SendResult::timed_out);
  for (int i = 0; i < sent; ++i) EXPECT_EQ(receive_text(right).size(), 1000U);
  EXPECT_EQ(left.send("now", {}, Deadline::after(0s)), SendResult::sent);
  EXPECT_EQ(receive_text(right), "now") << "no part of a timed-out message was sent";
}

TEST(Channel, send_with_a_deadline_waits_for_room) {
  auto [left, right] = Channel::make_pair();
  const int sent = fill(left);
  std::thread reader([&, &end = right] {
    for (int i = 0; i < sent; ++i) EXPECT_EQ(receive_text(end).size(), 1000U);
  });
  EXPECT_EQ(left.send("in the end", {}, Deadline::never()), SendResult::sent);
  reader.join();
  EXPECT_EQ(receive_text(right), "in the end");
}

TEST(Channel, send_with_a_deadline_carries_descriptors) {
  auto [left, right] = Channel::make_pair();
  const auto file = make_memory_file("sent", 1);
  const int number = file.get();
  ASSERT_EQ(left.send("file", {&number, 1}, Deadline::after(10s)), SendResult::sent);
  ChannelMessage message;
  ASSERT_EQ(right.receive(message, Deadline::never()), ReceiveResult::message);
  ASSERT_EQ(message.fds.size(), 1U);
  EXPECT_TRUE(are_same_file(message.fds[0].get(), number));
}

TEST(Channel, send_with_a_deadline_reports_a_lost_peer_even_during_the_wait) {
  auto [left, right] = Channel::make_pair();
  fill(left);
  std::thread closer([&end = right] { end = Channel(Fd{}); });
  EXPECT_EQ(left.send("anyone?", {}, Deadline::never()), SendResult::peer_lost);
  closer.join();
  EXPECT_EQ(left.send("anyone?", {}, Deadline::after(0s)), SendResult::peer_lost);
}

TEST(Channel, send_with_a_deadline_throws_other_errors) {
  auto [left, right] = Channel::make_pair();
  const auto send = [&, &end = left](std::string_view bytes) {
    static_cast<void>(end.send(bytes, {}, Deadline::after(0s)));
  };
  test::expect_error(Errc::invalid_argument, [&] { send(""); }, {"1 to 65536 bytes"});
  const FaultSeam fail("sendmsg", ENOMEM);
  test::expect_error(Errc::out_of_memory, [&] { send("x"); }, {"sendmsg", "message of 1 bytes"});
}

TEST(Channel, interrupted_calls_are_retried) {
  auto [left, right] = Channel::make_pair();
  const FaultSeam send("sendmsg", EINTR, {.times = 2});
  const FaultSeam poll("poll", EINTR, {.times = 2});
  const FaultSeam receive("recvmsg", EINTR, {.times = 2});
  left.send("through");
  EXPECT_EQ(receive_text(right), "through");
  EXPECT_EQ(send.strikes() + poll.strikes() + receive.strikes(), 6);
}

TEST(Channel, failed_calls_are_errors_and_lose_no_message) {
  auto [left, right] = Channel::make_pair();
  left.send("kept");
  for (const char* const call : {"poll", "recvmsg"}) {
    const FaultSeam fail(call, ENOMEM, {.times = 1});
    test::expect_error(Errc::out_of_memory, [&, &end = right] { receive_text(end); }, {call});
  }
  ChannelMessage message{.bytes = "old", .fds = {}};
  {
    const FaultSeam fail("recvmsg", ENOMEM);
    EXPECT_THROW(static_cast<void>(right.receive(message, Deadline::never())), Error);
    EXPECT_TRUE(message.bytes.empty()) << "no message was taken";
  }
  EXPECT_EQ(receive_text(right), "kept");
  const FaultSeam fail("socketpair", EMFILE);
  test::expect_error(Errc::limit_reached, [] { static_cast<void>(Channel::make_pair()); }, {"socketpair", "channel"});
}

TEST(Channel, too_many_descriptors_in_flight_are_limit_reached) {
  auto [left, right] = Channel::make_pair();
  const FaultSeam fail("sendmsg", ETOOMANYREFS);
  test::expect_error(Errc::limit_reached, [&, &end = left] { end.send("x"); }, {"ulimit -n"});
}

TEST(Channel, descriptor_that_is_not_open_is_an_error) {
  auto [left, right] = Channel::make_pair();
  const int closed = -1;
  test::expect_error(Errc::system, [&, &end = left] { end.send("x", {&closed, 1}); }, {"1 descriptors"});
}

TEST(Channel, oversized_message_is_corrupt_and_leaves_no_descriptor) {
  auto [left, right] = Channel::make_pair();
  const auto before = test::open_descriptors();
  send_raw(left, std::string(Channel::kMaxBytes + 1, 'x'), STDERR_FILENO);
  ChannelMessage message;
  test::expect_error(Errc::corrupt, [&, &end = right] { static_cast<void>(end.receive(message, Deadline::never())); },
                     {"more than 65536 bytes"});
  EXPECT_TRUE(message.fds.empty());
  EXPECT_EQ(test::open_descriptors(), before);
  left.send("next");
  EXPECT_EQ(receive_text(right), "next");
}

TEST(Channel, empty_message_with_descriptors_is_corrupt_and_leaves_none) {
  auto [left, right] = Channel::make_pair();
  const auto before = test::open_descriptors();
  send_raw(left, "", STDERR_FILENO);
  ChannelMessage message;
  test::expect_error(Errc::corrupt,
                     [&, &end = right] { static_cast<void>(end.receive(message, Deadline::never())); });
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST(Channel, descriptor_that_is_not_a_socket_is_an_error) {
  Channel channel(Fd(::open("/dev/zero", O_RDWR | O_CLOEXEC)));
  ChannelMessage message;
  test::expect_error(Errc::system, [&] { static_cast<void>(channel.receive(message, Deadline::never())); },
                     {"recvmsg"});
  test::expect_error(Errc::system, [&] { channel.send("x"); }, {"sendmsg"});
}

TEST(Channel, ends_are_closed_on_exec) {
  const auto [left, right] = Channel::make_pair();
  for (const int fd : {left.fd(), right.fd()}) EXPECT_EQ(::fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(Channel, one_thread_may_send_while_another_receives) {
  auto [left, right] = Channel::make_pair();
  const auto talk = [](Channel& end, std::vector<std::string>& heard) {
    std::thread sender([&end] {
      for (int i = 0; i < 500; ++i) end.send(std::to_string(i));
    });
    for (int i = 0; i < 500; ++i) heard.push_back(receive_text(end));
    sender.join();
  };
  std::vector<std::string> heard_left;
  std::vector<std::string> heard_right;
  std::thread other([&, &end = right] { talk(end, heard_right); });
  talk(left, heard_left);
  other.join();
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(heard_left[static_cast<std::size_t>(i)], std::to_string(i));
    EXPECT_EQ(heard_right[static_cast<std::size_t>(i)], std::to_string(i));
  }
}

TEST(Channel, use_after_move_is_an_error_not_a_hang) {
  auto [ours, theirs] = Channel::make_pair();
  const Channel taken = std::move(ours);
  ChannelMessage message;
  // NOLINTBEGIN(bugprone-use-after-move): the misuse that is tested
  test::expect_error(Errc::invalid_argument, [&] { ours.send("x"); }, {"moved from"});
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(ours.receive(message, Deadline::never())); });
  // NOLINTEND(bugprone-use-after-move)
}

}  // namespace
}  // namespace drover::ipc
