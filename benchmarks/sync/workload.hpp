// benchmarks/sync/workload.hpp: measurements of ways to exclude, wait and meet between processes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "drover/base/fd.hpp"
#include "support/crew.hpp"

namespace drover::bench {

/// The use of a contender.
enum class Task : std::uint32_t {
  lock,     ///< acquired and released, by one process and by several
  turns,    ///< two processes alternate
  barrier,  ///< several processes meet
};

/// The kinds of contenders. Those of one kind are compared.
enum class Kind : std::uint32_t { lock, semaphore, semaphore_turns, event_turns, condition_turns, barrier };

/// One measurement, taken of every contender of its kind.
struct Cell {
  Kind kind = Kind::lock;
  std::uint32_t processes = 1;
};

/// "lock, 2 processes" and "acquire + release".
[[nodiscard]] std::string workload_name(const Cell& cell);
[[nodiscard]] std::string metric_name(const Cell& cell);
/// The use of a kind.
[[nodiscard]] Task task_of(Kind kind) noexcept;

/// Longest name of a shared object.
inline constexpr std::size_t kMostName = 127;

/// The objects of a contender in a step: a memory file, names, or both. Destroyed once every worker has opened them.
struct Made {
  Fd memory;                         ///< of `Shared<T>`; every contender has one
  std::array<std::string, 2> names;  ///< of named objects
  std::shared_ptr<void> keep;        ///< shared, to erase its type
};

/// An order to a worker, as bytes: conductor and worker are the same program.
struct Order {
  std::uint32_t contender = 0;  ///< index in the list of contenders
  Cell cell;
  std::uint32_t index = 0;         ///< of this process in the step
  std::int32_t cpu = -1;           ///< processor to run on; any if negative
  std::int64_t budget_ns = 0;      ///< time limit for samples
  std::uint32_t most_samples = 0;  ///< limit of recorded samples
  std::uint32_t warm_samples = 0;  ///< unrecorded samples
  std::array<std::array<char, kMostName + 1>, 2> names{};
};
static_assert(std::is_trivially_copyable_v<Order>);

/// A contender: a way to exclude, wait or meet.
struct Contender {
  Kind kind = Kind::lock;
  const char* name = "";
  /// Creates the shared objects; called by the conductor.
  Made (*make)(const Cell& cell, const Session& session) = nullptr;
  /// Takes part; called in workers.
  void (*play)(const Order& order, const Fd& memory, Post& post) = nullptr;
};

/// All contenders, drover first; an order names one by its index.
[[nodiscard]] std::span<const Contender> contenders();

/// Each contender has its own file.
[[nodiscard]] std::span<const Contender> drover_contenders();
[[nodiscard]] std::span<const Contender> posix_contenders();
[[nodiscard]] std::span<const Contender> boost_contenders();
[[nodiscard]] std::span<const Contender> futex_contenders();

}  // namespace drover::bench
