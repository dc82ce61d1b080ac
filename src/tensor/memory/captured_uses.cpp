#include "tensor/memory/captured_uses.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "drover/base/log.hpp"
#include "drover/base/mutex.hpp"
#include "tensor/tensor_access.hpp"

namespace drover {
namespace {

// Others are streams of their own; work of those up to here comes after that of other streams, too.
constexpr std::uintptr_t kLastCommon = 2;
// How long who lets go waits for what seems to be done.
constexpr std::chrono::microseconds kCapturePatience{20};

struct CapturedUse {
  Tensor tensor;
  std::unique_ptr<Stream> stream;
};

struct CapturedUses {
  Mutex mutex;
  std::vector<CapturedUse> uses DROVER_GUARDED_BY(mutex);
  std::atomic<bool> has_any{false};
};

// Never destroyed: tensors may be let go while the process ends.
CapturedUses& captured_uses() {
  static auto* const all = new CapturedUses;
  return *all;
}

std::vector<CapturedUse> take_all(CapturedUses& all) {
  const MutexLock lock(all.mutex);
  all.has_any = false;
  return std::exchange(all.uses, {});
}

bool seems_idle(const Stream& stream) noexcept {
  try {
    return stream.is_idle();
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());
    return false;
  }
}

}  // namespace

bool seems_capturing(const Stream& stream) noexcept {
  try {
    return stream.is_capturing();
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());
    return false;
  }
}

void end_lending(const Tensor& tensor, Stream& stream) noexcept {
  const bool is_idle = seems_idle(stream);
  if (is_idle && stream.native() > kLastCommon) return;
  try {
    tensor.end_use(stream);
    if (is_idle) static_cast<void>(TensorAccess::storage(tensor)->wait(Deadline::after(kCapturePatience)));
  } catch (const std::exception& error) {  // whoever lets go cannot be told
    log(LogLevel::warn, error.what());
  }
}

void end_lending_after_capture(const Tensor& tensor, std::unique_ptr<Stream> stream) noexcept {
  CapturedUses& all = captured_uses();
  const MutexLock lock(all.mutex);
  all.uses.push_back({tensor, std::move(stream)});
  all.has_any = true;
}

// Streams are asked without the mutex, which a child that is forked meanwhile would find held.
void look_after_captured_uses() noexcept {
  CapturedUses& all = captured_uses();
  if (!all.has_any) return;
  for (CapturedUse& use : take_all(all)) {
    if (seems_capturing(*use.stream)) {
      end_lending_after_capture(use.tensor, std::move(use.stream));
    } else {
      end_lending(use.tensor, *use.stream);
    }
  }
}

}  // namespace drover
