// pool/watch/stall_report.hpp: the stalled workers of a pool, and the likely causes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pool/watch/stall_facts.hpp"
#include "pool/watch/stall_rules.hpp"

namespace drover::pool {

/// A worker that has been in the same state for long.
struct StalledWorker {
  WorkerFacts facts;                ///< its facts
  std::optional<StallCause> cause;  ///< the likely cause, if a rule found one
};

/// The stall of a pool.
struct StallReport {
  BoardReading board;                                ///< the pool
  std::optional<process::ProcessFacts> application;  ///< its owner; nullopt if it is gone
  std::vector<StalledWorker> workers;                ///< the stalled workers
  std::vector<StallCause> causes;                    ///< causes of the pool as a whole
  std::vector<GpuFault> faults;                      ///< Xids since the pool was made

  /// Whether a cause is not harmless.
  [[nodiscard]] bool is_alarming() const noexcept;
};

/// Applies the rules; a pure function.
[[nodiscard]] StallReport judge_stall(const StallFacts& facts);

/// Collects facts and applies the rules. Takes little longer than `options.time_for_stacks`.
[[nodiscard]] StallReport make_stall_report(Board& board, const StallOptions& options = {});

/// Several lines, each with a line end.
[[nodiscard]] std::string to_string(const StallReport& report);

/// "sleeping in futex (kernel: futex_wait_queue), 5 threads".
[[nodiscard]] std::string process_text(const process::ProcessFacts& process);

/// The innermost frames of a stack, one per line after `indent`.
[[nodiscard]] std::string stack_text(const std::vector<std::string>& stack, const std::string& indent);

}  // namespace drover::pool
