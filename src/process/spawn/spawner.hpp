// process/spawn/spawner.hpp: another way to start a child than by clone.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "drover/base/mutex.hpp"
#include "process/spawn/spawn.hpp"

namespace drover {

/// Starts some children in its own way. Safe for all threads.
class Spawner {
 public:
  Spawner() = default;
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;
  virtual ~Spawner() = default;

  /// The child, with everything in force that `options` ask for; nothing if this way does not suit, or fails: then
  /// the usual way is taken, which also says what is wrong with the options.
  [[nodiscard]] virtual std::optional<Spawned> spawn(const SpawnOptions& options) = 0;
};

namespace detail {
struct SpawnerSlot {
  Mutex mutex;
  std::shared_ptr<Spawner> current DROVER_GUARDED_BY(mutex);  // shared: a child may be on its way when it is replaced
};

inline SpawnerSlot& spawner_slot() {
  static auto* const slot = new SpawnerSlot;  // never destroyed: a child may be started by a destructor of a global
  return *slot;
}
}  // namespace detail

/// Asked for every child from now on; a null pointer: nobody is.
inline void set_spawner(std::shared_ptr<Spawner> spawner) {
  auto& slot = detail::spawner_slot();
  const MutexLock lock(slot.mutex);
  slot.current.swap(spawner);
}

/// What was set.
[[nodiscard]] inline std::shared_ptr<Spawner> current_spawner() {
  auto& slot = detail::spawner_slot();
  const MutexLock lock(slot.mutex);
  return slot.current;
}

}  // namespace drover
