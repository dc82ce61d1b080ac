#include "session/keeper/keeper_arguments.hpp"

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/expect_error.hpp"

namespace drover::session {
namespace {

using namespace std::chrono_literals;

TEST(KeeperArguments, travel_as_text) {
  KeeperArguments arguments{.settings = {.name = "train-7", .idle_limit = 90s}, .is_launcher = true};
  std::vector<std::string> texts = to_arguments(arguments);
  EXPECT_EQ(texts.at(0), "--drover-role=keeper");
  texts.insert(texts.begin(), "program");
  std::vector<char*> pointers;
  for (auto& text : texts) pointers.push_back(text.data());
  const KeeperArguments back = parse_keeper_arguments(pointers);
  EXPECT_EQ(back.settings.name, "train-7");
  EXPECT_EQ(back.settings.idle_limit, 90s);
  EXPECT_TRUE(back.is_launcher);
  EXPECT_FALSE(parse_keeper_arguments({}).is_launcher);
}

TEST(KeeperArguments, nonsense_is_refused) {
  for (std::string text : {"--drover-keeper-name=../x", "--drover-keeper-idle-limit=soon",
                           "--drover-keeper-idle-limit=", "--drover-keeper-colour=red"}) {
    std::string program = "program";
    const std::array<char*, 2> pointers = {program.data(), text.data()};
    test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(parse_keeper_arguments(pointers)); });
  }
}

}  // namespace
}  // namespace drover::session
