#include "base/config.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "support/scoped_environment.hpp"

namespace drover {
namespace {

using test::ScopedEnvironment;

constexpr const char* kName = "DROVER_TEST_SETTING";

TEST(Config, unset_and_empty_variables_have_no_value) {
  {
    const ScopedEnvironment unset(kName, std::nullopt);
    EXPECT_EQ(environment(kName), std::nullopt);
    EXPECT_EQ(environment_number(kName, 7, 0, 10), 7);
    EXPECT_EQ(environment_bytes(kName, 99), 99U);
  }
  const ScopedEnvironment empty(kName, "");
  EXPECT_EQ(environment(kName), std::nullopt);
  EXPECT_EQ(environment_number(kName, 7, 0, 10), 7);
  EXPECT_EQ(environment_bytes(kName, 99), 99U);
}

TEST(Config, text_is_returned_unchanged) {
  const ScopedEnvironment variable(kName, " with spaces ");
  EXPECT_EQ(environment(kName), " with spaces ");
}

TEST(Config, number_within_the_range_is_read) {
  for (const std::int64_t value : {-5, 0, 10}) {
    const ScopedEnvironment variable(kName, std::to_string(value));
    EXPECT_EQ(environment_number(kName, 1, -5, 10), value);
  }
  const ScopedEnvironment largest(kName, "9223372036854775807");
  EXPECT_EQ(environment_number(kName, 1, 0, std::numeric_limits<std::int64_t>::max()),
            std::numeric_limits<std::int64_t>::max());
}

TEST(Config, anything_else_is_an_error_with_name_text_and_range) {
  for (const char* const text : {"11", "-1", "abc", "1x", " 1", "1 ", "+1", "1.5", "0x5", "9223372036854775808"}) {
    SCOPED_TRACE(text);
    const ScopedEnvironment variable(kName, text);
    test::expect_error(Errc::invalid_argument, [] { static_cast<void>(environment_number(kName, 1, 0, 10)); },
                       {std::string("DROVER_TEST_SETTING=") + text, "from 0 to 10", "default 1"});
  }
}

TEST(Config, size_is_read_with_its_unit) {
  const ScopedEnvironment variable(kName, "4GiB");
  EXPECT_EQ(environment_bytes(kName, 1), std::uint64_t{4} << 30U);
}

TEST(Config, size_of_zero_is_an_error) {
  for (const char* const text : {"0", "0GiB", "much", "-1", "1XB"}) {
    SCOPED_TRACE(text);
    const ScopedEnvironment variable(kName, text);
    test::expect_error(Errc::invalid_argument, [] { static_cast<void>(environment_bytes(kName, 1)); },
                       {std::string("DROVER_TEST_SETTING=") + text, "512MiB"});
  }
}

}  // namespace
}  // namespace drover
