// Children that are forked from a template: they are what children of the usual kind are.
#include "process/template/template.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "drover/process/child_process.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/inspect/process_table.hpp"
#include "process/spawn/spawner.hpp"
#include "process/template/stand_in_template.hpp"
#include "support/captured_log.hpp"
#include "support/expect_error.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"
#include "support/waiting_child.hpp"

namespace drover::process {
namespace {

using namespace std::chrono_literals;
using test::comes_true;
using test::stand_in;

std::string all_of(const Fd& from) {
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t length = 0; (length = ::read(from.get(), piece.data(), piece.size())) > 0;) {
    text.append(piece.data(), static_cast<std::size_t>(length));
  }
  return text;
}

std::string said_by(SpawnOptions options) {
  options.streams.output = StandardStream::pipe();
  auto child = ChildProcess::spawn(options);
  auto text = all_of(child.take_pipe(STDOUT_FILENO));
  const auto status = child.wait(Deadline::never());
  EXPECT_TRUE(status && status->is_success()) << (status ? status->to_string() : "") << ": " << text;
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// The output of a cloned and of a forked child. The number of forks tells them apart.
std::pair<std::string, std::string> both_ways(Template& used, const SpawnOptions& options) {
  Template::use_none();
  const auto usual = said_by(options);
  used.use();
  const auto before = used.forks();
  auto forked = said_by(options);
  EXPECT_EQ(used.forks(), before + 1) << "it was not forked";
  return {usual, forked};
}

bool is_gone(pid_t pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

class TemplateTest : public testing::Test {
 protected:
  void use(const std::string& manner, std::chrono::milliseconds patience = 60s) {
    auto command = stand_in(manner);
    command.patience = patience;
    used_ = std::make_unique<Template>(command);
    used_->use();
  }
  void TearDown() override { Template::use_none(); }
  Template& used() { return *used_; }

 private:
  std::unique_ptr<Template> used_;
};

TEST_F(TemplateTest, tells_how_a_child_ended) {
  use("serves");
  for (const int status : {0, 1, 64, 127, 254, 255}) {
    EXPECT_EQ(ChildProcess::spawn(test::shell("exit " + std::to_string(status))).wait(Deadline::never()),
              ExitStatus::exited(status));
  }
  for (const int signal : {SIGTERM, SIGKILL, SIGABRT, SIGSEGV}) {
    auto child = ChildProcess::spawn(test::shell("ulimit -c 0; kill -" + std::to_string(signal) + " $$"));
    EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::killed(signal));
    EXPECT_EQ(child.wait(Deadline::after(0s)), ExitStatus::killed(signal)) << "again";
  }
  EXPECT_EQ(used().forks(), 10U);
}

TEST_F(TemplateTest, child_is_waited_for_with_a_deadline_killed_and_reaped) {
  use("serves");
  auto child = ChildProcess::spawn(test::shell("exec sleep 1000"));
  const pid_t pid = child.pid();
  EXPECT_EQ(child.wait(Deadline::after(1ms)), std::nullopt);
  child.kill(SIGKILL);
  const auto status = child.wait(Deadline::never());
  ASSERT_TRUE(status);
  EXPECT_EQ(status->reason(), KillReason::parent);
  EXPECT_TRUE(is_gone(pid)) << "a zombie of the template";
  pid_t dropped = 0;
  {
    const auto other = ChildProcess::spawn(test::shell("exec sleep 1000"));
    dropped = other.pid();
  }
  EXPECT_TRUE(is_gone(dropped));
}

TEST_F(TemplateTest, id_of_a_child_stays_its_own_until_it_was_waited_for) {
  use("serves");
  auto child = ChildProcess::spawn(test::shell("exit 3"));
  test::await_end(child);
  std::this_thread::sleep_for(20ms);
  const auto record = read_process(child.pid());
  ASSERT_TRUE(record) << "it was reaped before anybody asked";
  EXPECT_TRUE(record->has_ended());
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::exited(3));
  EXPECT_TRUE(is_gone(child.pid()));
}

TEST_F(TemplateTest, child_has_its_descriptors_and_no_others) {
  use("serves");
  const Fd file(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  SpawnOptions options = test::shell("for fd in /proc/$$/fd/*; do echo ${fd##*/} $(readlink $fd); done");
  options.inherit = {{file.get(), 9}, {file.get(), 3}, {file.get(), 40}};
  options.streams.input = StandardStream::null();
  const auto [usual, forked] = both_ways(used(), options);
  const std::regex numbers_of_pipes("pipe:.*");
  EXPECT_EQ(std::regex_replace(usual, numbers_of_pipes, "pipe"),
            std::regex_replace(forked, numbers_of_pipes, "pipe"));
  EXPECT_NE(forked.find("\n40 /dev/zero"), std::string::npos) << forked;
}

TEST_F(TemplateTest, child_has_our_own_standard_streams) {
  use("serves");
  const test::TemporaryFolder folder;
  const auto path = (folder.path() / "text").string();
  ASSERT_EQ(used().wait_ready(Deadline::after(60s)), Readiness::ready);
  const Fd kept(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  const Fd file(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  ::dup2(file.get(), STDOUT_FILENO);  // after the template was started with another
  auto child = ChildProcess::spawn(test::shell("echo here"));
  const auto status = child.wait(Deadline::never());
  ::dup2(kept.get(), STDOUT_FILENO);
  EXPECT_EQ(status, ExitStatus::exited(0));
  std::array<char, 16> text{};
  EXPECT_EQ(::pread(file.get(), text.data(), text.size(), 0), 5);
}

TEST_F(TemplateTest, child_has_environment_directory_and_mask_of_the_moment) {
  use("serves");
  ASSERT_EQ(used().wait_ready(Deadline::after(60s)), Readiness::ready);
  const test::ScopedEnvironment changed("TEMPLATE_TEST_LATE", "late");
  const mode_t mask = ::umask(0157);
  SpawnOptions options = test::shell("pwd; umask; env | sort | grep -v '^_='");
  options.environment = {{"TEMPLATE_TEST", "a b=c"}};
  options.unset = {"HOME"};
  options.placement.folder = "/usr";
  const auto [usual, forked] = both_ways(used(), options);
  ::umask(mask);
  EXPECT_EQ(usual, forked);
  EXPECT_TRUE(forked.starts_with("/usr\n0157\n")) << forked;
}

TEST_F(TemplateTest, child_has_cpus_niceness_and_limits) {
  use("serves");
  SpawnOptions options =
      test::shell("grep Cpus_allowed_list /proc/$$/status; nice; ulimit -n; ulimit -Hn; ulimit -c");
  const auto [usual, forked] = both_ways(used(), options);
  EXPECT_EQ(usual, forked);
  options.placement.cpus = {0};
  options.placement.niceness = 7;
  options.placement.limits = {{.resource = RLIMIT_NOFILE, .soft = 100, .hard = 200},
                              {.resource = RLIMIT_CORE, .soft = 0}};
  const auto [placed_usual, placed_forked] = both_ways(used(), options);
  EXPECT_EQ(placed_usual, placed_forked);
  EXPECT_NE(placed_forked.find("\n7\n100\n200\n0"), std::string::npos) << placed_forked;
}

TEST_F(TemplateTest, child_has_no_signal_blocked_or_ignored) {
  use("serves");  // it ignores SIGINT and blocks SIGUSR1
  const auto [usual, forked] = both_ways(used(), test::shell("exec grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status"));
  EXPECT_EQ(usual, forked);
}

TEST_F(TemplateTest, child_leads_a_session_or_is_in_our_group) {
  use("serves");
  auto ours = ChildProcess::spawn(test::shell("exec sleep 1000"));
  EXPECT_EQ(::getpgid(ours.pid()), ::getpgrp());
  SpawnOptions options = test::shell("exec sleep 1000");
  options.group = ChildGroup::own_session;
  auto leader = ChildProcess::spawn(options);
  EXPECT_EQ(::getsid(leader.pid()), leader.pid());
  options.group = ChildGroup::own_group;
  auto grouped = ChildProcess::spawn(options);
  EXPECT_EQ(::getpgid(grouped.pid()), grouped.pid());
  EXPECT_EQ(used().forks(), 3U);
}

TEST_F(TemplateTest, child_shows_its_own_arguments_and_variables) {
  use("stays");  // without a program of its own, as an interpreter does
  SpawnOptions options = test::shell("a command");
  options.environment = {{"TEMPLATE_TEST_MARK", "17"}};
  auto child = ChildProcess::spawn(options);
  EXPECT_TRUE(was_started_with_any(child.pid(), {"TEMPLATE_TEST_MARK=17"}));
  EXPECT_FALSE(was_started_with_any(child.pid(), {"TEMPLATE_TEST_MARK=18", "TEMPLATE_TEST_MARK"}));
  const Fd file(::open(("/proc/" + std::to_string(child.pid()) + "/cmdline").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(all_of(file).starts_with(options.executable + '\0' + "-c" + '\0' + "a command" + '\0'));
}

TEST_F(TemplateTest, what_does_not_suit_is_started_in_the_usual_way) {
  use("serves");
  auto other = ChildProcess::spawn({.executable = "/bin/sh", .arguments = {"-c", "exit 5"}});
  EXPECT_EQ(other.wait(Deadline::never()), ExitStatus::exited(5));
  EXPECT_EQ(used().pid(), 0) << "it was started for nothing";
  SpawnOptions options = test::shell("exit 6");
  options.environment = {{"LD_BIND_NOW", "1"}};
  EXPECT_EQ(ChildProcess::spawn(options).wait(Deadline::never()), ExitStatus::exited(6));
  options.environment = {{"OMP_NUM_THREADS", "2"}};
  EXPECT_EQ(used().forks(), 0U);
  EXPECT_EQ(ChildProcess::spawn(options).wait(Deadline::never()), ExitStatus::exited(6));
  EXPECT_EQ(used().forks(), 1U) << "numbers of threads can be set later";
}

TEST_F(TemplateTest, tells_whether_this_process_is_still_as_it_was) {
  use("serves");
  EXPECT_TRUE(used().fits()) << "none was started";
  ASSERT_EQ(used().wait_ready(Deadline::after(60s)), Readiness::ready);
  EXPECT_TRUE(used().fits());
  {
    const test::ScopedEnvironment other("OMP_PROC_BIND", "true");
    EXPECT_FALSE(used().fits());
    const test::ScopedEnvironment threads("OMP_NUM_THREADS", "3");
    EXPECT_FALSE(used().fits());
  }
  EXPECT_TRUE(used().fits());
}

TEST_F(TemplateTest, failed_step_is_reported_as_without_a_template) {
  use("serves");
  SpawnOptions options = test::shell("exit 0");
  options.placement.folder = "/no/such/folder";
  test::expect_error(Errc::not_found, [&] { static_cast<void>(ChildProcess::spawn(options)); },
                     {"chdir", "/no/such/folder"});
  EXPECT_EQ(used().forks(), 0U);
}

TEST_F(TemplateTest, killed_template_leaves_its_children_and_is_started_again) {
  use("serves");
  auto child = ChildProcess::spawn(test::shell("exec sleep 1000"));
  const pid_t first = used().pid();
  ASSERT_GT(first, 0);
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  ASSERT_TRUE(comes_true([&] { return used().pid() == 0; }));
  EXPECT_EQ(child.wait(Deadline::after(10ms)), std::nullopt) << "it goes on";
  auto next = ChildProcess::spawn(test::shell("exit 8"));
  EXPECT_EQ(next.wait(Deadline::never()), ExitStatus::exited(8));
  EXPECT_NE(used().pid(), first);
  EXPECT_EQ(used().forks(), 2U);
  child.kill(SIGTERM);
  const auto status = child.wait(Deadline::never());
  ASSERT_TRUE(status);
  EXPECT_EQ(*status, ExitStatus::unknown());
  EXPECT_FALSE(status->is_success());
}

TEST_F(TemplateTest, child_that_we_killed_is_known_to_be_killed_even_without_its_template) {
  use("serves");
  auto child = ChildProcess::spawn(test::shell("exec sleep 1000"));
  ASSERT_EQ(::kill(used().pid(), SIGKILL), 0);
  ASSERT_TRUE(comes_true([&] { return used().pid() == 0; }));
  child.kill(SIGKILL);
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::killed(SIGKILL));
}

TEST_F(TemplateTest, template_that_dies_at_every_order_is_done_without) {
  use("dies at an order");
  auto child = ChildProcess::spawn(test::shell("exit 9"));
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::exited(9));
  EXPECT_EQ(used().forks(), 0U);
}

TEST_F(TemplateTest, template_that_does_not_answer_is_killed_and_done_without) {
  use("stops at an order", 100ms);
  const test::CapturedLog log;
  ASSERT_EQ(used().wait_ready(Deadline::after(60s)), Readiness::ready);
  const pid_t first = used().pid();
  EXPECT_EQ(ChildProcess::spawn(test::shell("exit 9")).wait(Deadline::never()), ExitStatus::exited(9));
  EXPECT_EQ(used().forks(), 0U);
  EXPECT_TRUE(log.contains("does not answer"));
  EXPECT_TRUE(comes_true([&] { return used().pid() != first; }));
}

TEST_F(TemplateTest, child_that_is_no_longer_awaited_does_not_start) {
  use("stops its children", 100ms);
  const test::TemporaryFolder folder;
  const auto path = (folder.path() / "runs").string();
  auto child = ChildProcess::spawn(test::shell("echo ran >> " + path));
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::exited(0));
  std::this_thread::sleep_for(1200ms);  // forked children have started and found their sockets closed
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(all_of(file), "ran\n") << "it was started twice";
}

TEST_F(TemplateTest, child_that_dies_on_its_way_is_started_in_the_usual_way) {
  use("loses its children");
  EXPECT_EQ(ChildProcess::spawn(test::shell("exit 9")).wait(Deadline::never()), ExitStatus::exited(9));
  EXPECT_EQ(used().forks(), 0U);
}

TEST_F(TemplateTest, refusal_is_logged_once) {
  use("refuses");
  const test::CapturedLog log;
  EXPECT_EQ(ChildProcess::spawn(test::shell("exit 2")).wait(Deadline::never()), ExitStatus::exited(2));
  EXPECT_EQ(ChildProcess::spawn(test::shell("exit 3")).wait(Deadline::never()), ExitStatus::exited(3));
  const auto lines = log.lines();
  const auto tells = [](const std::string& line) { return line.find("not in the mood") != std::string::npos; };
  EXPECT_EQ(std::ranges::count_if(lines, tells), 1);
}

TEST_F(TemplateTest, template_that_ends_again_and_again_is_started_three_times_and_given_up) {
  const test::TemporaryFolder folder;
  const auto path = (folder.path() / "starts").string();
  const test::ScopedEnvironment note("STAND_IN_NOTES_STARTS", path.c_str());
  use("ends");
  const test::CapturedLog log;
  EXPECT_EQ(used().wait_ready(Deadline::never()), Readiness::unavailable);
  EXPECT_EQ(used().wait_ready(Deadline::never()), Readiness::unavailable) << "it stays so";
  EXPECT_EQ(ChildProcess::spawn(test::shell("exit 2")).wait(Deadline::never()), ExitStatus::exited(2));
  ASSERT_EQ(log.lines().size(), 1U);
  EXPECT_NE(log.lines()[0].find("DROVER_TEMPLATE=0"), std::string::npos) << log.lines()[0];
  EXPECT_EQ(all_of(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC))), "started\nstarted\nstarted\n");
}

TEST_F(TemplateTest, template_that_is_not_ready_in_time_is_given_up) {
  auto command = test::stand_in("waits for a word");
  command.time_to_load = 300ms;
  Template hanging(command);
  hanging.use();
  const test::CapturedLog log;
  EXPECT_EQ(hanging.wait_ready(Deadline::after(0s)), Readiness::loading);
  const Fd process(pidfd_open(hanging.pid()));
  EXPECT_EQ(hanging.wait_ready(Deadline::never()), Readiness::unavailable);
  EXPECT_TRUE(pidfd_has_ended(process.get()));
  EXPECT_EQ(ChildProcess::spawn(test::shell("exit 2")).wait(Deadline::never()), ExitStatus::exited(2));
  EXPECT_EQ(hanging.forks(), 0U);
  EXPECT_TRUE(log.contains("was not ready after 1 s")) << "rounded up";
  EXPECT_EQ(log.lines().size(), 1U);
}

TEST_F(TemplateTest, child_that_waits_for_a_template_that_hangs_is_started_without_it) {
  auto command = test::stand_in("waits for a word");
  command.time_to_load = 100ms;
  Template hanging(command);
  hanging.use();
  EXPECT_EQ(ChildProcess::spawn(test::shell("exit 2")).wait(Deadline::never()), ExitStatus::exited(2));
  EXPECT_EQ(hanging.wait_ready(Deadline::never()), Readiness::unavailable);
}

TEST_F(TemplateTest, tells_without_waiting_whether_a_child_would_wait_for_it) {
  Template hanging(test::stand_in("waits for a word"));
  hanging.use();
  EXPECT_TRUE(current_spawner()->would_wait(test::shell("exit 2")));
  EXPECT_FALSE(current_spawner()->would_wait({.executable = "/bin/true", .arguments = {}})) << "it is cloned";
  use("serves");
  ASSERT_EQ(used().wait_ready(Deadline::after(60s)), Readiness::ready);
  EXPECT_FALSE(current_spawner()->would_wait(test::shell("exit 2")));
  use("ends");
  ASSERT_EQ(used().wait_ready(Deadline::never()), Readiness::unavailable);
  EXPECT_FALSE(current_spawner()->would_wait(test::shell("exit 2")));
}

TEST_F(TemplateTest, template_that_was_ended_never_becomes_ready) {
  use("serves");
  ASSERT_EQ(used().wait_ready(Deadline::after(60s)), Readiness::ready);
  used().end();
  EXPECT_EQ(used().wait_ready(Deadline::never()), Readiness::unavailable);
}

TEST_F(TemplateTest, retired_template_ends_with_its_last_child) {
  use("serves");
  auto child = ChildProcess::spawn(test::shell("exec sleep 1000"));
  const pid_t pid = used().pid();
  used().retire();
  EXPECT_EQ(ChildProcess::spawn(test::shell("exit 1")).wait(Deadline::never()), ExitStatus::exited(1));
  EXPECT_EQ(used().forks(), 1U) << "it takes no more orders";
  EXPECT_FALSE(used().is_over());
  child.kill(SIGTERM);
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::killed(SIGTERM)) << "it tells about those it has";
  EXPECT_TRUE(comes_true([&] { return used().is_over(); })) << pid;
}

