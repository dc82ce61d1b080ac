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

#include "drover/base/mapping.hpp"
#include "drover/ipc/channel.hpp"
#include "support/expect_error.hpp"
#include "support/leftovers.hpp"
#include "support/peer_group.hpp"

namespace drover {
namespace {

using namespace std::chrono_literals;
using test::PeerGroup;
using test::PeerMode;
using test::PeerOutcome;
using test::PeerShape;

constexpr int kRounds = 50;

// Sends back what comes, with a descriptor of a file into which it wrote its rank.
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

// Where a peer dies, and what the test must still receive from it before it is lost.
DROVER_PEER_BODY(talk_through_points) {
  peer.reach("before any message");
  peer.channel().send("first");
  peer.reach("after the first");
  const auto file = make_memory_file("second", 4096);
  const int number = file.get();
  peer.channel().send("second", {&number, 1});
  peer.reach("with a descriptor on its way");
  static_cast<void>(peer.receive_text());
  peer.reach("after reading one of two");
}

struct DeathCase {
  const char* point;
  std::vector<std::string> expected;
};

class ChannelDeath : public ::testing::TestWithParam<std::tuple<PeerMode, int>> {
 protected:
  static const DeathCase& death() {
    static const std::vector<DeathCase> cases = {{"before any message", {}},
                                                 {"after the first", {"first"}},
                                                 {"with a descriptor on its way", {"first", "second"}},
                                                 {"after reading one of two", {"first", "second"}}};
    return cases.at(static_cast<std::size_t>(std::get<1>(GetParam())));
  }
};

TEST_P(ChannelDeath, everything_sent_before_death_arrives_and_then_the_peer_is_lost) {
  PeerGroup group("talk_through_points", {.mode = std::get<0>(GetParam()), .size = 1});
  group.hold_at(0, "before any message");
  group.kill_at(0, death().point);
  group.start();
  if (death().expected.empty()) {
    group.kill_at_hold_is_not_used();
  }
}

}  // namespace
}  // namespace drover
