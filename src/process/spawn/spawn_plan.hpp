// process/spawn/spawn_plan.hpp: what a child does between clone and exec, prepared in advance.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "drover/base/fd.hpp"
#include "drover/process/spawn_options.hpp"

namespace drover::process {

/// The steps of a child, in this order; a failure names its step.
enum class SpawnStep : std::size_t {
  group,         ///< setsid or setpgid
  parent_death,  ///< prctl
  niceness,      ///< setpriority
  cpus,          ///< sched_setaffinity
  folder,        ///< chdir
  descriptors,   ///< dup3
  closing,       ///< close_range
  limits,        ///< prlimit
  program,       ///< execve
};
inline constexpr std::size_t kSpawnSteps = 9;

/// A limit in the kernel's layout.
struct KernelLimit {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
};

/// Lies in memory that the child shares with its parent. The child allocates nothing, takes no lock and calls nothing
/// that keeps state, so all its inputs and outputs are here.
struct SpawnPlan {
  std::string program;
  std::vector<char*> arguments;  // null-terminated, like variables
  std::vector<char*> variables;
  ChildGroup group = ChildGroup::ours;
  int parent_death_signal = 0;
  pid_t parent = 0;
  bool has_niceness = false;
  int niceness = 0;
  std::vector<unsigned long> cpus;  // one bit per CPU
  std::string folder;
  std::vector<std::pair<int, int>> moves;               // (descriptor of the parent, number in the child)
  std::vector<std::pair<unsigned, unsigned>> closings;  // first and last of each range
  std::vector<std::pair<int, KernelLimit>> limits;
  std::array<int, kSpawnSteps> faults = {};  // errors that a test injects, by step

  // Outputs.
  int error = 0;
  SpawnStep failed_step = SpawnStep::group;
  std::size_t failed_item = 0;
};

/// Builds the plan of `options` and owns what it points to.
class SpawnPreparation {
 public:
  explicit SpawnPreparation(const SpawnOptions& options);
  SpawnPreparation(const SpawnPreparation&) = delete;
  SpawnPreparation& operator=(const SpawnPreparation&) = delete;

  [[nodiscard]] SpawnPlan& plan() noexcept { return plan_; }
  [[nodiscard]] std::array<Fd, 3> take_pipes() noexcept { return std::move(pipes_); }

 private:
  void prepare_texts(const SpawnOptions& options);
  void prepare_placement(const Placement& placement);
  void prepare_streams(const StandardStreams& streams);
  void prepare_descriptors(const std::vector<std::pair<int, int>>& inherit);
  void prepare_faults();
  void lead(int number, Fd fd);

  SpawnPlan plan_;
  std::vector<std::string> argument_texts_;
  std::vector<std::string> variable_texts_;
  std::vector<std::pair<int, int>> streams_;  // as SpawnOptions::inherit
  std::vector<Fd> held_;                      // until the child has its copies
  std::array<Fd, 3> pipes_;
};

/// The system call of a step, for error texts and faults.
[[nodiscard]] const char* call_of(SpawnStep step, ChildGroup group) noexcept;

/// Performs all steps before the program, in a process that was made for it. Stops at the first step that fails.
void apply_spawn_plan(SpawnPlan& plan) noexcept;

/// The entry point of the child; never returns. `shared` is a SpawnPlan.
int run_spawn_plan(void* shared) noexcept;

}  // namespace drover::process
