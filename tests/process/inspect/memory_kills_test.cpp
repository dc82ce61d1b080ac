#include "process/inspect/memory_kills.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace drover::process {
namespace {

using detail::MemoryKills;

// A machine's files, as far as they matter here.
class Machine {
 public:
  void write(const std::string& path, const std::string& text) {
    const auto whole = folder_.path() / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  [[nodiscard]] MemoryKillFiles files() const { return find_memory_kill_files(folder_.path()); }
  [[nodiscard]] MemoryKills kills() const { return read_memory_kills(files()); }

 private:
  test::TemporaryFolder folder_;
};

TEST(MemoryKills, group_of_version_2_is_read) {
  Machine machine;
  machine.write("proc/self/cgroup", "0::/user.slice/job\n");
  machine.write("sys/fs/cgroup/user.slice/job/memory.events",
                "low 0\nhigh 3\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n");
  machine.write("sys/fs/cgroup/memory.events", "oom_kill 77\n");
  EXPECT_EQ(machine.kills().of_group, 2U);
  EXPECT_EQ(machine.kills().of_machine, std::nullopt);
}

TEST(MemoryKills, group_of_version_1_is_read) {
  Machine machine;
  machine.write("proc/self/cgroup", "7:pids:/\n4:memory:/job\n0::/\n");
  machine.write("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  EXPECT_EQ(machine.kills().of_group, 5U);
}

TEST(MemoryKills, in_a_container_the_top_may_be_the_own_group) {
  Machine machine;
  machine.write("proc/self/cgroup", "0::/../../host/path\n");
  machine.write("sys/fs/cgroup/memory.events", "oom_kill 1\n");
  EXPECT_EQ(machine.kills().of_group, 1U);
}

TEST(MemoryKills, machine_is_read_from_vmstat) {
  Machine machine;
  machine.write("proc/vmstat", "nr_free_pages 5\nnot_oom_kill 9\noom_kill 4\n");
  EXPECT_EQ(machine.kills().of_machine, 4U);
  EXPECT_EQ(machine.kills().of_group, std::nullopt);
}

TEST(MemoryKills, nothing_and_nonsense_are_nothing) {
  Machine machine;
  EXPECT_TRUE(machine.files().of_group.empty());
  EXPECT_EQ(machine.kills().of_machine, std::nullopt);
  machine.write("proc/self/cgroup", "nonsense\n:\n::\n");
  machine.write("proc/vmstat", "oom_kill \noom_kill many\n");
  EXPECT_EQ(machine.kills().of_machine, std::nullopt);
}

TEST(MemoryKills, rise_in_the_group_means_out_of_memory) {
  EXPECT_EQ(judge_kill({.of_group = 1, .of_machine = 1}, {.of_group = 2, .of_machine = 2}),
            KillReason::out_of_memory);
  EXPECT_EQ(judge_kill({.of_group = 1, .of_machine = {}}, {.of_group = 2, .of_machine = {}}),
            KillReason::out_of_memory);
}

TEST(MemoryKills, rise_on_the_machine_alone_decides_only_without_a_group) {
  EXPECT_EQ(judge_kill({.of_group = 1, .of_machine = 1}, {.of_group = 1, .of_machine = 2}), KillReason::unknown);
  EXPECT_EQ(judge_kill({.of_group = {}, .of_machine = 1}, {.of_group = {}, .of_machine = 2}),
            KillReason::out_of_memory);
}

TEST(MemoryKills, no_rise_means_another_process) {
  EXPECT_EQ(judge_kill({.of_group = 1, .of_machine = 1}, {.of_group = 1, .of_machine = 1}), KillReason::somebody);
  EXPECT_EQ(judge_kill({.of_group = {}, .of_machine = 1}, {.of_group = {}, .of_machine = 1}), KillReason::somebody);
  EXPECT_EQ(judge_kill({.of_group = 1, .of_machine = {}}, {.of_group = 1, .of_machine = {}}), KillReason::unknown);
  EXPECT_EQ(judge_kill({}, {}), KillReason::unknown);
}

TEST(MemoryKills, killed_child_has_the_reason) {
  const SpawnOptions sleeper{.executable = "/bin/sleep", .arguments = {"1000"}};
  auto ours = ChildProcess::spawn(sleeper);
  ours.kill(SIGKILL);
  EXPECT_EQ(ours.wait(Deadline::never())->reason(), KillReason::parent);
  auto others = ChildProcess::spawn(sleeper);
  ASSERT_EQ(::kill(others.pid(), SIGKILL), 0);
  EXPECT_NE(others.wait(Deadline::never())->reason(), KillReason::parent);
  auto gone = ChildProcess::spawn({.executable = "/bin/sh", .arguments = {"-c", "kill -KILL $$"}});
  ASSERT_TRUE(gone.wait(Deadline::never()));
  gone.kill(SIGKILL);
  EXPECT_NE(gone.wait(Deadline::never())->reason(), KillReason::parent);
}

}  // namespace
}  // namespace drover::process
