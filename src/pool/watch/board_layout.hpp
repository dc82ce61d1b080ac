// pool/watch/board_layout.hpp: what the workers of a pool do, in memory that anybody of this user may look at.
//
// A board is a memory file named "drover-board". The application makes it; it and every worker have it open and
// mapped, so that it is found in /proc/PID/fd of each of them and gone with the last. `drover ps` reads it from
// outside. Nothing that must be right for others depends on what a worker writes here, but for `claim`.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/activity.hpp"
#include "drover/pool/board_reading.hpp"

namespace drover {

inline constexpr std::uint64_t kBoardMagic = 0x447261'6F42'7644ULL;
inline constexpr std::uint32_t kBoardVersion = 2;
inline constexpr std::size_t kMostBoardWorkers = 256;  ///< of one pool
inline constexpr std::size_t kMostBoardTasks = 256;    ///< names that are shown; later ones are not
inline constexpr const char* kBoardFileName = "drover-board";

/// A text of fixed size, ended by a zero. Written before its slot is shown, or by one process only.
template <std::size_t Bytes>
using BoardText = std::array<char, Bytes>;

/// One worker. The first two lines are written by the worker at each task.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): lines of the cache by who writes them
struct alignas(64) BoardWorker {
  /// How far the worker has come in the batch it was sent last, and how much of that is still its own: see
  /// `pool/claim.hpp`.
  std::atomic<std::uint64_t> claim{0};
  std::atomic<std::uint64_t> task{0};   ///< number of the task it runs; 0: none
  std::atomic<std::uint64_t> since{0};  ///< when `state` or `task` changed last; nanoseconds of the monotonic clock
  std::atomic<std::uint32_t> name{0};   ///< of the task: index in Board::tasks
  std::atomic<WorkerState> state{WorkerState::none};  ///< what it does
  std::atomic<std::uint64_t> done{0};                 ///< tasks it has finished
  alignas(64) ActivitySlot activity;                  ///< what its main thread is inside of
  std::atomic<std::uint64_t> interrupt{0};            ///< written by the application: the task that shall stop
  std::atomic<std::uint32_t> fence{0};                ///< by the application: batches up to it are begun no more

  alignas(64) std::atomic<std::uint32_t> pid{0};  ///< its process; 0: none
  std::atomic<std::uint32_t> starts{0};           ///< how many processes had this slot
  BoardText<32> title{};                          ///< "worker-3"
  BoardText<16> place{};                          ///< "cuda:0" as the application numbers devices, or "cpu"
  BoardText<48> device{};                         ///< UUID of the device it really got; written by the worker

  // What the worker calls a task, in place of the name in Board::tasks; counts while `titled` is its number.
  static constexpr std::size_t kTitleWords = 8;
  alignas(64) std::atomic<std::uint64_t> titled{0};
  std::array<std::atomic<std::uint64_t>, kTitleWords> task_title{};

  // A stack is asked for by `stack_asked` + 1 and a signal with that number, and is there when `stack_given` equals
  // it: see `pool/stack_sampler.hpp`.
  static constexpr std::size_t kMostFrames = 64;
  alignas(64) std::atomic<std::uint32_t> stack_asked{0};
  std::atomic<std::uint32_t> stack_given{0};
  std::atomic<std::uint32_t> stack_depth{0};
  std::atomic<std::uint32_t> stack_thread{0};      ///< whose stack it is
  std::atomic<std::uint32_t> stack_helper{0};      ///< a thread that answers when the main one cannot; 0: none
  std::array<std::uint64_t, kMostFrames> stack{};  ///< return addresses, innermost first
};

/// All of it.
struct Board {
  std::uint64_t magic = kBoardMagic;
  std::uint32_t version = kBoardVersion;
  std::uint32_t worker_slots = 0;           ///< how many of `workers` are used
  std::uint32_t application = 0;            ///< process id of who owns the pool
  std::uint32_t task_names = 0;             ///< how many of `tasks` are used
  std::uint64_t started = 0;                ///< nanoseconds of the monotonic clock
  BoardText<48> pool{};                     ///< its name, for people
  std::atomic<std::uint64_t> pending{0};    ///< tasks no worker has yet
  std::atomic<std::uint64_t> in_flight{0};  ///< tasks that workers have
  std::atomic<std::uint64_t> finished{0};   ///< tasks with a result or an error
  std::atomic<std::uint64_t> failed{0};     ///< those with an error
  std::atomic<std::uint64_t> restarts{0};   ///< workers that were replaced
  std::array<BoardText<64>, kMostBoardTasks> tasks{};
  std::array<BoardWorker, kMostBoardWorkers> workers{};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<WorkerState>::is_always_lock_free);

}  // namespace drover
