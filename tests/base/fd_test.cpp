#include "drover/base/fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <gtest/gtest.h>

#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"

namespace drover {
namespace {

using test::CapturedLog;
using test::FaultSeam;

bool is_open_number(int number) { return ::fcntl(number, F_GETFD) != -1; }

Fd open_null() { return Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)); }

TEST(Fd, empty_fd_owns_nothing) {
  const Fd fd;
  EXPECT_FALSE(fd.is_open());
  EXPECT_EQ(fd.get(), -1);
}

TEST(Fd, destruction_closes) {
  int number = -1;
  {
    const Fd fd = open_null();
    ASSERT_TRUE(fd.is_open());
    number = fd.get();
    EXPECT_TRUE(is_open_number(number));
  }
  EXPECT_FALSE(is_open_number(number));
}

TEST(Fd, move_leaves_the_source_empty) {
  Fd first = open_null();
  const int number = first.get();
  const Fd second = std::move(first);
  EXPECT_FALSE(first.is_open());  // NOLINT(bugprone-use-after-move): under test
  EXPECT_EQ(second.get(), number);
  EXPECT_TRUE(is_open_number(number));
}

TEST(Fd, move_assignment_closes_the_old_descriptor) {
  Fd first = open_null();
  Fd second = open_null();
  const int lost = first.get();
  const int kept = second.get();
  first = std::move(second);
  EXPECT_EQ(first.get(), kept);
  EXPECT_FALSE(is_open_number(lost));
  EXPECT_TRUE(is_open_number(kept));
}

TEST(Fd, move_to_itself_changes_nothing) {
  Fd fd = open_null();
  Fd& alias = fd;
  fd = std::move(alias);
  EXPECT_TRUE(is_open_number(fd.get()));
}

TEST(Fd, release_gives_up_ownership) {
  Fd fd = open_null();
  const int number = fd.release();
  EXPECT_FALSE(fd.is_open());
  EXPECT_TRUE(is_open_number(number));
  ::close(number);
}

TEST(Fd, reset_twice_closes_once) {
  const CapturedLog log;
  Fd fd = open_null();
  fd.reset();
  fd.reset();
  EXPECT_TRUE(log.lines().empty());
}

TEST(Fd, failed_close_is_logged_with_the_number) {
  const CapturedLog log;
  Fd fd = open_null();
  const int number = fd.get();
  ::close(number);
  fd.reset();
  EXPECT_TRUE(log.contains("warn: close failed"));
  EXPECT_TRUE(log.contains(": " + std::to_string(number)));
}

TEST(Fd, interrupted_close_is_not_repeated) {
  const CapturedLog log;
  Fd fd = open_null();
  const int number = fd.get();
  {
    const FaultSeam interrupt("close", EINTR);
    fd.reset();
    EXPECT_EQ(interrupt.calls(), 1);
  }
  EXPECT_TRUE(log.lines().empty());
  EXPECT_FALSE(fd.is_open());
  ::close(number);  // the seam suppressed the real call
}

TEST(Fd, duplicate_is_the_same_file_closed_on_exec) {
  const Fd fd = open_null();
  const Fd copy = fd.duplicate();
  EXPECT_NE(copy.get(), fd.get());
  EXPECT_GE(copy.get(), 3);
  EXPECT_EQ(::fcntl(copy.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  struct stat one{};
  struct stat other{};
  ASSERT_EQ(::fstat(fd.get(), &one), 0);
  ASSERT_EQ(::fstat(copy.get(), &other), 0);
  EXPECT_EQ(one.st_ino, other.st_ino);
}

TEST(Fd, duplicate_without_free_descriptors_is_limit_reached) {
  const Fd fd = open_null();
  const FaultSeam fail("fcntl", EMFILE);
  test::expect_error(Errc::limit_reached, [&] { static_cast<void>(fd.duplicate()); },
                     {"file descriptor " + std::to_string(fd.get()), "ulimit -n"});
}

TEST(Fd, duplicate_of_an_empty_fd_is_an_error) {
  test::expect_error(Errc::system, [] { static_cast<void>(Fd{}.duplicate()); }, {"file descriptor -1"});
}

}  // namespace
}  // namespace drover
