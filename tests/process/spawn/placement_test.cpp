// What is in force when a child starts: environment, CPUs, limits, niceness, directory, group and standard streams.
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "drover/process/child_process.hpp"
#include "process/spawn/spawn_support.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/leftovers.hpp"
#include "support/run_program.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace drover::process {
namespace {

using test::FaultSeam;
using test::ScopedEnvironment;

constexpr const char* kTellVariable = "DROVER_TEST_TELL_BEFORE_MAIN";

std::vector<int> own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

rlimit own_limit(int resource) {
  rlimit limit{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  return limit;
}

std::string describe_surroundings() {
  return fmt::format("cpus={} files={} files_hard={} core={} nice={} directory={} leads_session={} leads_group={}",
                     fmt::join(own_cpus(), ","), own_limit(RLIMIT_NOFILE).rlim_cur, own_limit(RLIMIT_NOFILE).rlim_max,
                     own_limit(RLIMIT_CORE).rlim_cur, ::getpriority(PRIO_PROCESS, 0),
                     std::filesystem::current_path().string(), ::getsid(0) == ::getpid(), ::getpgrp() == ::getpid());
}

// If asked to, prints its state before main, as a loaded library would see it.
struct TellBeforeMain {
  TellBeforeMain() {
    const char* const value = std::getenv(kTellVariable);
    if (value == nullptr) return;
    fmt::print("{} {}={}\n", describe_surroundings(), kTellVariable, value);
    static_cast<void>(std::fflush(stdout));
    ::_exit(0);
  }
};
const TellBeforeMain tell_before_main;

SpawnOptions this_program() {
  return {.executable = own_executable(), .arguments = {}, .environment = {{kTellVariable, "yes"}}, .inherit = {}};
}

std::string output_of(const SpawnOptions& options) {
  auto result = test::run_program(options);
  EXPECT_TRUE(result.status.is_success()) << result.status.to_string() << ": " << result.output;
  return result.output;
}

void expect_contains(const std::string& whole, const std::string& part) {
  EXPECT_NE(whole.find(part), std::string::npos) << "no '" << part << "' in: " << whole;
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string read_all(const Fd& from) {
  std::string text;
  std::array<char, 256> piece{};
  for (ssize_t length = 0; (length = ::read(from.get(), piece.data(), piece.size())) > 0;) {
    text.append(piece.data(), static_cast<std::size_t>(length));
  }
  return text;
}

void expect_refused(Errc code, const SpawnOptions& options, const std::vector<std::string>& parts) {
  const auto before = test::open_descriptors();
  test::expect_error(code, [&] { static_cast<void>(ChildProcess::spawn(options)); }, parts);
  EXPECT_EQ(test::open_descriptors(), before);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child was left";
}

TEST(Placement, everything_is_in_force_before_main) {
  const test::TemporaryFolder folder;
  auto options = this_program();
  options.placement = {.cpus = {own_cpus().back()},
                       .limits = {{.resource = RLIMIT_NOFILE, .soft = 123, .hard = 456},
                                  {.resource = RLIMIT_CORE, .soft = 0, .hard = {}}},
                       .niceness = 7,
                       .folder = folder.path()};
  options.group = ChildGroup::own_session;
  const auto said = output_of(options);
  expect_contains(said, fmt::format("cpus={} ", own_cpus().back()));
  expect_contains(said, "files=123 files_hard=456 core=0 nice=7 ");
  expect_contains(said, "directory=" + folder.path().string());
  expect_contains(said, "leads_session=true leads_group=true");
}

TEST(Placement, without_options_everything_is_inherited) {
  const auto* const group = ::getpgrp() == ::getpid() ? "" : "leads_group=false";
  expect_contains(output_of(this_program()),
                  fmt::format("cpus={} files={} files_hard={}", fmt::join(own_cpus(), ","),
                              own_limit(RLIMIT_NOFILE).rlim_cur, own_limit(RLIMIT_NOFILE).rlim_max));
  expect_contains(output_of(this_program()), fmt::format("directory={}", std::filesystem::current_path().string()));
  expect_contains(output_of(this_program()), group);
}

TEST(Placement, our_own_process_is_not_changed) {
  const auto before = describe_surroundings();
  auto options = this_program();
  options.placement = {.cpus = {own_cpus().front()},
                       .limits = {{.resource = RLIMIT_NOFILE, .soft = 99, .hard = 99}},
                       .niceness = 11,
                       .folder = "/"};
  options.group = ChildGroup::own_group;
  static_cast<void>(output_of(options));
  EXPECT_EQ(describe_surroundings(), before);
}

TEST(Placement, limit_beyond_the_hard_limit_is_capped) {
  auto options = this_program();
  options.placement.limits = {{.resource = RLIMIT_NOFILE}};
  const auto hard = own_limit(RLIMIT_NOFILE).rlim_max;
  expect_contains(output_of(options), fmt::format("files={} files_hard={}", hard, hard));
}

// A limit below the number of a descriptor must not keep it from going over.
TEST(Placement, low_limit_on_descriptors_does_not_hinder_their_hand_over) {
  const Fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  auto options = test::shell_program("test -e /proc/self/fd/60 && echo there");
  options.inherit = {{null.get(), 60}};
  options.placement.limits = {{.resource = RLIMIT_NOFILE, .soft = 20, .hard = 20}};
  EXPECT_EQ(output_of(options), "there\n");
}

TEST(Placement, group_of_its_own_is_not_a_session_of_its_own) {
  auto options = this_program();
  options.group = ChildGroup::own_group;
  expect_contains(output_of(options), "leads_session=false leads_group=true");
}

TEST(Placement, relative_program_starts_at_the_working_directory_of_the_parent) {
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path("/bin");
  auto options = SpawnOptions{.executable = "./sh", .arguments = {"-c", "pwd"}};
  options.placement.folder = "/tmp";
  EXPECT_EQ(output_of(options), std::filesystem::canonical("/tmp").string() + "\n");
  std::filesystem::current_path(here);
}

TEST(Environment, variable_can_be_removed) {
  const ScopedEnvironment gone("DROVER_TEST_GONE", "ours");
  const ScopedEnvironment longer("DROVER_TEST_GONE_NOT", "kept");
  auto options = test::shell_program(R"(printf '%s|' "${DROVER_TEST_GONE-unset}" "${DROVER_TEST_GONE_NOT-unset}")");
  options.unset = {"DROVER_TEST_GONE", "DROVER_TEST_NEVER_WAS"};
  EXPECT_EQ(output_of(options), "unset|kept|");
}

TEST(Environment, variable_that_is_removed_and_set_is_set) {
  const ScopedEnvironment gone("DROVER_TEST_GONE", "ours");
  auto options = test::shell_program("printf %s \"$DROVER_TEST_GONE\"");
  options.unset = {"DROVER_TEST_GONE"};
  options.environment = {{"DROVER_TEST_GONE", "theirs"}};
  EXPECT_EQ(output_of(options), "theirs");
}

TEST(StandardStreams, null_reads_nothing_and_takes_everything) {
  auto options = test::shell_program("cat; echo lost; echo lost >&2");
  options.streams = {StandardStream::null(), StandardStream::null(), StandardStream::null()};
  auto child = ChildProcess::spawn(options);
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::exited(0));
}

TEST(StandardStreams, files_are_read_and_appended_to) {
  const test::TemporaryFolder folder;
  const auto input = folder.path() / "input";
  const auto output = folder.path() / "output";
  std::ofstream(input) << "given\n";
  std::ofstream(output) << "before\n";
  auto options = test::shell_program("cat; echo problem >&2");
  options.streams = {StandardStream::file(input), StandardStream::file(output), StandardStream::file(output)};
  auto child = ChildProcess::spawn(options);
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::exited(0));
  EXPECT_EQ(content_of(output), "before\ngiven\nproblem\n");
}

TEST(StandardStreams, pipes_lead_to_us) {
  auto options = test::shell_program("read line; echo \"got $line\"; echo problem >&2");
  options.streams = {StandardStream::pipe(), StandardStream::pipe(), StandardStream::pipe()};
  auto child = ChildProcess::spawn(options);
  Fd input = child.take_pipe(STDIN_FILENO);
  ASSERT_EQ(::write(input.get(), "word\n", 5), 5);
  EXPECT_EQ(read_all(child.take_pipe(STDOUT_FILENO)), "got word\n");
  EXPECT_EQ(read_all(child.take_pipe(STDERR_FILENO)), "problem\n");
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::exited(0));
  EXPECT_FALSE(child.take_pipe(STDOUT_FILENO).is_open()) << "taken already";
  test::expect_error(Errc::invalid_argument, [&] { static_cast<void>(child.take_pipe(3)); }, {"0, 1 or 2"});
}

