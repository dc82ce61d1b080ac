// Workers in order: how they start, what they are given, what is known of them. Their deaths: process_crash_test.cpp.
#include "drover/session/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "drover/ipc/queue.hpp"
#include "drover/session/worker.hpp"
#include "session/client/session_helpers.hpp"
#include "support/expect_error.hpp"
#include "support/fault_seam.hpp"
#include "support/redirected.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace drover::session {
namespace {

using namespace std::chrono_literals;
using test::FaultSeam;
using test::Redirected;
using test::ScopedEnvironment;

Deadline before_long() { return Deadline::after(60s); }

const char* text_or_none(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? "none" : text;
}

const auto leave = entry("process_test.leave", [](Worker& worker) {
  if (!worker.arguments().empty()) std::exit(std::stoi(worker.arguments().at(0)));
});
const auto sleep_until_killed = entry("process_test.sleep", [](Worker&) { std::this_thread::sleep_for(1000s); });
const auto tell = entry("process_test.tell", [](Worker& worker) {
  fmt::print("name={} arguments={} self={} session_variable={} connections={}\n", worker.name(),
             fmt::join(worker.arguments(), "|"), worker.session().self() != kNobody,
             text_or_none("DROVER_SESSION_FD"), text_or_none("CUDA_DEVICE_MAX_CONNECTIONS"));
});
const auto tell_place = entry("process_test.tell_place", [](Worker&) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  fmt::print("directory={} files={} nice={} gone={} leads={} input={}\n", std::filesystem::current_path().string(),
             files.rlim_cur, ::getpriority(PRIO_PROCESS, 0), text_or_none("DROVER_TEST_GONE"),
             ::getsid(0) == ::getpid(), ::getchar() == EOF);
});
const auto write_to_both = entry("process_test.write", [](Worker&) {
  fmt::print("to output\n");
  static_cast<void>(std::fflush(stdout));
  fmt::print(stderr, "to error\n");
});
const auto start_another = entry("process_test.nest", [](Worker& worker) {
  auto inner = Process::start(worker.session(), {.entry = leave, .arguments = {"5"}, .name = "inner"});
  if (inner.wait(before_long()) != ExitStatus::exited(5)) throw std::runtime_error(inner.describe());
});

// Runs a worker to its end and returns what it printed.
std::string output_of(const Session& session, const ProcessOptions& options) {
  Redirected output(STDOUT_FILENO);
  {
    auto worker = Process::start(session, options);
    const auto status = worker.wait(before_long());
    EXPECT_EQ(status, ExitStatus::exited(0)) << worker.describe();
  }
  return output.read_rest();
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ProcessTest : public ::testing::Test {
 protected:
  Session session_ = Session::start();
};

TEST_F(ProcessTest, entry_runs_and_its_end_is_the_worker_s_end) {
  auto worker = Process::start(session_, {.entry = leave});
  EXPECT_EQ(worker.wait_ready(before_long()), WaitResult::done);
  EXPECT_EQ(worker.wait(before_long()), ExitStatus::exited(0));
  EXPECT_EQ(worker.wait(Deadline::after(0s)), ExitStatus::exited(0)) << "may be asked again";
  EXPECT_EQ(worker.wait_ready(before_long()), WaitResult::done) << "it was ready";
  EXPECT_EQ(worker.failure(), "");
  EXPECT_EQ(worker.describe(), fmt::format("{} (process {}) exited with status 0", worker.name(), worker.pid()));
}

TEST_F(ProcessTest, exit_status_is_returned) {
  auto worker = Process::start(session_, {.entry = leave, .arguments = {"9"}, .name = "nine"});
  EXPECT_EQ(worker.wait(before_long()), ExitStatus::exited(9));
  EXPECT_NE(worker.describe().find("nine (process "), std::string::npos);
}

TEST_F(ProcessTest, worker_has_name_arguments_and_session) {
  const ScopedEnvironment unset("CUDA_DEVICE_MAX_CONNECTIONS", std::nullopt);
  EXPECT_EQ(output_of(session_, {.entry = tell, .arguments = {"a", "", "b c"}, .name = "ruth"}),
            "[ruth] name=ruth arguments=a||b c self=true session_variable=none connections=none\n");
}

TEST_F(ProcessTest, participants_show_the_worker_under_its_name) {
  auto worker = Process::start(session_, {.entry = sleep_until_killed, .arguments = {}, .name = "ruth"});
  ASSERT_EQ(worker.wait_ready(before_long()), WaitResult::done);
  const auto all = session_.participants();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const auto& each) {
    return each.pid == worker.pid() && each.name == "ruth" && each.is_worker;
  }));
}

