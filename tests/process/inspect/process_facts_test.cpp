#include "process/inspect/process_facts.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"
#include "support/waiting_child.hpp"

namespace drover::process {
namespace {

using test::await_end;
using test::facts_once;
using test::start_child;

// A made-up /proc.
class FakeProc {
 public:
  void put(const std::string& path, const std::string& text) const {
    const auto whole = folder_.path() / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  void link(const std::string& path, const std::string& target) const {
    const auto whole = folder_.path() / path;
    std::filesystem::create_directories(whole.parent_path());
    std::filesystem::create_symlink(target, whole);
  }
  // A process of one thread.
  void add(int pid, int parent, char state, const std::string& name = "python) S 1") const {
    const auto number = std::to_string(pid);
    const auto stat = number + " (" + name + ") " + state + " " + std::to_string(parent) +
                      " 0 0 0 0 0 0 0 0 0 30 12 0 0 0 0 1 0 " + std::to_string(1000 + pid) + " 0 0\n";
    put(number + "/stat", stat);
    put(number + "/task/" + number + "/stat", stat);
    put(number + "/task/" + number + "/comm", name + "\n");
    put(number + "/status", "Name:\tx\nUid:\t1001\t1001\t1001\t1001\nVmRSS:\t    2048 kB\nSigCgt:\t10\nSigBlk:\t4\n");
  }
  [[nodiscard]] const std::filesystem::path& root() const { return folder_.path(); }

 private:
  test::TemporaryFolder folder_;
};

TEST(ProcessFacts, fields_are_read_past_a_name_that_looks_like_fields) {
  const FakeProc proc;
  proc.add(7, 3, 'S');
  proc.put("7/cmdline", std::string("python\0train.py\0--x\0", 20));
  proc.link("7/exe", "/usr/bin/python3");
  const auto facts = read_process_facts(7, proc.root());
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->parent, 3);
  EXPECT_EQ(facts->state, 'S');
  EXPECT_EQ(facts->start, 1007U);
  EXPECT_EQ(facts->cpu_ticks, 42U);
  EXPECT_EQ(facts->user, 1001U);
  EXPECT_EQ(facts->resident, 2048U * 1024);
  EXPECT_EQ(facts->caught_signals, 0x10U);
  EXPECT_EQ(facts->blocked_signals, 4U);
  EXPECT_EQ(facts->command, "python train.py --x");
  EXPECT_EQ(facts->executable, "/usr/bin/python3");
  EXPECT_EQ(facts->thread_count, 1U);
  EXPECT_FALSE(facts->has_gpu_open());
}

TEST(ProcessFacts, threads_tell_call_and_wait_channel) {
  const FakeProc proc;
  proc.add(7, 3, 'S');
  proc.put("7/task/7/wchan", "pipe_read");
  proc.put("7/task/7/syscall", std::to_string(SYS_read) + " 0x4 0x7ff 0x1 0x0 0x0 0x0 0x7f 0x7f\n");
  proc.put("7/task/2/stat", "2 (x) R 3 0\n");
  proc.put("7/task/2/syscall", "running\n");
  proc.put("7/task/9/stat", "9 (x) D 3 0\n");
  proc.put("7/task/9/wchan", "0");
  proc.put("7/task/9/syscall", "77777 0x0\n");
  proc.put("7/task/11/stat", "nonsense");
  const auto facts = read_process_facts(7, proc.root());
  ASSERT_EQ(facts->threads.size(), 3U);
  EXPECT_EQ(facts->thread_count, 4U);
  EXPECT_EQ(facts->threads[0].tid, 7);  // the main thread is first
  EXPECT_EQ(facts->threads[0].call, "read(4)");
  EXPECT_EQ(facts->threads[0].call_file, 4);
  EXPECT_EQ(facts->threads[0].wait_channel, "pipe_read");
  EXPECT_EQ(facts->threads[1].call, "");
  EXPECT_EQ(facts->threads[2].call, "#77777");
  EXPECT_EQ(facts->threads[2].wait_channel, "");
  EXPECT_TRUE(facts->is_uninterruptible());
}

TEST(ProcessFacts, nothing_that_could_wait_is_read_of_a_process_stuck_in_the_kernel) {
  const FakeProc proc;
  proc.add(7, 3, 'D', "nvidia");
  proc.put("7/cmdline", "train");
  proc.put("7/maps", "7f00-7fff r-xp 00001000 08:01 99 /usr/lib/libcuda.so.1\n");
  const auto facts = read_process_facts(7, proc.root());
  EXPECT_EQ(facts->command, "[nvidia]");
  EXPECT_FALSE(facts->cuda_address);
  EXPECT_TRUE(facts->is_uninterruptible());
}

TEST(ProcessFacts, what_is_missing_stays_empty) {
  const FakeProc proc;
  EXPECT_FALSE(read_process_facts(7, proc.root()));
  proc.put("8/stat", "8 (x");
  EXPECT_FALSE(read_process_facts(8, proc.root()));
  proc.put("9/stat", "9 (x) S 1");
  const auto facts = read_process_facts(9, proc.root());
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->command, "[?]");
  EXPECT_EQ(facts->start, 0U);
}

TEST(ProcessFacts, tree_has_parents_before_children) {
  const FakeProc proc;
  proc.add(10, 1, 'S');
  proc.add(5, 10, 'S');
  proc.add(12, 5, 'Z');
  proc.add(11, 10, 'S');
  proc.add(20, 1, 'S');
  std::vector<pid_t> pids;
  for (const auto& each : read_tree_facts(10, proc.root())) pids.push_back(each.pid);
  EXPECT_EQ(pids, (std::vector<pid_t>{10, 5, 11, 12}));
  std::size_t left_out = 0;
  EXPECT_EQ(read_tree_facts(10, proc.root(), 2, &left_out).size(), 2U);
  EXPECT_EQ(left_out, pids.size() - 2);
  EXPECT_TRUE(read_tree_facts(99, proc.root()).empty());
}

// A parent with CUDA and a child, as files show them.
struct Family {
  Family() {
    for (const int pid : {7, 8}) {
      const auto number = std::to_string(pid);
      proc.add(pid, pid - 1, 'S');
      proc.link(number + "/exe", "/usr/bin/python3");
      proc.put(number + "/maps", "7f00-7fff r--p 0 08:01 99 /usr/lib/libcuda.so.550.1\n");
      proc.link(number + "/fd/5", "/dev/nvidiactl");
      proc.link(number + "/fd/6", "/dev/nvidia0");
      proc.link(number + "/fd/1", "pipe:[77]");
    }
  }
  [[nodiscard]] bool is_forked(const SameFile& is_same) const {
    return is_likely_forked_after_cuda(*read_process_facts(8, proc.root()), *read_process_facts(7, proc.root()),
                                       is_same);
  }
  FakeProc proc;
};

TEST(ProcessFacts, gpu_files_and_libcuda_are_seen) {
  const Family family;
  const auto facts = read_process_facts(8, family.proc.root());
  ASSERT_EQ(facts->gpu_files.size(), 2U);
  EXPECT_EQ(facts->gpu_files[1].path, "/dev/nvidia0");
  EXPECT_EQ(facts->gpu_files[1].number, 6);
  EXPECT_EQ(facts->cuda_address, 0x7F00U);
  ASSERT_EQ(facts->pipes.size(), 1U);
}

TEST(ProcessFacts, fork_after_cuda_is_likely_when_files_are_inherited) {
  const Family family;
  EXPECT_TRUE(family.is_forked([](auto...) { return std::optional(true); }));
  EXPECT_TRUE(family.is_forked([](auto...) { return std::optional<bool>(); }));
  EXPECT_FALSE(family.is_forked([](auto...) { return std::optional(false); }));  // each opened its own
}

TEST(ProcessFacts, fork_after_cuda_is_unlikely_when_libcuda_lies_elsewhere) {
  const Family family;
  family.proc.put("8/maps", "6f00-6fff r--p 0 08:01 99 /usr/lib/libcuda.so.550.1\n");
  EXPECT_FALSE(family.is_forked([](auto...) { return std::optional(true); }));
  family.proc.put("8/maps", "");
  EXPECT_FALSE(family.is_forked([](auto...) { return std::optional(true); }));
}

TEST(ProcessFacts, kernel_compares_open_files) {
  const auto self = ::getpid();
  const int copy = ::dup(STDERR_FILENO);
  const int other = ::dup(STDERR_FILENO);
  if (!is_same_open_file(self, copy, self, other)) GTEST_SKIP() << "the kernel does not say (kcmp)";
  EXPECT_EQ(is_same_open_file(self, copy, self, other), true);
  ::close(other);
  EXPECT_EQ(is_same_open_file(self, copy, self, other), std::nullopt);
  ::close(copy);
}

TEST(ProcessFacts, sleeper_is_seen_in_its_call) {
  auto child = start_child("/bin/sleep", {"1000"});
  const auto facts = facts_once(child.pid(), [](const auto& seen) {
    return seen.state == 'S' && seen.threads.at(0).call.find("nanosleep") != std::string::npos;
  });
  EXPECT_EQ(facts.parent, ::getpid());
  EXPECT_NE(facts.executable.find("sleep"), std::string::npos);
  EXPECT_EQ(facts.command, "/bin/sleep 1000");
  EXPECT_GT(facts.resident, 0U);
  EXPECT_FALSE(facts.is_hidden);
}

TEST(ProcessFacts, reader_of_a_pipe_is_seen_with_its_descriptor) {
  auto child = start_child("/bin/cat", {});
  const auto facts = facts_once(child.pid(), [](const auto& seen) { return seen.threads.at(0).call == "read(0)"; });
  EXPECT_EQ(facts.threads.at(0).call_file, 0);
  const auto input = std::ranges::find(facts.pipes, 0, &OpenFile::number);
  ASSERT_NE(input, facts.pipes.end());
  EXPECT_TRUE(input->path.starts_with("pipe:[")) << input->path;
}

TEST(ProcessFacts, stopped_and_ended_processes_are_distinguished) {
  auto child = start_child("/bin/sleep", {"1000"});
  child.kill(SIGSTOP);
  const auto stopped = facts_once(child.pid(), [](const auto& seen) { return seen.is_stopped(); });
  EXPECT_EQ(stopped.state, 'T');
  child.kill(SIGKILL);
  await_end(child);
  const auto ended = facts_once(child.pid(), [](const auto& seen) { return seen.is_zombie(); });
  EXPECT_EQ(ended.command, "[sleep]");
  EXPECT_FALSE(ended.is_hidden);
  static_cast<void>(child.wait(Deadline::never()));
  EXPECT_FALSE(read_process_facts(child.pid()));
}

TEST(ProcessFacts, thread_on_a_lock_is_in_futex) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;
  std::thread waiter([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_over; });
  });
  const auto facts = facts_once(::getpid(), [](const auto& seen) {
    return std::ranges::any_of(seen.threads,
                               [&](const auto& each) { return each.tid != ::getpid() && each.call == "futex"; });
  });
  EXPECT_GE(facts.thread_count, 2U);
  {
    const std::lock_guard lock(mutex);
    is_over = true;
  }
  changed.notify_all();
  waiter.join();
}

TEST(ProcessFacts, states_and_calls_have_names) {
  for (const char state : {'R', 'S', 'D', 'T', 't', 'Z', 'X', 'I', '?'}) EXPECT_STRNE(state_text(state), "");
  EXPECT_EQ(system_call_name(SYS_futex), "futex");
  EXPECT_EQ(system_call_name(-5), "#-5");
}

}  // namespace
}  // namespace drover::process
