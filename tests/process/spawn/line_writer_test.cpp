#include "process/spawn/line_writer.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <csignal>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "drover/base/fd.hpp"
#include "process/spawn/spawn_support.hpp"
#include "support/build.hpp"
#include "support/redirected.hpp"
#include "support/temporary_folder.hpp"

namespace drover::process {
namespace {

// Reads once what is available.
std::string read_some(const Fd& from) {
  std::array<char, 1 << 17> piece{};
  const auto length = ::read(from.get(), piece.data(), piece.size());
  return {piece.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

class BlockedPipeSignal {
 public:
  BlockedPipeSignal() {
    sigset_t set{};
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~BlockedPipeSignal() {
    const timespec none{};
    sigset_t set{};
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGPIPE);
    ::sigtimedwait(&set, nullptr, &none);  // consumes a pending signal
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedPipeSignal(const BlockedPipeSignal&) = delete;
  BlockedPipeSignal& operator=(const BlockedPipeSignal&) = delete;

 private:
  sigset_t before_{};
};

TEST(LineWriter, lines_arrive_in_order) {
  const auto [reader, target] = test::make_pipe();
  LineWriter writer(target.get());
  EXPECT_TRUE(writer.is_empty());
  writer.put("one\n");
  writer.put("two\n");
  EXPECT_FALSE(writer.is_empty());
  writer.write_some();
  EXPECT_TRUE(writer.is_empty());
  EXPECT_EQ(read_some(reader), "one\ntwo\n");
}

TEST(LineWriter, slow_reader_blocks_nothing_and_gets_everything_later) {
  const auto [reader, target] = test::make_pipe();
  LineWriter writer(target.get());
  const std::string line(999, 'x');
  std::size_t lines = 0;
  for (; writer.has_room(); ++lines) {
    writer.put(line + "\n");
    writer.write_some();
  }
  EXPECT_FALSE(writer.is_empty());
  EXPECT_EQ(::fcntl(target.get(), F_GETFL) & O_NONBLOCK, 0) << "others share this flag";
  std::string all;
  while (all.size() < lines * 1000) {
    all += read_some(reader);
    writer.write_some();
  }
  EXPECT_TRUE(writer.is_empty());
  EXPECT_TRUE(writer.has_room());
  for (std::size_t i = 0; i < lines; ++i) ASSERT_EQ(all.substr(i * 1000, 1000), line + "\n");
}

// A write that is cut would let what others write come between the parts of a line.
TEST(LineWriter, full_pipe_accepts_whole_lines_or_nothing) {
  const auto [reader, target] = test::make_pipe();
  LineWriter writer(target.get());
  const std::string line(3000, 'x');
  while (writer.has_room()) {
    writer.put(line + "\n");
    writer.write_some();
  }
  ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  std::string all;
  for (std::string piece; !(piece = read_some(reader)).empty();) all += piece;
  EXPECT_EQ(all.size() % 3001, 0U);
}

TEST(LineWriter, lines_for_a_closed_pipe_are_dropped) {
  const BlockedPipeSignal blocked;
  auto [reader, target] = test::make_pipe();
  reader.reset();
  LineWriter writer(target.get());
  writer.put("lost\n");
  writer.write_some();
  EXPECT_TRUE(writer.is_empty());
  writer.put("lost again\n");
  writer.write_some();
  EXPECT_TRUE(writer.is_empty());
}

TEST(LineWriter, closed_descriptor_and_full_disk_lose_the_lines) {
  LineWriter closed(7777);
  closed.put("lost\n");
  closed.write_some();
  EXPECT_TRUE(closed.is_empty());
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  LineWriter disk(full.get());
  disk.put("lost\n");
  disk.write_some();
  EXPECT_TRUE(disk.is_empty());
}

TEST(LineWriter, file_is_written_where_its_position_is) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "file";
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::write(file.get(), "ours\n", 5), 5);
  LineWriter writer(file.get());
  writer.put("theirs\n");
  writer.write_some();
  ASSERT_EQ(::write(file.get(), "ours\n", 5), 5);
  std::ifstream content(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(content), {}), "ours\ntheirs\nours\n");
}

TEST(LineWriter, socket_is_written_without_waiting) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Fd reader(ends[0]);
  const Fd target(ends[1]);
  LineWriter writer(target.get());
  writer.put("hello\n");
  writer.write_some();
  EXPECT_EQ(read_some(reader), "hello\n");
  for (int i = 0; writer.has_room() && i < 100000; ++i) {
    writer.put(std::string(4000, 'x') + "\n");
    writer.write_some();
  }
  EXPECT_FALSE(writer.has_room()) << "it does not read, so the lines pile up here";
}

TEST(LineWriter, dropping_forgets_what_was_not_written) {
  LineWriter writer(7777);
  writer.put("one\n");
  writer.drop();
  EXPECT_TRUE(writer.is_empty());
  EXPECT_TRUE(writer.has_room());
}

// Uses up all descriptors, so that no file can be opened.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit tight = before_;
    tight.rlim_cur = static_cast<rlim_t>(Fd(::dup(0)).get());
    ::setrlimit(RLIMIT_NOFILE, &tight);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(LineWriter, stream_that_cannot_be_reopened_does_not_block) {
  if (test::kIsSanitized) GTEST_SKIP() << "sanitizers need descriptors of their own";
  const auto [reader, target] = test::make_pipe();
  const NoDescriptors none;
  LineWriter writer(target.get());
  while (writer.has_room()) {
    writer.put(std::string(999, 'x') + "\n");
    writer.write_some();
  }
  EXPECT_FALSE(writer.is_empty());
  EXPECT_EQ(read_some(reader).size() % 1000, 0U);
}

TEST(LogWithoutWaiting, line_is_as_any_other_and_is_lost_where_there_is_no_room) {
  test::Redirected error(STDERR_FILENO);
  log_nonblocking(LogLevel::warn, "something");
  EXPECT_EQ(error.read_line(), "drover[" + std::to_string(::getpid()) + "] warn: something");
  for (int i = 0; i < 1000; ++i) log_nonblocking(LogLevel::warn, std::string(1000, 'x'));  // more than a pipe holds
  EXPECT_LT(error.read_rest().size(), 1000 * 1000U);
}

}  // namespace
}  // namespace drover::process
