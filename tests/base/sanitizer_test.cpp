// The sanitizers of this build catch what they are there for, and the library is built with them.
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "support/build.hpp"
#include "support/run_program.hpp"

namespace drover::test {
namespace {

void expect_caught(const std::string& mistake, const std::string& report) {
  const auto result = run_program({.executable = DROVER_PLANTED_MISTAKES, .arguments = {mistake}});
  EXPECT_NE(result.status, ExitStatus::exited(0)) << result.output;
  EXPECT_NE(result.output.find(report), std::string::npos) << "no '" << report << "' in:\n" << result.output;
}

bool library_calls(const std::string& function) {
  std::string content(std::filesystem::file_size(DROVER_LIBRARY), '\0');
  std::ifstream(DROVER_LIBRARY, std::ios::binary).read(content.data(), static_cast<std::streamsize>(content.size()));
  return content.find(function) != std::string::npos;
}

TEST(AddressSanitizer, catches_use_after_free) {
  if (!kIsAddressSanitized) GTEST_SKIP() << "not in this build";
  expect_caught("use_after_free", "heap-use-after-free");
}

TEST(AddressSanitizer, catches_a_leak) {
  if (!kIsAddressSanitized) GTEST_SKIP() << "not in this build";
  expect_caught("leak", "detected memory leaks");
}

TEST(AddressSanitizer, catches_undefined_behaviour) {
  if (!kIsAddressSanitized) GTEST_SKIP() << "not in this build";
  expect_caught("overflow", "signed integer overflow");
}

TEST(AddressSanitizer, watches_the_library) {
  if (!kIsAddressSanitized) GTEST_SKIP() << "not in this build";
  EXPECT_TRUE(library_calls("__asan_report_load"));
  EXPECT_TRUE(library_calls("__ubsan_handle_add_overflow"));
}

TEST(ThreadSanitizer, catches_a_race) {
  if (!kIsThreadSanitized) GTEST_SKIP() << "not in this build";
  expect_caught("race", "data race");
}

TEST(ThreadSanitizer, watches_the_library) {
  if (!kIsThreadSanitized) GTEST_SKIP() << "not in this build";
  EXPECT_TRUE(library_calls("__tsan_read"));
}

}  // namespace
}  // namespace drover::test
