#include "tensor/host_registrations.hpp"

#include <map>
#include <utility>

#include "drover/base/mutex.hpp"

namespace drover {
namespace {

using Key = std::pair<BackendKind, const std::byte*>;

struct Registrations {
  Mutex mutex;
  std::map<Key, std::weak_ptr<HostRegistration>> all DROVER_GUARDED_BY(mutex);
};

// Never destroyed: devices live until the process ends.
Registrations& registrations() {
  static auto* const one = new Registrations;
  return *one;
}

}  // namespace

std::shared_ptr<HostRegistration> register_once(Device& device, std::span<std::byte> memory) {
  Registrations& registered = registrations();
  const MutexLock lock(registered.mutex);
  auto& known = registered.all[{device.info().backend, memory.data()}];
  if (auto shared = known.lock()) return shared;
  // Ends under the mutex too, so that nobody registers again what is not ended yet.
  auto end = [](HostRegistration* ended) {
    const MutexLock last(registrations().mutex);
    delete ended;
  };
  std::shared_ptr<HostRegistration> made(device.register_host(memory).release(), end);
  known = made;
  return made;
}

}  // namespace drover