TEST(StandardStreams, inherited_descriptor_goes_before) {
  auto options = test::shell_program("echo hello");
  options.streams.output = StandardStream::null();
  EXPECT_EQ(output_of(options), "hello\n") << "run_program passes its pipe by SpawnOptions::inherit";
}

TEST(StandardStreams, named_pipe_for_output_needs_a_reader) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  SpawnOptions options{.executable = "/bin/echo", .arguments = {"hello"}};
  options.streams.output = StandardStream::file(path);
  test::expect_error(Errc::not_found, [&] { static_cast<void>(ChildProcess::spawn(options)); },
                     {path, "has no reader"});
  const Fd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_EQ(ChildProcess::spawn(options).wait(Deadline::never()), ExitStatus::exited(0));
  std::array<char, 16> text{};
  EXPECT_EQ(::read(reader.get(), text.data(), text.size()), 6);
  options = {
      .executable = "/bin/sh", .arguments = {"-c", "grep flags /proc/self/fdinfo/1 >&2"}, .streams = options.streams};
  options.streams.error = StandardStream::pipe();
  auto child = ChildProcess::spawn(options);
  const Fd error = child.take_pipe(STDERR_FILENO);
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::exited(0));
  std::string flags(64, '\0');
  flags.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(error.get(), flags.data(), flags.size()))));
  EXPECT_EQ(std::stoi(flags.substr(flags.find('0')), nullptr, 8) & O_NONBLOCK, 0) << "the child may wait";
}

