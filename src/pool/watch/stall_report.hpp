// pool/watch/stall_report.hpp: who waits on whom when a pool does not move, and the likely cause.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pool/watch/stall_facts.hpp"
#include "pool/watch/stall_rules.hpp"

namespace drover {

/// One worker that has not moved for long.
struct StalledWorker {
  WorkerFacts facts;                ///< what was seen
  std::optional<StallCause> cause;  ///< the likely one, if a rule names one
};

/// What is wrong with a pool.
struct StallReport {
  BoardReading board;                       ///< the pool
  std::optional<ProcessFacts> application;  ///< who owns it; nothing if it is gone
  std::vector<StalledWorker> workers;       ///< those that have not moved for long, or cannot
  std::vector<StallCause> causes;           ///< of the pool as a whole
  std::vector<GpuFault> faults;             ///< Xids since the pool was made

  /// Whether there is something to tell that is not harmless.
  [[nodiscard]] bool is_alarming() const noexcept;
};

/// Judges. Pure: the same facts give the same report.
[[nodiscard]] StallReport judge_stall(const StallFacts& facts);

/// Looks and judges; takes little longer than `options.time_for_stacks`, whatever the processes do.
[[nodiscard]] StallReport make_stall_report(Board& board, const StallOptions& options = {});

/// For people: several lines, the last with a line end.
[[nodiscard]] std::string to_string(const StallReport& report);

/// "sleeping in futex (kernel: futex_wait_queue), 5 threads" of a process, for a line of a report.
[[nodiscard]] std::string process_text(const ProcessFacts& process);

/// The innermost frames of a stack, one per line after `indent`.
[[nodiscard]] std::string stack_text(const std::vector<std::string>& stack, const std::string& indent);

}  // namespace drover