TEST_F(ProcessTest, names_are_made_up_where_none_is_given) {
  auto workers = start_all(session_, {{.entry = leave}, {.entry = leave}});
  EXPECT_TRUE(workers.at(0).name().starts_with("worker-"));
  EXPECT_TRUE(workers.at(1).name().starts_with("worker-"));
  EXPECT_NE(workers.at(0).name(), workers.at(1).name());
  for (auto& worker : workers) EXPECT_EQ(worker.wait(before_long()), ExitStatus::exited(0));
}

TEST_F(ProcessTest, user_s_own_number_of_connections_comes_through) {
  const auto line = [&](const ProcessOptions& options) { return output_of(session_, options); };
  const ScopedEnvironment ours("CUDA_DEVICE_MAX_CONNECTIONS", "4");
  EXPECT_NE(line({.entry = tell}).find("connections=4\n"), std::string::npos);
  EXPECT_NE(line({.entry = tell, .environment = {{"CUDA_DEVICE_MAX_CONNECTIONS", "7"}}}).find("connections=7\n"),
            std::string::npos);
  EXPECT_NE(line({.entry = tell, .unset = {"CUDA_DEVICE_MAX_CONNECTIONS"}}).find("connections=none\n"),
            std::string::npos);
}

TEST_F(ProcessTest, worker_is_placed_as_asked_and_has_no_input) {
  const ScopedEnvironment gone("DROVER_TEST_GONE", "ours");
  ProcessOptions options{.entry = tell_place, .name = "p", .unset = {"DROVER_TEST_GONE"}};
  options.placement = {
      .cpus = {}, .limits = {{.resource = RLIMIT_NOFILE, .soft = 200, .hard = {}}}, .niceness = 3, .folder = "/"};
  EXPECT_EQ(output_of(session_, options), "[p] directory=/ files=200 nice=3 gone=none leads=true input=true\n");
}

TEST_F(ProcessTest, one_wait_for_workers_and_queues) {
  Queue queue(session_);
  Process worker = Process::start(session_, {.entry = sleep_until_killed});
  using Places = std::vector<std::size_t>;
  EXPECT_EQ(wait({queue, worker}, Deadline::after(5ms)), Places{});
  ASSERT_EQ(queue.put("a message"), PutResult::put);
  EXPECT_EQ(wait({queue, worker}, before_long()), Places{0});
  Message message;
  ASSERT_EQ(queue.get(message), GetResult::got);
  worker.kill(SIGKILL);
  EXPECT_EQ(wait({worker, queue}, before_long()).front(), 0U);
}

TEST_F(ProcessTest, sixteen_workers_start_at_the_same_time) {
  std::vector<ProcessOptions> options(16, {.entry = sleep_until_killed});
  auto workers = start_all(session_, options);
  for (auto& worker : workers) EXPECT_EQ(worker.wait_ready(before_long()), WaitResult::done);
  EXPECT_EQ(session_.population().present, 17U);
  end_all(workers);
  for (auto& worker : workers) EXPECT_EQ(worker.wait(before_long()), ExitStatus::killed(SIGTERM));
}

TEST_F(ProcessTest, waiting_is_bounded) {
  auto worker = Process::start(session_, {.entry = sleep_until_killed});
  ASSERT_EQ(worker.wait_ready(before_long()), WaitResult::done);
  EXPECT_EQ(worker.wait(Deadline::after(0s)), std::nullopt);
  EXPECT_EQ(worker.wait(Deadline::after(20ms)), std::nullopt);
  pollfd ended{.fd = worker.pidfd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ended, 1, 0), 0);
  worker.kill(SIGTERM);
  EXPECT_EQ(::poll(&ended, 1, 60000), 1);
  EXPECT_EQ(worker.wait(before_long()), ExitStatus::killed(SIGTERM));
  EXPECT_NO_THROW(worker.kill(SIGKILL)) << "it has ended";
}

TEST_F(ProcessTest, not_ready_before_the_deadline_is_no_error) {
  auto worker = Process::start(session_, {.entry = sleep_until_killed});
  worker.kill(SIGSTOP);
  const auto result = worker.wait_ready(Deadline::after(20ms));
  worker.kill(SIGCONT);
  EXPECT_EQ(worker.wait_ready(before_long()), WaitResult::done);
  EXPECT_TRUE(result == WaitResult::timed_out || result == WaitResult::done) << "it may have been quick";
}

