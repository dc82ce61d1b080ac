// pool/watch/stall_facts.hpp: the facts from which stall rules derive the cause of a stall.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/device/info.hpp"
#include "pool/watch/board_layout.hpp"
#include "pool/watch/board_reading.hpp"
#include "pool/watch/gpu_faults.hpp"
#include "process/inspect/process_facts.hpp"

namespace drover::pool {

/// One worker: its board entry, the state of its process, and its stack.
struct WorkerFacts {
  WorkerReading worker;                          ///< from the board
  std::optional<process::ProcessFacts> process;  ///< nullopt if it is gone
  bool is_forked_after_cuda = false;             ///< likely
  std::vector<std::string> stack;                ///< of its main thread, innermost first
  std::string stack_problem;                     ///< why there is no stack
  std::vector<std::string> stack_text;           ///< stacks of its interpreter, if it has one
};

/// A plain value, which tests fill by hand.
struct StallFacts {
  BoardReading board;                                ///< the pool
  std::optional<process::ProcessFacts> application;  ///< the owner of the pool; nullopt if it is gone
  std::vector<WorkerFacts> workers;                  ///< all of them
  std::vector<DeviceInfo> devices;                   ///< as known before; a driver call could hang now
  std::vector<GpuFault> faults;                      ///< since the pool was made
  std::vector<process::ProcessFacts> gpu_users;      ///< other processes with a GPU open, visible to this user
  std::chrono::nanoseconds patience{};               ///< time in the same state that counts as a stall
};

/// How to collect facts.
struct StallOptions {
  std::chrono::nanoseconds patience = std::chrono::seconds(30);  ///< time in the same state that counts as a stall
  std::chrono::nanoseconds time_for_stacks = std::chrono::seconds(3);  ///< for all stacks together
  std::vector<DeviceInfo> devices;                                     ///< the known devices
  std::filesystem::path proc = "/proc";                                ///< the process file system
  std::filesystem::path kernel_log = "/dev/kmsg";                      ///< the source of Xids
};

/// Collects all facts. Takes little longer than `time_for_stacks`, whatever the processes do. Writes to the board
/// only to request stacks.
[[nodiscard]] StallFacts collect_stall_facts(Board& board, const StallOptions& options = {});

}  // namespace drover::pool
