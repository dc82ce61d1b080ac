// drover/pool/board_reading.hpp: what one look at the board of a pool showed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace drover {

/// What a worker does.
enum class WorkerState : std::uint32_t {
  none = 0,  ///< there is no worker in this slot
  starting,  ///< its process is on its way; it opens its device and runs its initialiser
  idle,      ///< it waits for tasks
  running,   ///< it runs a task
  sending,   ///< it puts a result and waits for room
  ending,    ///< it was told to end
  dead,      ///< it has ended, and no other has come yet
};

/// "starting", "idle", ...; "unknown" for what is none of them.
[[nodiscard]] std::string_view to_string(WorkerState state) noexcept;

/// One worker of a pool at a moment. Texts are cut and printable, whatever the worker wrote.
struct WorkerReading {
  std::size_t slot = 0;                     ///< its place on the board
  std::string name;                         ///< "worker-3"
  pid_t pid = 0;                            ///< its process; 0: none
  std::string place;                        ///< "cuda:0" as the application numbers devices, or "cpu"
  std::string device;                       ///< UUID of the device it got; empty if none
  WorkerState state = WorkerState::none;    ///< what it does
  std::uint64_t task = 0;                   ///< number of its task; 0: none
  std::string task_name;                    ///< of its task; empty if none or not known
  std::chrono::nanoseconds since{};         ///< how long it has been in that state with that task
  std::string inside;                       ///< the call or wait its main thread is in: "cuMemAlloc", "queue.get"
  std::chrono::nanoseconds inside_since{};  ///< for how long
  std::uint64_t done = 0;                   ///< tasks it has finished
  std::uint32_t starts = 0;                 ///< how many processes had this slot
  bool is_interrupted = false;              ///< its task was told to stop
};

/// A pool at a moment. Each word is read at its own time.
struct BoardReading {
  std::string pool;                    ///< its name
  pid_t application = 0;               ///< process that owns it
  std::chrono::nanoseconds age{};      ///< since it was made
  std::uint64_t pending = 0;           ///< tasks no worker has yet
  std::uint64_t in_flight = 0;         ///< tasks that workers have
  std::uint64_t finished = 0;          ///< tasks with a result or an error
  std::uint64_t failed = 0;            ///< those with an error
  std::uint64_t restarts = 0;          ///< workers that were replaced
  std::vector<WorkerReading> workers;  ///< those slots that have one
};

}  // namespace drover
