// Channels between threads and processes, some of which die.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/mapping.hpp"
#include "drover/ipc/channel.hpp"
#include "support/expect_error.hpp"
#include "support/leftovers.hpp"
#include "support/peer_group.hpp"

namespace drover::ipc {
namespace {

using namespace std::chrono_literals;
using test::PeerGroup;
using test::PeerMode;
using test::PeerOutcome;
using test::PeerShape;

constexpr int kRounds = 50;

// Echoes each message with a descriptor of a file that contains its rank.
DROVER_PEER_BODY(echo_with_file) {
  for (int round = 0; round < kRounds; ++round) {
    const auto text = peer.receive_text();
    const auto file = make_memory_file("answer", 4096);
    Mapping::shared(file, 4096).bytes()[0] = static_cast<std::byte>(peer.rank());
    const int number = file.get();
    peer.channel().send(text, {&number, 1});
  }
}

class ChannelShapes : public ::testing::TestWithParam<PeerShape> {};

TEST_P(ChannelShapes, bytes_and_memory_cross_between_peers) {
  PeerGroup group("echo_with_file", GetParam());
  group.start();
  for (int round = 0; round < kRounds; ++round) {
    for (int rank = 0; rank < GetParam().size; ++rank) group.channel(rank).send(fmt::format("{}/{}", round, rank));
    for (int rank = 0; rank < GetParam().size; ++rank) {
      ChannelMessage message;
      ASSERT_EQ(group.channel(rank).receive(message, Deadline::never()), ReceiveResult::message);
      ASSERT_EQ(message.bytes, fmt::format("{}/{}", round, rank));
      ASSERT_EQ(message.fds.size(), 1U);
      const auto memory = Mapping::shared(message.fds[0], check_memory_file(message.fds[0]));
      ASSERT_EQ(memory.bytes()[0], static_cast<std::byte>(rank));
    }
  }
  group.expect_success();
}

INSTANTIATE_TEST_SUITE_P(Channel, ChannelShapes, ::testing::ValuesIn(test::all_peer_shapes()),
                         [](const auto& shape) { return to_string(shape.param); });

// Two messages wait for the peer from the start; it reads one of them late.
DROVER_PEER_BODY(talk_through_points) {
  peer.reach("start");
  peer.channel().send("first");
  peer.reach("after the first");
  const auto file = make_memory_file("second", 4096);
  const int number = file.get();
  peer.channel().send("second", {&number, 1});
  peer.reach("with a descriptor on its way");
  EXPECT_EQ(peer.receive_text(), "to be read");
  peer.reach("after reading one of two");
}

// Where a peer dies, and which messages must still be received before the peer is lost.
struct DeathCase {
  const char* point;
  std::vector<std::string> expected;
};

const std::vector<DeathCase>& death_cases() {
  static const std::vector<DeathCase> cases = {{"start", {}},
                                               {"after the first", {"first"}},
                                               {"with a descriptor on its way", {"first", "second"}},
                                               {"after reading one of two", {"first", "second"}}};
  return cases;
}

class ChannelDeath : public ::testing::TestWithParam<PeerMode> {};

TEST_P(ChannelDeath, messages_sent_before_a_death_arrive_before_peer_lost) {
  for (const auto& [point, expected] : death_cases()) {
    SCOPED_TRACE(point);
    PeerGroup group("talk_through_points", {.mode = GetParam(), .size = 1});
    group.hold_at(0, "start");
    if (std::string_view(point) != "start") group.kill_at(0, point);
    group.start();
    group.wait_until_held(0, "start");
    group.channel(0).send("to be read");
    group.channel(0).send("never read");
    Channel channel = std::move(group.channel(0));  // outlives a thread's death, which closes the group's own
    std::string_view(point) == "start" ? group.kill(0) : group.release(0);
    EXPECT_EQ(group.wait(Deadline::never()).front().kind, PeerOutcome::Kind::abandoned);
    ChannelMessage message;
    for (const auto& text : expected) {
      ASSERT_EQ(channel.receive(message, Deadline::never()), ReceiveResult::message);
      EXPECT_EQ(message.bytes, text);
      EXPECT_EQ(message.fds.size(), text == "second" ? 1U : 0U);
    }
    EXPECT_EQ(channel.receive(message, Deadline::never()), ReceiveResult::peer_lost);
    EXPECT_TRUE(message.fds.empty());
    test::expect_error(Errc::peer_lost, [&] { channel.send("anyone?"); });
  }
}

INSTANTIATE_TEST_SUITE_P(Channel, ChannelDeath, ::testing::Values(PeerMode::threads, PeerMode::processes),
                         [](const auto& mode) { return to_string(mode.param); });

DROVER_PEER_BODY(read_one_and_die) {
  static_cast<void>(peer.receive_text());
  peer.reach("full");
}

// The sender fills the socket and sleeps in the kernel, or the peer dies before it sleeps; either wait ends.
TEST(ChannelDeath, sender_that_waits_for_room_learns_of_the_death) {
  PeerGroup group("read_one_and_die", {.mode = PeerMode::processes, .size = 1});
  group.kill_at(0, "full");
  group.start();
  test::expect_error(Errc::peer_lost, [&] {
    for (;;) group.channel(0).send(std::string(Channel::kMaxBytes, 'x'));
  });
  EXPECT_EQ(group.wait(Deadline::never()).front().kind, PeerOutcome::Kind::abandoned);
}

DROVER_PEER_BODY(stand_still) { peer.reach("here"); }

// The test would wait forever for the end of the pipe if any writer were left.
TEST(ChannelDeath, descriptor_in_flight_to_a_dead_peer_is_closed) {
  PeerGroup group("stand_still", {.mode = PeerMode::processes, .size = 1});
  group.hold_at(0, "here");
  group.start();
  group.wait_until_held(0, "here");
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  group.channel(0).send("take it", {&ends[1], 1});
  writer.reset();
  group.kill(0);
  EXPECT_EQ(group.wait(Deadline::never()).front().kind, PeerOutcome::Kind::abandoned);
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);
}

// Limits this process to `spare` more descriptors.
void limit_descriptors(rlim_t spare) {
  const rlim_t highest = static_cast<rlim_t>(test::open_descriptors().rbegin()->first);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = highest + 1 + spare;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

DROVER_PEER_BODY(receive_more_than_fits) {
  const auto spare = static_cast<rlim_t>(std::stoi(peer.parameter("spare")));
  // All numbers below the highest descriptor are in use, so the spare ones are known.
  std::vector<Fd> filling;
  const int highest = test::open_descriptors().rbegin()->first;
  for (int number = 0; number < highest;) {
    filling.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = filling.back().get();
  }
  // The undefined-behaviour sanitizer needs a descriptor when it first checks a class with virtual functions.
  test::expect_error(Errc::busy, [] { throw Error(Errc::busy, "met before"); });
  limit_descriptors(spare);
  peer.channel().send("ready");
  // Counting descriptors needs one itself, so they are counted only when there is room again.
  ChannelMessage message;
  test::expect_error(Errc::limit_reached,
                     [&] { static_cast<void>(peer.channel().receive(message, Deadline::never())); },
                     {"too many open files", "ulimit -n"});
  EXPECT_TRUE(message.fds.empty()) << "received descriptors must be closed";
  for (rlim_t i = 0; i < spare; ++i) {
    filling.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(filling.back().is_open()) << "number " << i << " of " << spare << " has leaked";
  }
  filling.clear();
  EXPECT_EQ(peer.receive_text(), "small") << "the channel still works";
}

class ChannelLimits : public ::testing::TestWithParam<int> {};

TEST_P(ChannelLimits, descriptors_that_do_not_fit_are_limit_reached_and_none_leaks) {
  PeerGroup group("receive_more_than_fits", {.mode = PeerMode::processes, .size = 1},
                  {{"spare", std::to_string(GetParam())}});
  group.start();
  ASSERT_EQ(group.receive_text(0), "ready");
  group.channel(0).send("large", std::vector<int>(5, STDERR_FILENO));
  group.channel(0).send("small");
  group.expect_success();
}

INSTANTIATE_TEST_SUITE_P(Channel, ChannelLimits, ::testing::Values(0, 1, 4),
                         [](const auto& spare) { return "spare_" + std::to_string(spare.param); });

}  // namespace
}  // namespace drover::ipc
