// benchmarks/sync/workload.hpp: what is measured of every way to exclude, to wait and to meet between processes.
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

/// What a contender is used for.
enum class Task : std::uint32_t {
  lock,     ///< taken and given back, by one process and by several
  turns,    ///< two processes let each other go on in turn
  barrier,  ///< several processes meet
};

/// The ways there are. Contenders of one kind are compared.
enum class Kind : std::uint32_t { lock, semaphore, semaphore_turns, event_turns, condition_turns, barrier };

/// One thing to measure, of every contender of its kind.
struct Cell {
  Kind kind = Kind::lock;
  std::uint32_t processes = 1;
};

/// "lock, 2 processes" and "acquire + release".
[[nodiscard]] std::string workload_name(const Cell& cell);
[[nodiscard]] std::string metric_name(const Cell& cell);
/// What is done with a kind.
[[nodiscard]] Task task_of(Kind kind) noexcept;

/// Longest name of a shared thing.
inline constexpr std::size_t kMostName = 127;

/// What a contender made for a step: a memory file, names, or both. Goes when every worker has opened it.
struct Made {
  Fd memory;                         ///< of `Shared<T>`; every contender has one
  std::array<std::string, 2> names;  ///< of things that have names
  std::shared_ptr<void> keep;        ///< shared, because it has no type here
};

/// An order to a worker, as bytes: conductor and worker are the same program.
struct Order {
  std::uint32_t contender = 0;  ///< place in the list of contenders
  Cell cell;
  std::uint32_t index = 0;         ///< of this process in the step
  std::int32_t cpu = -1;           ///< where to run; anywhere if negative
  std::int64_t budget_ns = 0;      ///< after so long enough is sampled
  std::uint32_t most_samples = 0;  ///< recorded at most
  std::uint32_t warm_samples = 0;  ///< not recorded
  std::array<std::array<char, kMostName + 1>, 2> names{};
};
static_assert(std::is_trivially_copyable_v<Order>);

/// A way to exclude, to wait or to meet.
struct Contender {
  Kind kind = Kind::lock;
  const char* name = "";
  /// Makes what is shared; called by the conductor.
  Made (*make)(const Cell& cell, const Session& session) = nullptr;
  /// Takes part; called in workers.
  void (*play)(const Order& order, const Fd& memory, Post& post) = nullptr;
};

/// All of them, drover's first; the place in the list is the number in orders.
[[nodiscard]] std::span<const Contender> contenders();

/// One file each.
[[nodiscard]] std::span<const Contender> drover_contenders();
[[nodiscard]] std::span<const Contender> posix_contenders();
[[nodiscard]] std::span<const Contender> boost_contenders();
[[nodiscard]] std::span<const Contender> futex_contenders();

}  // namespace drover::bench
