// A template that is nobody's child, started before anybody needs it.
#include "process/template/running_template.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>

#include <gtest/gtest.h>

#include "drover/process/child_process.hpp"
#include "process/inspect/pidfd.hpp"
#include "process/inspect/process_table.hpp"
#include "process/template/stand_in_template.hpp"
#include "process/template/template.hpp"
#include "support/expect_error.hpp"
#include "support/waiting_child.hpp"

namespace drover::process {
namespace {

using namespace std::chrono_literals;

std::shared_ptr<RunningTemplate> started_early(const std::string& manner) {
  auto command = test::stand_in(manner);
  command.is_detached = true;
  return std::make_shared<RunningTemplate>(command);
}

TEST(RunningTemplate, detached_process_is_not_a_child) {
  auto early = started_early("serves");
  const Fd pidfd(pidfd_open(early->pid()));
  ASSERT_TRUE(early->wait_ready(Deadline::after(60s)));
  siginfo_t info{};
  EXPECT_NE(::waitid(P_PID, static_cast<id_t>(early->pid()), &info, WEXITED | WNOHANG | __WALL), 0);
  EXPECT_EQ(errno, ECHILD);
  const auto record = read_process(early->pid());
  ASSERT_TRUE(record);
  EXPECT_NE(record->parent, ::getpid());
  early.reset();
  EXPECT_TRUE(pidfd_wait(pidfd.get(), Deadline::after(60s))) << "it outlived its owner";
}

TEST(RunningTemplate, adopted_process_serves_after_it_was_told_to) {
  const auto early = started_early("waits for a word");
  EXPECT_FALSE(early->wait_ready(Deadline::after(50ms)));
  EXPECT_TRUE(early->tell("begin"));
  Template used(test::stand_in("serves"));
  used.adopt(early);
  used.use();
  EXPECT_EQ(ChildProcess::spawn(test::shell("exit 3")).wait(Deadline::never()), ExitStatus::exited(3));
  EXPECT_EQ(used.pid(), early->pid());
  EXPECT_EQ(used.forks(), 1U);
  EXPECT_EQ(used.notes(), "begin");
  test::expect_error(Errc::invalid_argument, [&] { used.adopt(early); }, {"cannot adopt"});
  Template::use_none();
}

TEST(RunningTemplate, adopted_process_that_has_ended_is_replaced) {
  const auto early = started_early("waits for a word");
  Template used(test::stand_in("serves"));
  used.adopt(early);
  used.use();
  early->kill();
  EXPECT_FALSE(early->tell("too late"));
  EXPECT_EQ(ChildProcess::spawn(test::shell("exit 3")).wait(Deadline::never()), ExitStatus::exited(3));
  EXPECT_NE(used.pid(), early->pid());
  Template::use_none();
}

TEST(RunningTemplate, waiting_process_ends_when_nobody_can_tell_it_anything) {
  const auto early = started_early("waits for a word");
  early->close();
  EXPECT_TRUE(test::comes_true([&] { return early->has_ended(); }));
}

TEST(RunningTemplate, waiting_process_ends_at_its_deadline) {
  const auto early = started_early("waits for a moment");
  EXPECT_TRUE(test::comes_true([&] { return early->has_ended(); }));
}

TEST(RunningTemplate, order_that_is_forwarded_makes_another_process_the_child) {
  Template used(test::stand_in("hands over"));
  used.use();
  auto child = ChildProcess::spawn(test::shell("exit 5"));
  EXPECT_EQ(child.wait(Deadline::never()), ExitStatus::exited(5));
  EXPECT_EQ(ChildProcess::spawn(test::shell("exit 6")).wait(Deadline::never()), ExitStatus::exited(6));
  EXPECT_EQ(used.forks(), 2U);
  Template::use_none();
}

}  // namespace
}  // namespace drover::process
