// drover/pool/worker_state.hpp: what a worker of a pool does.
#pragma once

#include <cstdint>
#include <string_view>

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

}  // namespace drover