TEST_F(TemplateTest, notes_come_with_the_readiness) {
  use("serves");
  const test::CapturedLog log;
  EXPECT_EQ(used().notes(), "");
  ASSERT_EQ(used().wait_ready(Deadline::after(60s)), Readiness::ready);
  EXPECT_EQ(used().notes(), "a note");
  EXPECT_TRUE(log.contains("a note"));
}

TEST_F(TemplateTest, many_threads_fork_at_once) {
  use("serves");
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(ChildProcess::spawn(test::shell("exit " + std::to_string(i))).wait(Deadline::never()),
                  ExitStatus::exited(i));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(used().forks(), 24U);
}

TEST_F(TemplateTest, forked_child_of_the_application_has_no_template) {
  use("serves");
  ASSERT_EQ(used().wait_ready(Deadline::after(60s)), Readiness::ready);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const bool is_none = used().pid() == 0 && used().wait_ready(Deadline::never()) == Readiness::unavailable;
    used().end();  // does nothing to the template, which is another's
    ::_exit(is_none ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ChildProcess::spawn(test::shell("exit 1")).wait(Deadline::never()), ExitStatus::exited(1));
  EXPECT_EQ(used().forks(), 1U);
}

TEST(TemplateCommand, executable_is_a_path) {
  test::expect_error(
      Errc::invalid_argument,
      [] { const Template made({.executable = "python3", .arguments = {}, .environment = {}, .starts = {}}); },
      {"path"});
}

}  // namespace
}  // namespace drover::process
