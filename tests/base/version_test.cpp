#include "drover/base/version.hpp"

#include <regex>
#include <string>

#include <gtest/gtest.h>

namespace drover {
namespace {

TEST(Version, release_has_three_numbers) {
  EXPECT_TRUE(std::regex_match(std::string(version()), std::regex("[0-9]+\\.[0-9]+\\.[0-9]+"))) << version();
}

TEST(Version, details_hold_release_revision_build_and_compiler) {
  const std::string text(version_details());
  EXPECT_TRUE(std::regex_match(text, std::regex("drover [0-9.]+ \\([^,]+, [A-Za-z]+, [A-Za-z]+ [0-9.]+\\)"))) << text;
  EXPECT_NE(text.find(version()), std::string::npos) << text;
}

}  // namespace
}  // namespace drover
