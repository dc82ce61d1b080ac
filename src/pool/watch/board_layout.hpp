// pool/watch/board_layout.hpp: the state of a pool's workers, in memory that other processes of the user can read.
//
// A board is a memory file named "drover-board". The application makes it. The application and every worker keep it
// open and mapped, so it can be found in /proc/PID/fd of each, and disappears with the last one. `drover ps` reads it
// from outside. The pool trusts nothing that a worker writes here, except `claim`.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/activity.hpp"
#include "pool/watch/board_reading.hpp"

namespace drover::pool {

inline constexpr std::uint64_t kBoardMagic = 0x447261'6F42'7644ULL;
inline constexpr std::uint32_t kBoardVersion = 2;
inline constexpr std::size_t kMostBoardWorkers = 256;  ///< most workers of one pool
inline constexpr std::size_t kMostBoardTasks = 256;    ///< task names shown; others are not
inline constexpr const char* kBoardFileName = "drover-board";

/// A zero-terminated text of fixed size. Written before its slot is visible, or by one process only.
template <std::size_t Bytes>
using BoardText = std::array<char, Bytes>;

/// One worker, which writes the first two cache lines at each task.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): cache lines are separated by writer
struct alignas(64) BoardWorker {
  /// The progress in the current batch, and what was taken back of it: see `pool/run/claim.hpp`.
  std::atomic<std::uint64_t> claim{0};
  std::atomic<std::uint64_t> task{0};   ///< number of the task it runs; 0: none
  std::atomic<std::uint64_t> since{0};  ///< last change of `state` or `task`; nanoseconds of the monotonic clock
  std::atomic<std::uint32_t> name{0};   ///< of its task: index in Board::tasks
  std::atomic<WorkerState> state{WorkerState::none};  ///< its state
  std::atomic<std::uint64_t> done{0};                 ///< tasks it has finished
  alignas(64) ActivitySlot activity;                  ///< the call its main thread is in
  std::atomic<std::uint64_t> interrupt{0};            ///< set by the application: the task that should stop
  std::atomic<std::uint32_t> fence{0};                ///< set by the application: batches up to it must not begin

  alignas(64) std::atomic<std::uint32_t> pid{0};  ///< its process; 0: none
  std::atomic<std::uint32_t> starts{0};           ///< processes that have had this slot
  BoardText<32> title{};                          ///< "worker-3"
  BoardText<16> place{};                          ///< "cuda:0" as the application numbers devices, or "cpu"
  BoardText<48> device{};                         ///< UUID of the device it got, as the worker reports it

  // A title that replaces the name in Board::tasks, valid while `titled` is the number of the task.
  static constexpr std::size_t kTitleWords = 8;
  alignas(64) std::atomic<std::uint64_t> titled{0};
  std::array<std::atomic<std::uint64_t>, kTitleWords> task_title{};

  // A stack is requested by incrementing `stack_asked` and a signal with that number, and is available when
  // `stack_given` equals it: see `pool/watch/stack_sampler.hpp`.
  static constexpr std::size_t kMostFrames = 64;
  alignas(64) std::atomic<std::uint32_t> stack_asked{0};
  std::atomic<std::uint32_t> stack_given{0};
  std::atomic<std::uint32_t> stack_depth{0};
  std::atomic<std::uint32_t> stack_thread{0};      ///< the thread whose stack it is
  std::atomic<std::uint32_t> stack_helper{0};      ///< a thread that answers when the main thread cannot; 0: none
  std::array<std::uint64_t, kMostFrames> stack{};  ///< return addresses, innermost first
};

/// A pool.
struct Board {
  std::uint64_t magic = kBoardMagic;
  std::uint32_t version = kBoardVersion;
  std::uint32_t worker_slots = 0;           ///< used entries of `workers`
  std::uint32_t application = 0;            ///< process that owns the pool
  std::uint32_t task_names = 0;             ///< used entries of `tasks`
  std::uint64_t started = 0;                ///< nanoseconds of the monotonic clock
  BoardText<48> pool{};                     ///< its name
  std::atomic<std::uint64_t> pending{0};    ///< tasks not sent to a worker yet
  std::atomic<std::uint64_t> in_flight{0};  ///< tasks sent to workers
  std::atomic<std::uint64_t> finished{0};   ///< tasks with a result or an error
  std::atomic<std::uint64_t> failed{0};     ///< tasks with an error
  std::atomic<std::uint64_t> restarts{0};   ///< workers that were replaced
  std::array<BoardText<64>, kMostBoardTasks> tasks{};
  std::array<BoardWorker, kMostBoardWorkers> workers{};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<WorkerState>::is_always_lock_free);

}  // namespace drover::pool
