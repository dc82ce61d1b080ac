// What a child is given when it is started, and what happens when it cannot be.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "drover/process/child_process.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/spawn/spawn.hpp"
#include "process/spawn/spawn_support.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/leftovers.hpp"
#include "support/peer_group.hpp"
#include "support/run_program.hpp"
#include "support/scoped_environment.hpp"

namespace drover::process {
namespace {

using test::FaultSeam;
using test::ScopedEnvironment;

std::string spawned_output(SpawnOptions options) {
  auto result = test::run_program(std::move(options));
  EXPECT_TRUE(result.status.is_success()) << result.status.to_string() << ": " << result.output;
  return result.output;
}

// Moves to a free number, far above those that this program uses.
Fd moved_to(Fd fd, int number) {
  if (::fcntl(number, F_GETFD) != -1) throw std::logic_error("the number is taken");
  if (::dup3(fd.get(), number, O_CLOEXEC) != number) throw std::runtime_error("dup3");
  return Fd(number);
}

std::string read_to_end(const Fd& from) {
  std::string text;
  std::array<char, 256> piece{};
  for (ssize_t length = 0; (length = ::read(from.get(), piece.data(), piece.size())) > 0;) {
    text.append(piece.data(), static_cast<std::size_t>(length));
  }
  return text;
}

void run_to_success(const SpawnOptions& options) {
  auto child = ChildProcess::spawn(options);
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::exited(0));
}

TEST(Spawn, arguments_arrive_as_they_are) {
  SpawnOptions options = test::shell_program(R"(printf '%s|' "$0" "$@")");
  for (const char* const argument : {"plain", "with space", "", "quo'te\"d", "a\nb", "--flag=*"}) {
    options.arguments.emplace_back(argument);
  }
  EXPECT_EQ(spawned_output(options), "plain|with space||quo'te\"d|a\nb|--flag=*|");
}

TEST(Spawn, environment_is_inherited_with_overrides_applied) {
  const ScopedEnvironment kept("DROVER_TEST_KEPT", "ours");
  const ScopedEnvironment replaced("DROVER_TEST_REPLACED", "ours");
  SpawnOptions options =
      test::shell_program(R"(printf '%s|' "$DROVER_TEST_KEPT" "$DROVER_TEST_REPLACED" "$DROVER_TEST_ADDED")");
  options.environment = {{"DROVER_TEST_REPLACED", "theirs = new"}, {"DROVER_TEST_ADDED", ""}};
  EXPECT_EQ(spawned_output(options), "ours|theirs = new||");
  EXPECT_STREQ(std::getenv("DROVER_TEST_REPLACED"), "ours");
}

TEST(Spawn, replaced_variable_appears_once_with_its_last_value) {
  const ScopedEnvironment replaced("DROVER_TEST_REPLACED", "ours");
  SpawnOptions options{.executable = "/usr/bin/env"};
  options.environment = {{"DROVER_TEST_REPLACED", "first"}, {"DROVER_TEST_REPLACED", "last"}};
  const auto output = spawned_output(options);
  EXPECT_NE(output.find("DROVER_TEST_REPLACED=last\n"), std::string::npos) << output;
  EXPECT_EQ(output.find("DROVER_TEST_REPLACED"), output.rfind("DROVER_TEST_REPLACED")) << output;
}

TEST(Spawn, variable_with_a_common_prefix_is_kept) {
  const ScopedEnvironment longer("DROVER_TEST_X_LONGER", "kept");
  SpawnOptions options = test::shell_program("printf %s \"$DROVER_TEST_X_LONGER\"");
  options.environment = {{"DROVER_TEST_X", "new"}};
  EXPECT_EQ(spawned_output(options), "kept");
}

TEST(Spawn, descriptor_arrives_under_the_number_asked_for) {
  auto [reader, writer] = test::make_pipe();
  SpawnOptions options = test::shell_program("echo hello >&7");
  options.inherit = {{writer.get(), 7}};
  run_to_success(options);
  writer.reset();
  EXPECT_EQ(read_to_end(reader), "hello\n");
}

TEST(Spawn, descriptor_may_keep_its_number) {
  auto [reader, writer] = test::make_pipe();
  writer = moved_to(std::move(writer), 69);
  SpawnOptions options = test::shell_program("echo hello >/proc/self/fd/69");
  options.inherit = {{69, 69}};
  run_to_success(options);
  EXPECT_EQ(::fcntl(69, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC) << "ours must stay closed on exec";
  writer.reset();
  EXPECT_EQ(read_to_end(reader), "hello\n");
}

TEST(Spawn, one_descriptor_may_go_to_several_numbers) {
  auto [reader, writer] = test::make_pipe();
  SpawnOptions options = test::shell_program("echo one >&5; echo two >&6");
  options.inherit = {{writer.get(), 5}, {writer.get(), 6}};
  run_to_success(options);
  writer.reset();
  EXPECT_EQ(read_to_end(reader), "one\ntwo\n");
}

// Descriptors of the parent whose numbers the child also uses must not be overwritten.
TEST(Spawn, descriptors_may_change_places) {
  auto first = test::make_pipe();
  auto second = test::make_pipe();
  first.writer = moved_to(std::move(first.writer), 68);
  second.writer = moved_to(std::move(second.writer), 69);
  SpawnOptions options = test::shell_program("echo to eight >/proc/self/fd/68; echo to nine >/proc/self/fd/69");
  options.inherit = {{68, 69}, {69, 68}};
  run_to_success(options);
  first.writer.reset();
  second.writer.reset();
  EXPECT_EQ(read_to_end(first.reader), "to nine\n");
  EXPECT_EQ(read_to_end(second.reader), "to eight\n");
}

TEST(Spawn, chain_of_overlapping_descriptors_arrives_whole) {
  auto first = test::make_pipe();
  auto second = test::make_pipe();
  first.writer = moved_to(std::move(first.writer), 68);
  second.writer = moved_to(std::move(second.writer), 67);
  SpawnOptions options = test::shell_program("echo first >/proc/self/fd/69; echo second >/proc/self/fd/68");
  options.inherit = {{67, 68}, {68, 69}};
  run_to_success(options);
  first.writer.reset();
  second.writer.reset();
  EXPECT_EQ(read_to_end(first.reader), "first\n");
  EXPECT_EQ(read_to_end(second.reader), "second\n");
}

// A leaked descriptor would keep a channel open forever and hide its end.
TEST(Spawn, nothing_else_is_inherited) {
  const Fd forgotten(::open("/dev/null", O_RDONLY));  // NOLINT(android-cloexec-open): as careless code does
  const Fd high(::fcntl(forgotten.get(), F_DUPFD, 200));
  SpawnOptions options = test::shell_program("ls /proc/self/fd");
  options.inherit = {{forgotten.get(), 6}};
  // 0 to 2, the one asked for, and the directory that ls itself reads.
  EXPECT_EQ(spawned_output(options), "0\n1\n2\n3\n6\n");
}

TEST(Spawn, descriptor_that_is_not_open_is_refused) {
  SpawnOptions options = test::shell_program("exit 0");
  for (const auto& pair : {std::pair{-1, 5}, std::pair{7777, 5}, std::pair{1, -1}}) {
    options.inherit = {pair};
    test::expect_error(Errc::system, [&] { static_cast<void>(ChildProcess::spawn(options)); },
                       {"Bad file descriptor"});
  }
}

// The set behind "NAME:" in the text of /proc/PID/status, without the two signals that the C library keeps for
// itself.
std::uint64_t signals_in(const std::string& status, const std::string& name) {
  constexpr std::uint64_t kOfTheLibrary = std::uint64_t{3} << 31U;
  return std::stoull(status.substr(status.find(name + ":") + name.size() + 1), nullptr, 16) & ~kOfTheLibrary;
}

TEST(Spawn, child_starts_with_no_signal_blocked_or_ignored) {
  sigset_t blocked{};
  sigset_t mask_before{};
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &mask_before);
  auto* const handler_before = std::signal(SIGPIPE, SIG_IGN);
  const auto status = spawned_output({.executable = "/bin/cat", .arguments = {"/proc/self/status"}});
  static_cast<void>(std::signal(SIGPIPE, handler_before));
  ::pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
  EXPECT_EQ(signals_in(status, "SigBlk"), 0U) << status;
  EXPECT_EQ(signals_in(status, "SigIgn"), 0U) << status;
}

TEST(Spawn, missing_program_is_not_found_and_named) {
  test::expect_error(Errc::not_found,
                     [] { static_cast<void>(ChildProcess::spawn({.executable = "/no/such/program"})); },
                     {"execve failed for program '/no/such/program'", "check the name"});
}

TEST(Spawn, detached_process_has_another_parent_and_nothing_to_wait_for) {
  auto ends = test::make_pipe();
  SpawnOptions options = test::shell_program("echo $PPID");
  options.inherit = {{ends.writer.get(), STDOUT_FILENO}};
  const auto spawned = spawn_detached(options);
  ends.writer.reset();
  std::array<char, 32> text{};
  ASSERT_GT(::read(ends.reader.get(), text.data(), text.size() - 1), 0);
  EXPECT_NE(std::atoi(text.data()), ::getpid());
  EXPECT_TRUE(pidfd_wait(spawned.pidfd.get(), Deadline::after(std::chrono::seconds(60))));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG | __WALL), -1) << "a child is left";
  EXPECT_EQ(errno, ECHILD);
}

