#include "process/inspect/foreign_stacks.hpp"

#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"
#include "support/waiting_child.hpp"

namespace drover::process {
namespace {

using namespace std::chrono_literals;
using test::await_end;
using test::start_child;
using test::TemporaryFolder;

StackTool script(const TemporaryFolder& folder, const std::string& text) {
  const auto path = folder.path() / "tool";
  std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
  ::chmod(path.c_str(), 0700);
  return {.path = path.string(), .arguments = {"-p"}, .tail = {"end"}};
}

TEST(ForeignStacks, only_threads_and_frames_are_kept) {
  const TemporaryFolder folder;
  auto child = start_child("/bin/sleep", {"1000"});
  const auto tool = script(folder, "echo chatter; echo \"TID $2 $3:\"; echo '#0 0x1 read'; echo '#1 0x2 main' >&2");
  const auto stacks = read_foreign_stacks(child.pid(), tool, Deadline::after(60s));
  EXPECT_EQ(stacks.problem, "");
  ASSERT_EQ(stacks.lines.size(), 3U);
  EXPECT_EQ(stacks.lines[0], "TID " + std::to_string(child.pid()) + " end:");
  EXPECT_EQ(stacks.lines[1], "#0 0x1 read");
}

TEST(ForeignStacks, tool_that_hangs_is_ended) {
  const TemporaryFolder folder;
  auto child = start_child("/bin/sleep", {"1000"});
  const auto stacks = read_foreign_stacks(child.pid(), script(folder, "exec sleep 1000"), Deadline::after(50ms));
  EXPECT_TRUE(stacks.lines.empty());
  EXPECT_NE(stacks.problem.find("did not finish in time"), std::string::npos);
}

TEST(ForeignStacks, process_left_stopped_by_a_killed_tool_is_continued) {
  const TemporaryFolder folder;
  auto child = start_child("/bin/sleep", {"1000"});
  const auto tool = script(folder, "kill -STOP $2; exec sleep 1000");
  static_cast<void>(read_foreign_stacks(child.pid(), tool, Deadline::after(500ms)));
  test::facts_once(child.pid(), [](const auto& seen) { return !seen.is_stopped(); });
}

TEST(ForeignStacks, refusal_comes_with_a_remedy) {
  const TemporaryFolder folder;
  auto child = start_child("/bin/sleep", {"1000"});
  const auto refused = read_foreign_stacks(child.pid(), script(folder, "echo no >&2; exit 1"), Deadline::after(60s));
  EXPECT_NE(refused.problem.find("ptrace_scope"), std::string::npos);
  const auto missing = read_foreign_stacks(child.pid(), StackTool{.path = "/nonexistent"}, Deadline::after(60s));
  EXPECT_NE(missing.problem, "");
  const auto none = read_foreign_stacks(child.pid(), std::nullopt, Deadline::after(60s));
  EXPECT_NE(none.problem.find("install"), std::string::npos);
}

TEST(ForeignStacks, ended_process_is_not_asked) {
  const TemporaryFolder folder;
  auto child = start_child("/bin/true", {});
  await_end(child);
  EXPECT_EQ(read_foreign_stacks(child.pid(), script(folder, "echo '#0 x'"), Deadline::after(60s)).problem,
            "it has ended");
}

TEST(ForeignStacks, tool_is_found_in_the_directories_of_a_path) {
  const TemporaryFolder folder;
  EXPECT_FALSE(find_stack_tool(folder.path().string() + ":/nonexistent:"));
  std::ofstream(folder.path() / "gdb") << "";
  EXPECT_FALSE(find_stack_tool(folder.path().string()));
  ::chmod((folder.path() / "gdb").c_str(), 0700);
  EXPECT_EQ(find_stack_tool("/nonexistent:" + folder.path().string())->path, (folder.path() / "gdb").string());
  std::ofstream(folder.path() / "eu-stack") << "";
  ::chmod((folder.path() / "eu-stack").c_str(), 0700);
  EXPECT_EQ(find_stack_tool(folder.path().string())->path, (folder.path() / "eu-stack").string());
}

}  // namespace
}  // namespace drover::process
