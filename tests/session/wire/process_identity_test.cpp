#include "session/wire/process_identity.hpp"

#include <unistd.h>

#include <cerrno>
#include <csignal>

#include <gtest/gtest.h>

#include "drover/process/child_process.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"

namespace drover::session {
namespace {

TEST(ProcessIdentity, start_time_is_field_22_whatever_the_program_is_called) {
  const std::string tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20 21\n";
  EXPECT_EQ(parse_start_time("42 (sleep)" + tail), 987654U);
  EXPECT_EQ(parse_start_time("42 (a b) S) 1 (c)" + tail), 987654U);
  EXPECT_EQ(parse_start_time(""), std::nullopt);
  EXPECT_EQ(parse_start_time("42 (sleep) S 1 2 3"), std::nullopt);
  EXPECT_EQ(parse_start_time("42 (sleep) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x 20"), std::nullopt);
}

TEST(ProcessIdentity, own_start_time_stays_the_same_and_is_known_of_no_dead_process) {
  const auto first = process_start_time(::getpid());
  ASSERT_TRUE(first);
  EXPECT_EQ(process_start_time(::getpid()), first);
  auto child = ChildProcess::spawn({.executable = "/bin/true"});
  const pid_t pid = child.pid();
  ASSERT_TRUE(child.wait(Deadline::never()));
  EXPECT_EQ(process_start_time(pid), std::nullopt);
}

TEST(ProcessIdentity, failures_are_errors) {
  {
    const test::FaultSeam fail("open", EMFILE);
    test::expect_error(Errc::limit_reached, [] { static_cast<void>(process_start_time(1)); }, {"/proc/1/stat"});
  }
  {
    const test::FaultSeam fail("read", ESRCH);
    EXPECT_EQ(process_start_time(::getpid()), std::nullopt) << "it ended while it was looked at";
  }
  const test::FaultSeam fail("pidfd_open", EMFILE);
  test::expect_error(Errc::limit_reached, [] { static_cast<void>(open_pidfd(1)); }, {"pidfd_open"});
}

TEST(ProcessIdentity, pidfd_tells_of_death_and_kills_exactly_that_process) {
  auto child = ChildProcess::spawn({.executable = "/bin/sleep", .arguments = {"1000"}});
  const Fd pidfd = open_pidfd(child.pid());
  EXPECT_FALSE(has_ended(pidfd));
  kill_process(pidfd);
  const auto ended = child.wait(Deadline::never());
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->signal(), SIGKILL);
  EXPECT_TRUE(has_ended(pidfd));
  kill_process(pidfd);  // no error after it has ended
  test::expect_error(Errc::peer_lost, [&] { static_cast<void>(open_pidfd(child.pid())); }, {"ended before"});
}

TEST(ProcessIdentity, program_has_a_short_name) { EXPECT_EQ(program_name(), "session_test"); }

}  // namespace
}  // namespace drover::session
