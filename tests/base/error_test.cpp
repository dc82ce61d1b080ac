#include "drover/base/error.hpp"

#include <unistd.h>

#include <cerrno>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "support/expect_error.hpp"

namespace drover {
namespace {

TEST(Error, text_holds_message_code_remedy_and_place) {
  const Error error(Errc::busy, "the door is locked", "knock");
  EXPECT_EQ(error.code(), Errc::busy);
  EXPECT_EQ(error.message(), "the door is locked");
  EXPECT_EQ(error.remedy(), "knock");
  const std::string text = error.what();
  EXPECT_EQ(text.find("the door is locked\n  code: busy\n  remedy: knock\n  noticed at error_test.cpp:"), 0U) << text;
  EXPECT_NE(text.find(std::to_string(error.where().line())), std::string::npos) << text;
}

TEST(Error, text_without_remedy_has_no_remedy_line) {
  const std::string text = Error(Errc::internal, "impossible").what();
  EXPECT_EQ(text.find("remedy"), std::string::npos) << text;
}

TEST(Error, copy_has_the_same_text) {
  const Error error(Errc::corrupt, "torn", "mend");
  const Error copy = error;  // NOLINT(performance-unnecessary-copy-initialization): the copy is under test
  EXPECT_STREQ(copy.what(), error.what());
  EXPECT_EQ(copy.code(), error.code());
}

struct ErrnoCase {
  int number;
  Errc code;
  const char* part;

  friend void PrintTo(const ErrnoCase& self, std::ostream* out) {  // NOLINT(readability-identifier-naming)
    *out << "errno " << self.number;
  }
};

class ErrnoTranslation : public ::testing::TestWithParam<ErrnoCase> {};

TEST_P(ErrnoTranslation, code_and_remedy_follow_from_the_number) {
  const auto& [number, code, part] = GetParam();
  const auto error = error_from_errno(number, "call_x", "thing y");
  EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
  EXPECT_NE(error.message().find("call_x failed for thing y: "), std::string::npos) << error.what();
  EXPECT_NE(error.message().find("errno " + std::to_string(number)), std::string::npos) << error.what();
  EXPECT_NE(error.message().find("process " + std::to_string(::getpid())), std::string::npos) << error.what();
  EXPECT_NE(error.remedy().find(part), std::string::npos) << error.what();
}

INSTANTIATE_TEST_SUITE_P(
    Error, ErrnoTranslation,
    ::testing::Values(
        ErrnoCase{ENOMEM, Errc::out_of_memory, "memory"}, ErrnoCase{EMFILE, Errc::limit_reached, "ulimit -n"},
        ErrnoCase{ENFILE, Errc::limit_reached, "fs.file-max"}, ErrnoCase{EAGAIN, Errc::limit_reached, "ulimit -a"},
        ErrnoCase{ENOSPC, Errc::limit_reached, "space"}, ErrnoCase{ETOOMANYREFS, Errc::limit_reached, "ulimit -n"},
        ErrnoCase{EACCES, Errc::permission_denied, "user"}, ErrnoCase{EPERM, Errc::permission_denied, "container"},
        ErrnoCase{ENOENT, Errc::not_found, "name"}, ErrnoCase{EINVAL, Errc::invalid_argument, ""},
        ErrnoCase{EBUSY, Errc::busy, "holder"}, ErrnoCase{ENOSYS, Errc::unsupported, "Linux"},
        ErrnoCase{EPIPE, Errc::peer_lost, "ended"}, ErrnoCase{ECONNRESET, Errc::peer_lost, "ended"},
        ErrnoCase{ECHILD, Errc::not_found, "SIGCHLD"}, ErrnoCase{ETIMEDOUT, Errc::timed_out, ""},
        ErrnoCase{EIO, Errc::system, ""}, ErrnoCase{12345, Errc::system, ""}),
    [](const auto& number) { return "errno_" + std::to_string(number.param.number); });

TEST(Error, throw_errno_reads_errno) {
  errno = ENOSPC;
  test::expect_error(Errc::limit_reached, [] { throw_errno("write", "file 'x'"); }, {"write failed for file 'x'"});
}

TEST(Error, require_throws_only_if_the_condition_is_false) {
  EXPECT_NO_THROW(require(true, "never seen"));
  test::expect_error(Errc::invalid_argument, [] { require(false, "0 is too few", "ask for more"); },
                     {"0 is too few", "ask for more", "error_test.cpp"});
}

}  // namespace
}  // namespace drover
