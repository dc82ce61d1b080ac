#include "tensor/memory/deferred_releases.hpp"

#include <chrono>
#include <cstdint>
#include <exception>
#include <utility>

#include "drover/base/log.hpp"
#include "tensor/tensor_access.hpp"

namespace drover::tensor {
namespace {

// Handles up to this are default streams, whose work is ordered with that of other streams.
constexpr std::uintptr_t kLastDefaultStream = 2;
// Releases that follow each other within this time belong together.
constexpr std::chrono::microseconds kBurst{5};
// How long a release waits for work that seems to be done.
constexpr std::chrono::microseconds kReleasePatience{20};

bool seems_capturing(const Stream& stream) noexcept {
  try {
    return stream.is_capturing();
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());
    return false;
  }
}

bool seems_idle(const Stream& stream) noexcept {
  try {
    return stream.is_idle();
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());
    return false;
  }
}

bool is_left_for_later(const Tensor& tensor) noexcept {
  try {
    const auto& storage = TensorAccess::storage(tensor);
    storage->end_use_later(storage->work_at(storage->place()));
    return true;
  } catch (const std::exception& error) {
    log(LogLevel::debug, error.what());
    return false;
  }
}

void release_now(const Tensor& tensor, Stream& stream) noexcept {
  const bool is_idle = seems_idle(stream);
  if (is_idle && stream.native() > kLastDefaultStream) return;
  try {
    tensor.end_use(stream);
    if (is_idle) static_cast<void>(TensorAccess::storage(tensor)->wait(Deadline::after(kReleasePatience)));
  } catch (const std::exception& error) {  // the deleter that calls this must not throw
    log(LogLevel::warn, error.what());
  }
}

}  // namespace

DeferredReleases& DeferredReleases::instance() {
  static auto* const all = new DeferredReleases;  // never destroyed: tensors may be released during process exit
  return *all;
}

void DeferredReleases::release(const Tensor& tensor, std::shared_ptr<Stream> stream) noexcept {
  if (stream->native() == kDefaultStream) return release_in_burst(tensor, *stream);
  if (!seems_capturing(*stream)) return release_now(tensor, *stream);
  const MutexLock lock(mutex_);
  uses_.push_back({tensor, std::move(stream)});
  has_any_ = true;
}

void DeferredReleases::release_in_burst(const Tensor& tensor, Stream& stream) noexcept {
  const bool is_first = Clock::now() - last_.load(std::memory_order_relaxed) > kBurst;  // relaxed: a hint
  const bool can_ask = is_first && !seems_capturing(stream);
  if (can_ask || !is_left_for_later(tensor)) release_now(tensor, stream);
  last_.store(Clock::now(), std::memory_order_relaxed);
}

// Asks streams without the mutex, so that a child forked meanwhile does not inherit it locked.
void DeferredReleases::retry() noexcept {
  if (!has_any_) return;
  for (Use& use : take_all()) release(use.tensor, std::move(use.stream));
}

std::vector<DeferredReleases::Use> DeferredReleases::take_all() {
  const MutexLock lock(mutex_);
  has_any_ = false;
  return std::exchange(uses_, {});
}

}  // namespace drover::tensor
