// pool/watch/stall_rules.hpp: rules that find the likely cause of a stall.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pool/watch/stall_facts.hpp"

namespace drover::pool {

/// The likely cause of a stall.
struct StallCause {
  std::string id;            ///< stable name of the rule, "process-stopped"
  std::string text;          ///< the cause
  std::string remedy;        ///< an instruction
  bool is_harmless = false;  ///< the task only takes long
};

namespace stall {

/// A rule for one worker; nullopt if it does not apply.
using WorkerRule = std::optional<StallCause> (*)(const StallFacts& facts, const WorkerFacts& worker);
/// A rule for the pool as a whole.
using PoolRule = std::optional<StallCause> (*)(const StallFacts& facts);

// In the order in which `cause_of` tries them.
std::optional<StallCause> process_gone(const StallFacts& facts, const WorkerFacts& worker);
std::optional<StallCause> process_stopped(const StallFacts& facts, const WorkerFacts& worker);
std::optional<StallCause> gpu_fault(const StallFacts& facts, const WorkerFacts& worker);
std::optional<StallCause> uninterruptible(const StallFacts& facts, const WorkerFacts& worker);
std::optional<StallCause> cuda_after_fork(const StallFacts& facts, const WorkerFacts& worker);
std::optional<StallCause> context_blocked(const StallFacts& facts, const WorkerFacts& worker);
std::optional<StallCause> reader_stuck(const StallFacts& facts, const WorkerFacts& worker);
std::optional<StallCause> waits_for_device(const StallFacts& facts, const WorkerFacts& worker);
std::optional<StallCause> waits_for_peer(const StallFacts& facts, const WorkerFacts& worker);
std::optional<StallCause> driver_stuck(const StallFacts& facts, const WorkerFacts& worker);
std::optional<StallCause> starts_slowly(const StallFacts& facts, const WorkerFacts& worker);
std::optional<StallCause> ends_slowly(const StallFacts& facts, const WorkerFacts& worker);
std::optional<StallCause> busy(const StallFacts& facts, const WorkerFacts& worker);
std::optional<StallCause> sleeps(const StallFacts& facts, const WorkerFacts& worker);

std::optional<StallCause> application_gone(const StallFacts& facts);
std::optional<StallCause> application_stopped(const StallFacts& facts);
std::optional<StallCause> no_workers(const StallFacts& facts);
std::optional<StallCause> idle_with_tasks(const StallFacts& facts);

/// The first rule that applies to a worker.
[[nodiscard]] std::optional<StallCause> cause_of(const StallFacts& facts, const WorkerFacts& worker);
/// All rules that apply to the pool.
[[nodiscard]] std::vector<StallCause> causes_of_pool(const StallFacts& facts);

}  // namespace stall
}  // namespace drover::pool
