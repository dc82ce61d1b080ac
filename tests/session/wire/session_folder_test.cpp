#include "session/wire/session_folder.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace drover::session {
namespace {

namespace fs = std::filesystem;

class SessionFolderTest : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path path() const { return runtime_.path() / "drover"; }
  [[nodiscard]] bool has(const std::string& entry) const { return fs::exists(path() / entry); }

  test::TemporaryFolder runtime_;
  test::ScopedEnvironment variable_{"XDG_RUNTIME_DIR", runtime_.path().string()};
};

TEST(SessionName, error_has_the_rules) {
  for (const char* const name : {"a", "train-7", "A.b_c", "0"}) EXPECT_NO_THROW(check_session_name(name)) << name;
  EXPECT_NO_THROW(check_session_name(std::string(63, 'x')));
  for (const char* const name : {"", ".hidden", "-x", "a/b", "..", "a b", "ä", "a\n"}) {
    SCOPED_TRACE(name);
    test::expect_error(Errc::invalid_argument, [&] { check_session_name(name); }, {"letters, digits"});
  }
  test::expect_error(Errc::invalid_argument, [] { check_session_name(std::string(64, 'x')); }, {"1 to 63"});
}

TEST_F(SessionFolderTest, is_made_private_in_the_runtime_directory) {
  const auto folder = SessionFolder::open();
  EXPECT_EQ(folder.path(), path());
  struct stat facts{};
  ASSERT_EQ(::stat(path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777U, 0700U);
  EXPECT_TRUE(folder.names().empty());
}

TEST_F(SessionFolderTest, runtime_directory_that_is_not_ours_is_not_used) {
  const std::string own = "/tmp/drover-" + std::to_string(::geteuid());
  for (const char* const elsewhere : {"/nonexistent", "relative", "/proc/self/exe"}) {
    const test::ScopedEnvironment other("XDG_RUNTIME_DIR", elsewhere);
    EXPECT_EQ(SessionFolder::open().path(), own);
  }
  const test::ScopedEnvironment none("XDG_RUNTIME_DIR", std::nullopt);
  EXPECT_EQ(SessionFolder::open().path(), own);
}

TEST_F(SessionFolderTest, directory_open_to_others_is_refused) {
  fs::create_directory(path());
  ASSERT_EQ(::chmod(path().c_str(), 0750), 0);
  test::expect_error(Errc::permission_denied, [] { static_cast<void>(SessionFolder::open()); },
                     {"open to others (mode 0750)", "XDG_RUNTIME_DIR"});
}

TEST_F(SessionFolderTest, link_or_file_in_its_place_is_refused) {
  fs::create_directory(runtime_.path() / "elsewhere");
  fs::create_directory_symlink(runtime_.path() / "elsewhere", path());
  test::expect_error(Errc::permission_denied, [] { static_cast<void>(SessionFolder::open()); },
                     {"is a link or a file"});
  fs::remove(path());
  std::ofstream(path()) << "x";
  test::expect_error(Errc::permission_denied, [] { static_cast<void>(SessionFolder::open()); },
                     {"is a link or a file"});
}

TEST_F(SessionFolderTest, directory_of_another_user_is_refused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory to another user";
  fs::create_directory(path());
  ASSERT_EQ(::chmod(path().c_str(), 0700), 0);
  ASSERT_EQ(::chown(path().c_str(), 65534, 65534), 0);
  test::expect_error(Errc::permission_denied, [] { static_cast<void>(SessionFolder::open()); },
                     {"belongs to user 65534, not to user 0"});
}

TEST_F(SessionFolderTest, failing_calls_are_errors_that_name_the_directory) {
  for (const auto& [call, error] :
       {std::pair("mkdir", ENOSPC), std::pair("open", EMFILE), std::pair("fstat", EMFILE)}) {
    SCOPED_TRACE(call);
    const test::FaultSeam fail(call, error);
    test::expect_error(Errc::limit_reached, [] { static_cast<void>(SessionFolder::open()); },
                       {call, path().string()});
  }
  const test::FaultSeam fail("open", EACCES);
  test::expect_error(Errc::permission_denied, [] { static_cast<void>(SessionFolder::open()); },
                     {"permission denied"});
}

TEST_F(SessionFolderTest, missing_keeper_is_not_an_error) {
  const auto folder = SessionFolder::open();
  EXPECT_FALSE(folder.connect("none"));
  const auto lock = folder.try_lock("stale");
  static_cast<void>(folder.listen("stale"));  // closed at once
  EXPECT_TRUE(has("stale.sock"));
  EXPECT_FALSE(folder.connect("stale"));
}

TEST_F(SessionFolderTest, listening_keeper_is_found_and_listed) {
  const auto folder = SessionFolder::open();
  const auto lock = folder.try_lock("here");
  const Fd listener = folder.listen("here");
  EXPECT_TRUE(folder.connect("here"));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"here"});
  EXPECT_FALSE(has("here.new"));
  folder.remove("here");
  EXPECT_TRUE(fs::is_empty(path()));
}

