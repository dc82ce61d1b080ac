// pool/watch/stall_facts.hpp: everything that is looked at when a pool does not move, before anybody judges.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "drover/base/clock.hpp"
#include "drover/device/info.hpp"
#include "drover/pool/board_reading.hpp"
#include "pool/watch/board_layout.hpp"
#include "pool/watch/gpu_faults.hpp"
#include "process/inspect/process_facts.hpp"

namespace drover {

/// One worker: what it wrote, what the kernel says of its process, and its stack.
struct WorkerFacts {
  WorkerReading worker;                 ///< from the board
  std::optional<ProcessFacts> process;  ///< nothing if it is gone
  bool is_forked_after_cuda = false;    ///< likely
  std::vector<std::string> stack;       ///< of its main thread, innermost first
  std::string stack_problem;            ///< why there is none
  std::vector<std::string> stack_text;  ///< what its interpreter says of its threads, if it has one
};

/// A plain value: tests fill it by hand.
struct StallFacts {
  BoardReading board;                       ///< the pool
  std::optional<ProcessFacts> application;  ///< who owns the pool; nothing if it is gone
  std::vector<WorkerFacts> workers;         ///< all of them
  std::vector<DeviceInfo> devices;          ///< as they were known before; asking now could hang
  std::vector<GpuFault> faults;             ///< since the pool was made
  std::vector<ProcessFacts> gpu_users;      ///< others with a GPU open, as far as this user may see
  std::chrono::nanoseconds patience{};      ///< how long is long
};

/// How facts are collected.
struct StallOptions {
  std::chrono::nanoseconds patience = std::chrono::seconds(30);        ///< how long nothing may move
  std::chrono::nanoseconds time_for_stacks = std::chrono::seconds(3);  ///< all of them together
  std::vector<DeviceInfo> devices;                                     ///< what is known of devices
  std::filesystem::path proc = "/proc";                                ///< where processes are looked at
  std::filesystem::path kernel_log = "/dev/kmsg";                      ///< where Xids are looked for
};

/// Looks at everything. Takes little longer than `time_for_stacks`, whatever the processes do. The board is written
/// only to ask for stacks.
[[nodiscard]] StallFacts collect_stall_facts(Board& board, const StallOptions& options = {});

}  // namespace drover
