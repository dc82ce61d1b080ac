#include "drover/base/error.hpp"

#include <set>
#include <string_view>

#include <gtest/gtest.h>

namespace drover {
namespace {

TEST(Errc, every_code_has_a_unique_name) {
  std::set<std::string_view> names;
  for (const Errc code : kAllErrc) names.insert(to_string(code));
  EXPECT_EQ(names.size(), kAllErrc.size());
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(Errc, list_has_every_code_in_order) {
  for (std::size_t i = 0; i < kAllErrc.size(); ++i) EXPECT_EQ(static_cast<std::size_t>(kAllErrc.at(i)), i);
  EXPECT_EQ(to_string(static_cast<Errc>(kAllErrc.size())), "unknown") << "a code is missing in kAllErrc";
}

TEST(Errc, name_is_the_identifier) {
  EXPECT_EQ(to_string(Errc::device_memory), "device_memory");
  EXPECT_EQ(to_string(Errc::internal), "internal");
}

}  // namespace
}  // namespace drover