TEST_F(ProcessTest, output_goes_to_a_file) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "worker.log";
  auto worker = Process::start(session_, {.entry = write_to_both, .output = WorkerOutput::file(path)});
  EXPECT_EQ(worker.wait(before_long()), ExitStatus::exited(0));
  EXPECT_EQ(content_of(path), "to output\nto error\n");
  EXPECT_EQ(worker.error_tail(), "to output\nto error\n");
}

TEST_F(ProcessTest, output_can_be_inherited_or_discarded) {
  Redirected output(STDOUT_FILENO);
  Redirected error(STDERR_FILENO);
  for (const auto& where : {WorkerOutput::inherited(), WorkerOutput::discarded()}) {
    auto worker = Process::start(session_, {.entry = write_to_both, .output = where});
    EXPECT_EQ(worker.wait(before_long()), ExitStatus::exited(0));
  }
  EXPECT_EQ(error.read_rest(), "to error\n");
  EXPECT_EQ(output.read_rest(), "to output\n");
}

TEST_F(ProcessTest, worker_may_start_workers) {
  auto worker = Process::start(session_, {.entry = start_another});
  EXPECT_EQ(worker.wait(before_long()), ExitStatus::exited(0)) << worker.describe();
}

TEST_F(ProcessTest, moved_from_object_owns_nothing) {
  auto first = Process::start(session_, {.entry = sleep_until_killed});
  const auto pid = first.pid();
  auto second = std::move(first);
  EXPECT_EQ(second.pid(), pid);
  test::expect_error(Errc::invalid_argument,
                     [&] { static_cast<void>(first.pid()); },  // NOLINT(bugprone-use-after-move)
                     {"moved-from"});
  second = Process::start(session_, {.entry = sleep_until_killed});
  EXPECT_FALSE(test::is_running(pid)) << "what was owned is ended";
}

TEST_F(ProcessTest, unknown_entry_is_refused_at_once) {
  test::expect_error(Errc::not_found, [&] { static_cast<void>(Process::start(session_, {.entry = "nobody"})); },
                     {"'nobody'", "'process_test.leave'"});
}

TEST_F(ProcessTest, step_that_fails_at_the_start_is_named) {
  ProcessOptions options{.entry = leave};
  options.placement.folder = "/no/such/folder";
  test::expect_error(Errc::not_found, [&] { static_cast<void>(Process::start(session_, options)); },
                     {"chdir", "/no/such/folder"});
  const FaultSeam fail("execve", EACCES);
  test::expect_error(Errc::permission_denied, [&] { static_cast<void>(Process::start(session_, {.entry = leave})); },
                     {"execve", "session_test"});
}

TEST_F(ProcessTest, worker_that_cannot_be_started_ends_those_before_it) {
  std::vector<ProcessOptions> options(3, {.entry = sleep_until_killed});
  options.back().placement.folder = "/no/such/folder";
  test::expect_error(Errc::not_found, [&] { static_cast<void>(start_all(session_, options)); }, {"chdir"});
}

// Like a terminal on Ctrl-C: the whole foreground group gets the signal.
const auto app_of_ctrl_c = entry("process_test.app", [](Worker& worker) {
  static_cast<void>(std::signal(SIGINT, [](int) {}));
  auto inner = Process::start(worker.session(), {.entry = sleep_until_killed});
  if (inner.wait_ready(before_long()) != WaitResult::done) throw std::runtime_error("not ready");
  ::kill(0, SIGINT);
  if (inner.wait(Deadline::after(50ms))) throw std::runtime_error("Ctrl-C reached " + inner.describe());
});

TEST_F(ProcessTest, signal_of_a_terminal_reaches_the_application_alone) {
  auto worker = Process::start(session_, {.entry = app_of_ctrl_c});
  EXPECT_EQ(worker.wait(before_long()), ExitStatus::exited(0)) << worker.describe();
}

TEST_F(ProcessTest, output_may_go_to_a_named_pipe_with_a_reader) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const ProcessOptions options{.entry = leave, .output = WorkerOutput::file(path)};
  test::expect_error(Errc::not_found, [&] { static_cast<void>(Process::start(session_, options)); },
                     {"has no reader"});
  const Fd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  auto worker = Process::start(session_, options);
  EXPECT_EQ(worker.error_tail(), "") << "what was read here would be lost to its reader";
  EXPECT_EQ(worker.wait(before_long()), ExitStatus::exited(0));
}

}  // namespace
}  // namespace drover::session
