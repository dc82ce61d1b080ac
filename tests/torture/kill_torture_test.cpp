// A short torture of every mix. The long one is `make torture`.
#include "torture/kill_torture.hpp"

#include <cctype>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "support/build.hpp"
#include "support/peer_group.hpp"

namespace drover::test {
namespace {

constexpr std::uint64_t kKills = kIsSanitized ? 40 : 300;

const Mix& mix_named(const std::string& name) {
  for (const Mix& mix : all_mixes()) {
    if (mix.name == name) return mix;
  }
  throw std::invalid_argument("no mix is named " + name);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// In separate processes, because they fork.
DROVER_PEER_BODY(torture_a_mix) {
  const TortureReport report =
      torture(mix_named(peer.parameter("mix")),
              {.kills = kKills, .seed = std::stoull(peer.parameter("seed")), .progress = {}});
  EXPECT_TRUE(report.is_right()) << report.to_string();
  EXPECT_GE(report.kills, kKills);
  peer.channel().send(report.to_string());
}

DROVER_PEER_BODY(torture_with_mischief) {
  const auto mischief = static_cast<Mischief>(std::stoi(peer.parameter("mischief")));
  const TortureReport report =
      torture(mix_named(peer.parameter("mix")), {.kills = 200, .seed = 1, .mischief = mischief, .progress = {}});
  peer.channel().send(report.is_right() ? "nothing was noticed" : report.to_string());
}

std::string what_is_noticed(const std::string& mix, Mischief mischief) {
  PeerGroup driver("torture_with_mischief", {.mode = PeerMode::processes, .size = 1},
                   {{"mix", mix}, {"mischief", std::to_string(static_cast<int>(mischief))}});
  driver.start();
  std::string report = driver.receive_text(0);
  driver.expect_success();
  return report;
}

TEST(KillTortureTeeth, every_mischief_is_noticed) {
  EXPECT_EQ(what_is_noticed("1:1", Mischief::none), "nothing was noticed");
  EXPECT_PRED2(contains, what_is_noticed("2:2 no flights", Mischief::steal), "messages are lost");
  EXPECT_PRED2(contains, what_is_noticed("1:1", Mischief::forge), "phantoms");
  EXPECT_PRED2(contains, what_is_noticed("1:1", Mischief::tear), "torn");
  EXPECT_PRED2(contains, what_is_noticed("1:1", Mischief::repeat), "wrong");
  EXPECT_PRED2(contains, what_is_noticed("2:2 large, loans", Mischief::keep_a_block), "blocks are in use at the end");
  EXPECT_PRED2(contains, what_is_noticed("4 holders", Mischief::enter_a_lock), "broken locks");
  EXPECT_NE(what_is_noticed("4:4", Mischief::recover_the_living), "nothing was noticed");
}

class KillTorture : public ::testing::TestWithParam<Mix> {};

TEST_P(KillTorture, loses_repeats_and_leaks_nothing) {
  PeerGroup driver("torture_a_mix", {.mode = PeerMode::processes, .size = 1},
                   {{"mix", GetParam().name}, {"seed", "1"}});
  driver.start();
  driver.expect_success();
}

std::string name_of(const ::testing::TestParamInfo<Mix>& each) {
  std::string name = each.param.name;
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Mixes, KillTorture, ::testing::ValuesIn(all_mixes()), name_of);

}  // namespace
}  // namespace drover::test
