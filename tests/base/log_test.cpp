#include "drover/base/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/base/fd.hpp"
#include "support/captured_log.hpp"
#include "support/peer_group.hpp"
#include "support/scoped_environment.hpp"

namespace drover {
namespace {

using test::CapturedLog;
using test::PeerGroup;
using test::PeerMode;

// The output of `action` on standard error, which must fit in a pipe.
template <class Action>
std::string stderr_of(Action action) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "no pipe";
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  const Fd saved(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3));
  ::dup2(writer.get(), STDERR_FILENO);
  action();
  ::dup2(saved.get(), STDERR_FILENO);
  writer.reset();
  std::string text(65536, '\0');
  const auto length = ::read(reader.get(), text.data(), text.size());
  text.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return text;
}

TEST(Log, default_sink_writes_one_line_with_pid_and_level) {
  const auto text = stderr_of([] { log_to_stderr(LogLevel::warn, "the door is open"); });
  EXPECT_EQ(text, fmt::format("drover[{}] warn: the door is open\n", ::getpid()));
}

TEST(Log, long_line_is_truncated_and_still_ends) {
  const auto text = stderr_of([] { log_to_stderr(LogLevel::error, std::string(5000, 'x')); });
  EXPECT_EQ(text.size(), 1024U);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(text.find('\n'), text.size() - 1);
}

TEST(Log, writing_preserves_errno_even_if_it_fails) {
  static_cast<void>(stderr_of([] {
    ::close(STDERR_FILENO);
    errno = E2BIG;
    log_to_stderr(LogLevel::error, "nobody reads this");
    EXPECT_EQ(errno, E2BIG);
  }));
}

TEST(Log, lines_below_the_threshold_are_dropped) {
  const CapturedLog captured(LogLevel::warn);
  log(LogLevel::debug, "a");
  log(LogLevel::info, "b");
  log(LogLevel::warn, "c");
  log(LogLevel::error, "d");
  EXPECT_EQ(captured.lines(), (std::vector<std::string>{"warn: c", "error: d"}));
}

TEST(Log, threshold_off_drops_everything_and_off_is_not_a_level_for_lines) {
  const CapturedLog captured(LogLevel::off);
  log(LogLevel::error, "lost");
  set_log_threshold(LogLevel::debug);
  log(LogLevel::off, "not a level");
  EXPECT_TRUE(captured.lines().empty());
}

TEST(Log, number_follows_the_text) {
  const CapturedLog captured;
  log(LogLevel::info, "answer", 42);
  log(LogLevel::info, "least", std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(captured.lines(), (std::vector<std::string>{"info: answer: 42", "info: least: -9223372036854775808"}));
}

TEST(Log, long_text_with_a_number_is_truncated) {
  const CapturedLog captured;
  log(LogLevel::info, std::string(5000, 'x'), 42);
  ASSERT_EQ(captured.lines().size(), 1U);
  EXPECT_EQ(captured.lines().front().size(), std::string("info: ").size() + 1024);
}

TEST(Log, sink_is_replaced_and_restored) {
  static int count = 0;
  count = 0;
  const LogSink counting = [](LogLevel /*level*/, std::string_view /*text*/) noexcept { ++count; };
  const LogSink before = set_log_sink(counting);
  log(LogLevel::error, "counted");
  EXPECT_EQ(set_log_sink(nullptr), counting);
  EXPECT_EQ(set_log_sink(before), &log_to_stderr);
  EXPECT_EQ(count, 1);
}

TEST(Log, levels_have_names) {
  EXPECT_EQ(to_string(LogLevel::debug), "debug");
  EXPECT_EQ(to_string(LogLevel::off), "off");
  EXPECT_EQ(to_string(static_cast<LogLevel>(77)), "unknown");
}

// A separate process, because the variable is read once.
DROVER_PEER_BODY(tell_threshold) {
  LogLevel threshold = LogLevel::off;
  auto text = stderr_of([&] {
    threshold = log_threshold();
    static_cast<void>(log_threshold());
  });
  peer.channel().send(fmt::format("{}|{}", to_string(threshold), text));
}

std::string threshold_with(const std::optional<std::string>& value) {
  const test::ScopedEnvironment variable("DROVER_LOG", value);
  PeerGroup group("tell_threshold", {.mode = PeerMode::processes, .size = 1});
  group.start();
  auto answer = group.receive_text(0);
  group.expect_success();
  return answer;
}

TEST(Log, threshold_comes_from_the_environment) {
  EXPECT_EQ(threshold_with(std::nullopt), "warn|");
  EXPECT_EQ(threshold_with(""), "warn|");
  EXPECT_EQ(threshold_with("debug"), "debug|");
  EXPECT_EQ(threshold_with("off"), "off|");
}

TEST(Log, unknown_level_in_the_environment_is_reported_once) {
  const auto answer = threshold_with("loud");
  EXPECT_EQ(answer.find("warn|drover["), 0U) << answer;
  EXPECT_NE(answer.find("DROVER_LOG is none of debug, info, warn, error, off"), std::string::npos) << answer;
  EXPECT_EQ(answer.find('\n'), answer.size() - 1) << answer;
}

}  // namespace
}  // namespace drover
