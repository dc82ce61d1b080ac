// pool/watch/board_reading.hpp: a snapshot of a pool and its workers.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace drover::pool {

/// The state of a worker.
enum class WorkerState : std::uint32_t {
  none = 0,  ///< there is no worker in this slot
  starting,  ///< its process starts, opens its device and runs the initialiser
  idle,      ///< it waits for tasks
  running,   ///< it runs a task
  sending,   ///< it sends a result, or waits for room to do so
  ending,    ///< it was asked to exit
  dead,      ///< its process has exited and is not replaced yet
};

/// "starting", "idle", ...; "unknown" for any other value.
[[nodiscard]] std::string_view to_string(WorkerState state) noexcept;

/// A snapshot of one worker. Texts are truncated and printable, whatever the worker wrote.
struct WorkerReading {
  std::size_t slot = 0;                     ///< its index on the board
  std::string name;                         ///< "worker-3"
  pid_t pid = 0;                            ///< its process; 0: none
  std::string place;                        ///< "cuda:0" as the application numbers devices, or "cpu"
  std::string device;                       ///< UUID of the device it got; empty if none
  WorkerState state = WorkerState::none;    ///< its state
  std::uint64_t task = 0;                   ///< number of the task it runs; 0: none
  std::string task_name;                    ///< empty if none or unknown
  std::chrono::nanoseconds since{};         ///< how long it has been in this state with this task
  std::string inside;                       ///< the call its main thread is in: "cuMemAlloc", "queue.get"
  std::chrono::nanoseconds inside_since{};  ///< how long it has been in that call
  std::uint64_t done = 0;                   ///< tasks it has finished
  std::uint32_t starts = 0;                 ///< processes that have had this slot
  bool is_interrupted = false;              ///< its task was asked to stop
};

/// A snapshot of a pool. Fields are read one after the other, not atomically.
struct BoardReading {
  std::string pool;                    ///< its name
  pid_t application = 0;               ///< the process that owns it
  std::chrono::nanoseconds age{};      ///< since it was made
  std::uint64_t pending = 0;           ///< tasks not sent to a worker yet
  std::uint64_t in_flight = 0;         ///< tasks sent to workers
  std::uint64_t finished = 0;          ///< tasks with a result or an error
  std::uint64_t failed = 0;            ///< tasks with an error
  std::uint64_t restarts = 0;          ///< workers that were replaced
  std::vector<WorkerReading> workers;  ///< one for each slot in use
};

}  // namespace drover::pool