// A stopped keeper: connecting must not wait for it.
TEST_F(SessionFolderTest, full_backlog_differs_from_no_keeper) {
  const auto folder = SessionFolder::open();
  const auto lock = folder.try_lock("slow");
  const Fd listener = folder.listen("slow");
  std::vector<Fd> waiting;
  bool is_full = false;
  while (auto connection = folder.connect("slow", &is_full)) {
    waiting.push_back(std::move(*connection));
    ASSERT_LT(waiting.size(), 1000U);
  }
  EXPECT_TRUE(is_full);
  EXPECT_FALSE(folder.connect("nobody", &is_full));
  EXPECT_FALSE(is_full);
  EXPECT_GE(waiting.size(), 1U);
}

TEST_F(SessionFolderTest, lock_has_one_holder_and_ends_with_it) {
  const auto folder = SessionFolder::open();
  auto first = folder.try_lock("one");
  ASSERT_TRUE(first);
  EXPECT_FALSE(folder.try_lock("one"));
  EXPECT_TRUE(folder.try_lock("other"));
  first->reset();
  EXPECT_TRUE(folder.try_lock("one"));
}

TEST_F(SessionFolderTest, pipe_in_place_of_a_file_is_an_error_not_a_hang) {
  const auto folder = SessionFolder::open();
  for (const char* const entry : {"pipe.log", "pipe.lock"}) {
    ASSERT_EQ(::mkfifo((std::filesystem::path(folder.path()) / entry).c_str(), 0600), 0);
  }
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(folder.open_log("pipe")); }, {"'pipe.log'"});
  test::expect_error(Errc::corrupt, [&] { static_cast<void>(folder.try_lock("pipe")); }, {"'pipe.lock'"});
  for (const char* const entry : {"pipe.log", "pipe.lock"}) std::filesystem::remove(folder.path() + "/" + entry);
}

TEST_F(SessionFolderTest, lock_of_a_file_that_was_removed_is_not_a_lock) {
  const auto folder = SessionFolder::open();
  const auto old = folder.try_lock("again");
  folder.remove("again");
  const auto next = folder.try_lock("again");
  ASSERT_TRUE(next) << "the old one locks a file that nobody finds any more";
  EXPECT_FALSE(folder.try_lock("again"));
}

TEST_F(SessionFolderTest, leftovers_of_a_killed_keeper_are_removed_and_a_living_one_left_alone) {
  const auto folder = SessionFolder::open();
  {
    const auto lock = folder.try_lock("dead");
    static_cast<void>(folder.listen("dead"));
    static_cast<void>(folder.open_log("dead"));
  }
  const auto lock = folder.try_lock("alive");
  const Fd listener = folder.listen("alive");
  folder.remove_if_stale("dead");
  folder.remove_if_stale("alive");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"alive"});
  EXPECT_FALSE(has("dead.lock"));
  EXPECT_FALSE(has("dead.log"));
  EXPECT_TRUE(has("alive.lock"));
}

TEST_F(SessionFolderTest, stale_socket_is_replaced) {
  const auto folder = SessionFolder::open();
  const auto lock = folder.try_lock("name");
  static_cast<void>(folder.listen("name"));
  std::ofstream(path() / "name.new") << "left by one that was killed while it made its socket";
  const Fd listener = folder.listen("name");
  EXPECT_TRUE(folder.connect("name"));
}

