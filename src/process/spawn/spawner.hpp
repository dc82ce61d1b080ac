// process/spawn/spawner.hpp: an alternative way to start children.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "drover/base/mutex.hpp"
#include "process/spawn/spawn.hpp"

namespace drover::process {

/// Starts some children in its own way. Thread-safe.
class Spawner {
 public:
  Spawner() = default;
  Spawner(const Spawner&) = delete;
  Spawner& operator=(const Spawner&) = delete;
  virtual ~Spawner() = default;

  /// Starts a child with all of `options` in force; nullopt if it cannot. Then the caller clones, which also reports
  /// what is wrong with the options.
  [[nodiscard]] virtual std::optional<Spawned> spawn(const SpawnOptions& options) = 0;
  /// Whether `spawn` would wait, for seconds, because something that it needs is still being loaded. Does not wait.
  [[nodiscard]] virtual bool would_wait(const SpawnOptions& options) = 0;
};

namespace impl {
struct SpawnerSlot {
  Mutex mutex;
  std::shared_ptr<Spawner> current DROVER_GUARDED_BY(mutex);  // shared: may be replaced while it starts a child
};

inline SpawnerSlot& spawner_slot() {
  static auto* const slot = new SpawnerSlot;  // never destroyed: a global's destructor may start a child
  return *slot;
}
}  // namespace impl

/// Sets the spawner that is asked for every child; nullptr for none.
inline void set_spawner(std::shared_ptr<Spawner> spawner) {
  auto& slot = impl::spawner_slot();
  const MutexLock lock(slot.mutex);
  slot.current.swap(spawner);
}

/// The spawner that was set, or nullptr.
[[nodiscard]] inline std::shared_ptr<Spawner> current_spawner() {
  auto& slot = impl::spawner_slot();
  const MutexLock lock(slot.mutex);
  return slot.current;
}

}  // namespace drover::process