TEST(Spawn, detached_program_that_is_missing_is_named) {
  const auto before = test::open_descriptors();
  test::expect_error(Errc::not_found, [] { static_cast<void>(spawn_detached({.executable = "/no/such/program"})); },
                     {"execve failed for program '/no/such/program'"});
  const FaultSeam fail("clone", EAGAIN);
  test::expect_error(Errc::limit_reached, [] { static_cast<void>(spawn_detached({.executable = "/bin/true"})); },
                     {"/bin/true"});
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST(Spawn, file_that_is_no_program_is_refused) {
  test::expect_error(Errc::permission_denied,
                     [] { static_cast<void>(ChildProcess::spawn({.executable = "/etc/passwd"})); }, {"/etc/passwd"});
}

TEST(Spawn, exhausted_process_limit_is_limit_reached) {
  const FaultSeam fail("clone", EAGAIN);
  test::expect_error(Errc::limit_reached,
                     [] { static_cast<void>(ChildProcess::spawn(test::shell_program("exit 0"))); },
                     {"/bin/sh", "processes"});
}

// clone returns the pidfd with the child or fails, so there is nothing to clean up.
TEST(Spawn, lack_of_descriptors_starts_nothing) {
  const auto before = test::open_descriptors();
  const FaultSeam fail("clone", EMFILE);
  test::expect_error(Errc::limit_reached,
                     [] { static_cast<void>(ChildProcess::spawn(test::shell_program("exec sleep 1000"))); },
                     {"clone failed for program '/bin/sh'", "ulimit -n"});
  EXPECT_EQ(fail.strikes(), 1);
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST(Spawn, many_children_come_and_go_without_a_trace) {
  const auto before = test::open_descriptors();
  {
    std::vector<ChildProcess> children;
    children.reserve(20);
    for (int i = 0; i < 20; ++i)
      children.push_back(ChildProcess::spawn(test::shell_program("exit " + std::to_string(i))));
    for (int i = 0; i < 20; i += 2) {
      EXPECT_EQ(children[static_cast<std::size_t>(i)].wait(Deadline::never()), ExitStatus::exited(i));
    }
  }
  EXPECT_EQ(test::open_descriptors(), before);
}

TEST(Spawn, strings_with_nul_bytes_or_invalid_names_are_rejected) {
  const std::string cut("a\0b", 3);
  const auto refuse = [](const SpawnOptions& options, const std::string& part) {
    test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(ChildProcess::spawn(options)); }, {part});
  };
  refuse({.executable = "/bin/true" + cut}, "path of a program");
  refuse({.executable = "/bin/true", .arguments = {"fine", cut}}, "argument of a new process contains a zero byte");
  refuse({.executable = "/bin/true", .environment = {{"NAME", cut}}}, "value of an environment variable");
  for (const std::string& name : {std::string(), std::string("A=B"), cut}) {
    refuse({.executable = "/bin/true", .environment = {{name, "x"}}}, "name of an environment variable");
    refuse({.executable = "/bin/true", .unset = {name}}, "name of an environment variable");
  }
  SpawnOptions options{.executable = "/bin/true"};
  options.placement.folder = cut;
  refuse(options, "working directory");
  options.placement.folder.clear();
  options.streams.output = StandardStream::file(cut);
  refuse(options, "path of a standard stream");
}

// As daemons do. What the child opens first would get the number.
DROVER_PEER_BODY(spawn_without_streams) {
  SpawnOptions options = test::shell_program("readlink /proc/self/fd/0 /proc/self/fd/2; echo lost >&2");
  options.streams.output = StandardStream::pipe();
  ::close(STDIN_FILENO);
  ::close(STDERR_FILENO);
  auto child = ChildProcess::spawn(options);
  EXPECT_EQ(read_to_end(child.take_pipe(STDOUT_FILENO)), "/dev/null\n/dev/null\n");
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::exited(0));
  EXPECT_GT(child.pidfd(), STDERR_FILENO) << "what is printed must not go there";
}

TEST(Spawn, stream_that_we_have_closed_is_null_in_the_child) {
  test::PeerGroup group("spawn_without_streams", {.mode = test::PeerMode::processes, .size = 1});
  group.start();
  group.expect_success();
}

}  // namespace
}  // namespace drover::process
