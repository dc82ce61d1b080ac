#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/run_program.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace drover::test {
namespace {

TEST(ExpectError, error_with_code_and_parts_passes) {
  expect_error(Errc::busy, [] { throw Error(Errc::busy, "the door is locked", "knock"); }, {"door", "knock", "busy"});
}

TEST(ExpectError, anything_else_fails) {
  EXPECT_NONFATAL_FAILURE(expect_error(Errc::busy, [] {}), "nothing was thrown");
  EXPECT_NONFATAL_FAILURE(expect_error(Errc::busy, [] { throw std::runtime_error("other"); }), "got: other");
  EXPECT_NONFATAL_FAILURE(expect_error(Errc::busy, [] { throw Error(Errc::corrupt, "x"); }), "busy");
  EXPECT_NONFATAL_FAILURE(expect_error(Errc::busy, [] { throw Error(Errc::busy, "x"); }, {"absent"}), "no 'absent'");
}

TEST(ScopedEnvironment, variable_is_set_and_then_restored) {
  ::unsetenv("DROVER_TEST_VARIABLE");
  {
    const ScopedEnvironment outer("DROVER_TEST_VARIABLE", "outer");
    {
      const ScopedEnvironment inner("DROVER_TEST_VARIABLE", std::nullopt);
      EXPECT_EQ(std::getenv("DROVER_TEST_VARIABLE"), nullptr);
    }
    EXPECT_STREQ(std::getenv("DROVER_TEST_VARIABLE"), "outer");
  }
  EXPECT_EQ(std::getenv("DROVER_TEST_VARIABLE"), nullptr);
}

TEST(CapturedLog, lines_are_kept_and_the_sink_restored) {
  const auto threshold = log_threshold();
  {
    const CapturedLog captured(LogLevel::info);
    log(LogLevel::debug, "too quiet");
    log(LogLevel::warn, "door", 7);
    EXPECT_EQ(captured.lines(), std::vector<std::string>{"warn: door: 7"});
    EXPECT_TRUE(captured.contains("door"));
    EXPECT_FALSE(captured.contains("window"));
  }
  EXPECT_EQ(log_threshold(), threshold);
  EXPECT_EQ(set_log_sink(nullptr), &log_to_stderr);
}

TEST(RunProgram, output_of_both_streams_and_status_are_returned) {
  const auto result = run_program({.executable = "/bin/sh", .arguments = {"-c", "echo out; echo err >&2; exit 3"}});
  EXPECT_EQ(result.status, ExitStatus::exited(3));
  EXPECT_EQ(result.output, "out\nerr\n");
}

TEST(TemporaryFolder, directory_exists_and_is_then_removed) {
  std::filesystem::path path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    EXPECT_TRUE(std::filesystem::is_directory(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace drover::test