TEST_F(SessionFolderTest, log_with_words_in_it_stays) {
  const auto folder = SessionFolder::open();
  const auto lock = folder.try_lock("talks");
  const Fd log = folder.open_log("talks");
  ASSERT_EQ(::write(log.get(), "words", 5), 5);
  folder.remove("talks");
  EXPECT_TRUE(has("talks.log"));
  EXPECT_FALSE(has("talks.lock"));
  static_cast<void>(folder.open_log("talks"));
  EXPECT_EQ(fs::file_size(path() / "talks.log"), 0U) << "the next session begins an empty one";
}

TEST_F(SessionFolderTest, failing_calls_of_a_name_are_errors_that_name_it) {
  const auto folder = SessionFolder::open();
  const auto expect = [&](const char* call, Errc code, int error, const std::function<void()>& action) {
    SCOPED_TRACE(call);
    const test::FaultSeam fail(call, error);
    test::expect_error(code, action, {call});
  };
  expect("socket", Errc::limit_reached, EMFILE, [&] { static_cast<void>(folder.connect("x")); });
  expect("connect", Errc::permission_denied, EACCES, [&] { static_cast<void>(folder.connect("x")); });
  expect("openat", Errc::limit_reached, EMFILE, [&] { static_cast<void>(folder.try_lock("x")); });
  expect("flock", Errc::unsupported, ENOSYS, [&] { static_cast<void>(folder.try_lock("x")); });
  expect("openat", Errc::limit_reached, ENOSPC, [&] { static_cast<void>(folder.open_log("x")); });
  for (const char* const call : {"setsockopt", "bind", "listen", "renameat"}) {
    expect(call, Errc::out_of_memory, ENOMEM, [&] { static_cast<void>(folder.listen("x")); });
  }
  folder.remove("x");
}

// Longer than the address of a socket can be; the sessions of a deep directory work all the same.
TEST(SessionFolderPath, length_does_not_matter) {
  const test::TemporaryFolder top;
  const fs::path deep = top.path() / std::string(100, 'a') / std::string(100, 'b');
  fs::create_directories(deep);
  const test::ScopedEnvironment variable("XDG_RUNTIME_DIR", deep.string());
  const auto folder = SessionFolder::open();
  const std::string name(63, 'n');
  const auto lock = folder.try_lock(name);
  const Fd listener = folder.listen(name);
  EXPECT_TRUE(folder.connect(name));
  folder.remove(name);
}

TEST_F(SessionFolderTest, holder_of_a_name_is_known_by_its_lock) {
  const auto folder = SessionFolder::open();
  EXPECT_EQ(folder.holder("mine"), std::nullopt);
  {
    const auto lock = folder.try_lock("mine");
    EXPECT_EQ(folder.holder("mine"), std::nullopt) << "it has not said who it is";
    SessionFolder::sign(*lock);
    EXPECT_EQ(folder.holder("mine"), ::getpid());
  }
  EXPECT_EQ(folder.holder("mine"), std::nullopt) << "nobody holds it any more";
  const test::FaultSeam fail("openat", EMFILE);
  test::expect_error(Errc::limit_reached, [&] { static_cast<void>(folder.holder("mine")); }, {"mine.lock"});
}

TEST_F(SessionFolderTest, files_are_removed_only_by_the_holder_of_the_current_lock) {
  const auto folder = SessionFolder::open();
  const auto old = folder.try_lock("aged");
  fs::remove(path() / "aged.lock");  // as systems do that clean up /tmp
  const auto next = folder.try_lock("aged");
  const Fd listener = folder.listen("aged");
  folder.remove_if_held("aged", *old);
  EXPECT_TRUE(has("aged.lock"));
  EXPECT_TRUE(has("aged.sock"));
  folder.remove_if_held("aged", *next);
  EXPECT_TRUE(fs::is_empty(path()));
}

// Left by keepers that were killed during their start, or by no keeper.
TEST_F(SessionFolderTest, names_are_found_by_any_file_of_a_session) {
  const auto folder = SessionFolder::open();
  for (const char* const file : {"a.lock", "b.new", "c.sock", "c.lock", "d.log", "e f.sock", ".sock", "g"}) {
    std::ofstream(path() / file) << "";
  }
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"a", "b", "c"}));
}

}  // namespace
}  // namespace drover::session
