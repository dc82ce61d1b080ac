// process/inspect/process_facts.hpp: what /proc shows of a process and its threads: who sleeps where, and with which
// files.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace drover {

/// One thread.
struct ThreadFacts {
  pid_t tid = 0;             ///< its id
  std::string name;          ///< as it calls itself
  char state = '?';          ///< R, S, D, T, t, Z ...
  std::string wait_channel;  ///< the function of the kernel in which it sleeps; empty if none or not told
  std::string call;          ///< the system call it is in: "futex", "read(4)", "#999"; empty if none or not told
  int call_file = -1;        ///< the descriptor that call is about, where it is about one
};

/// An open file of a process.
struct OpenFile {
  int number = -1;   ///< of the descriptor
  std::string path;  ///< "/dev/nvidia0", "pipe:[1234]"
};

/// A process at a moment. Each file is read at its own time. What may not be read is empty.
struct ProcessFacts {
  pid_t pid = 0;                              ///< its id
  pid_t parent = 0;                           ///< its parent's id
  uid_t user = 0;                             ///< whose it is
  std::uint64_t start = 0;                    ///< when it began, in ticks since the machine did
  std::uint64_t cpu_ticks = 0;                ///< time it has used, in ticks
  char state = '?';                           ///< of its first thread
  std::string executable;                     ///< path of the program
  std::string command;                        ///< its command line, cut; or "[name]"
  std::uint64_t resident = 0;                 ///< bytes of memory it has now
  std::vector<ThreadFacts> threads;           ///< the first of them; the main thread first
  std::size_t thread_count = 0;               ///< all of them
  std::vector<OpenFile> gpu_files;            ///< /dev/nvidia*
  std::vector<OpenFile> pipes;                ///< pipes and eventfds
  std::optional<std::uint64_t> cuda_address;  ///< where libcuda lies in it; nothing if it is not loaded
  bool is_hidden = false;                     ///< files and maps may not be read: another user's
  std::uint64_t caught_signals = 0;           ///< bit N-1: it has a handler for signal N
  std::uint64_t blocked_signals = 0;          ///< bit N-1: its main thread blocks signal N

  /// Stopped by a signal, or by a debugger.
  [[nodiscard]] bool is_stopped() const noexcept { return state == 'T' || state == 't'; }
  /// Has ended; nobody has asked how.
  [[nodiscard]] bool is_zombie() const noexcept { return state == 'Z' || state == 'X'; }
  /// Has a thread in a sleep of the kernel that no signal ends.
  [[nodiscard]] bool is_uninterruptible() const noexcept;
  /// Has a device of NVIDIA open, so that it has started CUDA, or tried to.
  [[nodiscard]] bool has_gpu_open() const noexcept { return !gpu_files.empty(); }
};

/// Most threads that are described one by one.
inline constexpr std::size_t kMostThreadFacts = 64;

/// Reads one process; nothing if it is gone. Returns soon whatever the process does: of one with a thread in state D
/// nothing is read that could wait for it.
[[nodiscard]] std::optional<ProcessFacts> read_process_facts(pid_t pid, const std::filesystem::path& proc = "/proc");

/// The process and all below it, parents before children; none if it is gone. At most `most`; how many there are
/// beyond is added to `left_out`.
[[nodiscard]] std::vector<ProcessFacts> read_tree_facts(pid_t root, const std::filesystem::path& proc = "/proc",
                                                        std::size_t most = 256, std::size_t* left_out = nullptr);

/// Whether descriptor `first_file` of one process and `second_file` of another are the same open file, inherited or
/// sent; nothing if the kernel does not say.
using SameFile = std::function<std::optional<bool>(pid_t first, int first_file, pid_t second, int second_file)>;
/// Asks the kernel (kcmp).
[[nodiscard]] std::optional<bool> is_same_open_file(pid_t first, int first_file, pid_t second, int second_file);

/// Whether the child was likely made by fork, without exec, from a parent that had started CUDA: libcuda lies at the
/// same address, and its device files are the parent's.
[[nodiscard]] bool is_likely_forked_after_cuda(const ProcessFacts& child, const ProcessFacts& parent,
                                               const SameFile& is_same = is_same_open_file);

/// "running", "sleeping", "in uninterruptible sleep", "stopped", ... of a state's letter.
[[nodiscard]] const char* state_text(char state) noexcept;

/// The name of a system call in which threads wait; "#999" for others.
[[nodiscard]] std::string system_call_name(long number);

}  // namespace drover