TEST(StandardStreams, file_that_cannot_be_opened_is_named) {
  auto options = test::shell_program("exit 0");
  options.streams.input = StandardStream::file("/no/such/file");
  expect_refused(Errc::not_found, options, {"open failed", "/no/such/file"});
  options.streams = {};
  options.streams.output = StandardStream::pipe();
  const FaultSeam fail("pipe2", EMFILE);
  expect_refused(Errc::limit_reached, options, {"pipe2"});
}

TEST(SpawnFailure, cpu_that_is_not_there_is_named) {
  auto options = test::shell_program("exit 0");
  options.placement.cpus = {4000, 4001};
  expect_refused(Errc::invalid_argument, options, {"sched_setaffinity failed for program '/bin/sh', CPUs 4000,4001"});
  options.placement.cpus = {-1};
  expect_refused(Errc::invalid_argument, options, {"out of range"});
}

TEST(SpawnFailure, directory_that_is_not_there_is_named) {
  auto options = test::shell_program("exit 0");
  options.placement.folder = "/no/such/folder";
  expect_refused(Errc::not_found, options, {"chdir failed", "/bin/sh", "/no/such/folder"});
}

TEST(SpawnFailure, limit_that_does_not_exist_or_is_refused_is_named) {
  auto options = test::shell_program("exit 0");
  options.placement.limits = {{.resource = 99}};
  expect_refused(Errc::invalid_argument, options, {"getrlimit failed for limit 99"});
  options.placement.limits = {{.resource = RLIMIT_CORE, .soft = 1, .hard = 2}};
  const FaultSeam fail("prlimit", EPERM);
  expect_refused(Errc::permission_denied, options, {"prlimit failed for program '/bin/sh', RLIMIT_CORE of 1 and 2"});
}

TEST(SpawnFailure, niceness_out_of_range_is_refused) {
  auto options = test::shell_program("exit 0");
  for (const int niceness : {-21, 20}) {
    options.placement.niceness = niceness;
    expect_refused(Errc::invalid_argument, options, {"from -20 to 19"});
  }
}

TEST(SpawnFailure, every_step_of_the_child_is_named_when_it_fails) {
  auto options = test::shell_program("exit 0");
  options.placement = {.cpus = own_cpus(), .limits = {{.resource = RLIMIT_NOFILE}}, .niceness = 19, .folder = "/"};
  options.group = ChildGroup::own_session;
  options.parent_death_signal = SIGKILL;
  options.streams.input = StandardStream::null();
  for (const char* const call :
       {"setsid", "prctl", "setpriority", "sched_setaffinity", "chdir", "dup3", "close_range", "prlimit", "execve"}) {
    SCOPED_TRACE(call);
    const FaultSeam fail(call, EACCES);
    expect_refused(Errc::permission_denied, options, {fmt::format("{} failed for program '/bin/sh'", call)});
    EXPECT_EQ(fail.strikes(), 1);
  }
  options.group = ChildGroup::own_group;
  const FaultSeam fail("setpgid", EACCES);
  expect_refused(Errc::permission_denied, options, {"setpgid failed"});
}

TEST(Spawn, handlers_of_the_parent_do_not_reach_the_child_and_stay_in_place) {
  static volatile std::sig_atomic_t handled = 0;
  auto* const before = std::signal(SIGUSR1, [](int) { handled = handled + 1; });
  auto child = ChildProcess::spawn(test::shell_program("kill -USR1 $$; exit 0"));
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::killed(SIGUSR1));
  EXPECT_EQ(handled, 0);
  std::raise(SIGUSR1);
  EXPECT_EQ(handled, 1);
  static_cast<void>(std::signal(SIGUSR1, before));
}

}  // namespace
}  // namespace drover::process
