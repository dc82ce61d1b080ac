// process/inspect/process_facts.hpp: a snapshot of a process and its threads from /proc: where they sleep, and on
// which files.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace drover::process {

/// One thread.
struct ThreadFacts {
  pid_t tid = 0;             ///< thread id
  std::string name;          ///< as set by the thread
  char state = '?';          ///< R, S, D, T, t, Z ...
  std::string wait_channel;  ///< kernel function in which it sleeps; empty if none or unreadable
  std::string call;          ///< current system call: "futex", "read(4)", "#999"; empty if none or unreadable
  int call_file = -1;        ///< the descriptor that the call operates on; -1 if none
  std::uint64_t futex = 0;   ///< address of the word on which it waits; 0 if it is in another call
};

/// An open file of a process.
struct OpenFile {
  int number = -1;   ///< descriptor
  std::string path;  ///< "/dev/nvidia0", "pipe:[1234]"
};

/// A snapshot of a process. Its files are read one after another. Fields that may not be read are empty.
struct ProcessFacts {
  pid_t pid = 0;                              ///< process id
  pid_t parent = 0;                           ///< id of the parent
  uid_t user = 0;                             ///< owner
  std::uint64_t start = 0;                    ///< start time, in clock ticks since boot
  std::uint64_t cpu_ticks = 0;                ///< CPU time used, in clock ticks
  char state = '?';                           ///< of the main thread
  std::string executable;                     ///< path of the executable
  std::string command;                        ///< command line, possibly cut; or "[name]"
  std::uint64_t resident = 0;                 ///< resident memory, in bytes
  std::vector<ThreadFacts> threads;           ///< at most kMostThreads, the main thread first
  std::size_t thread_count = 0;               ///< number of all threads
  std::vector<OpenFile> gpu_files;            ///< /dev/nvidia*
  std::vector<OpenFile> pipes;                ///< pipes and eventfds
  std::optional<std::uint64_t> cuda_address;  ///< where libcuda is mapped; nullopt if it is not loaded
  bool is_hidden = false;                     ///< its files and maps may not be read, since another user owns it
  std::uint64_t caught_signals = 0;           ///< bit N-1: it handles signal N
  std::uint64_t blocked_signals = 0;          ///< bit N-1: its main thread blocks signal N

  /// Stopped by a signal, or by a debugger.
  [[nodiscard]] bool is_stopped() const noexcept { return state == 'T' || state == 't'; }
  /// Has ended and has not been reaped.
  [[nodiscard]] bool is_zombie() const noexcept { return state == 'Z' || state == 'X'; }
  /// Has a thread in uninterruptible sleep.
  [[nodiscard]] bool is_uninterruptible() const noexcept;
  /// Has an NVIDIA device open, so it has initialised CUDA or tried to.
  [[nodiscard]] bool has_gpu_open() const noexcept { return !gpu_files.empty(); }
};

/// Maximum number of threads that are described.
inline constexpr std::size_t kMostThreadFacts = 64;

/// Reads one process; nullopt if it is gone. Never blocks on the process: if a thread is in state D, skips the files
/// whose reading could wait for it.
[[nodiscard]] std::optional<ProcessFacts> read_process_facts(pid_t pid, const std::filesystem::path& proc = "/proc");

/// Reads a process and its descendants, parents before children; empty if it is gone. Reads at most `most`, and adds
/// the number of the others to `left_out`.
[[nodiscard]] std::vector<ProcessFacts> read_tree_facts(pid_t root, const std::filesystem::path& proc = "/proc",
                                                        std::size_t most = 256, std::size_t* left_out = nullptr);

/// Whether descriptor `first_file` of one process and `second_file` of another refer to the same open file
/// description, inherited or sent; nullopt if the kernel does not say.
using SameFile = std::function<std::optional<bool>(pid_t first, int first_file, pid_t second, int second_file)>;
/// Compares by kcmp(2).
[[nodiscard]] std::optional<bool> is_same_open_file(pid_t first, int first_file, pid_t second, int second_file);

/// Whether the child was probably forked, without exec, from a parent that had initialised CUDA: libcuda is mapped at
/// the same address, and its device files are those of the parent.
[[nodiscard]] bool is_likely_forked_after_cuda(const ProcessFacts& child, const ProcessFacts& parent,
                                               const SameFile& is_same = is_same_open_file);

/// Spells out the letter of a state: "running", "sleeping", "in uninterruptible sleep", "stopped", ...
[[nodiscard]] const char* state_text(char state) noexcept;

/// The name of a system call in which threads commonly wait; "#999" for others.
[[nodiscard]] std::string system_call_name(long number);

}  // namespace drover::process
