#include "tensor/memory/host_registrations.hpp"

#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "drover/base/clock.hpp"
#include "drover/base/error.hpp"
#include "drover/base/mutex.hpp"

namespace drover::tensor {
namespace {

constexpr std::chrono::seconds kRegistrationPatience{1};

using Key = std::pair<BackendKind, const std::byte*>;

struct Registrations {
  Mutex mutex;
  std::map<Key, std::weak_ptr<HostRegistration>> all DROVER_GUARDED_BY(mutex);
};

// Never destroyed: devices live until the process exits.
Registrations& registrations() {
  static auto* const one = new Registrations;
  return *one;
}

}  // namespace

// A registration ends without the mutex, since that waits for the device. Until then the pages are busy: retry.
std::shared_ptr<HostRegistration> register_once(Device& device, std::span<std::byte> memory) {
  const Deadline patience = Deadline::after(kRegistrationPatience);
  for (;;) {
    try {
      const MutexLock lock(registrations().mutex);
      auto& known = registrations().all[{device.info().backend, memory.data()}];
      if (auto shared = known.lock()) return shared;
      std::shared_ptr<HostRegistration> made = device.register_host(memory);
      known = made;
      return made;
    } catch (const Error& error) {
      if (error.code() != Errc::busy || patience.has_passed()) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace drover::tensor
