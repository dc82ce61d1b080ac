#include "device/host/stream.hpp"

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "device/fork_guard.hpp"
#include "device/host/backend.hpp"
#include "device/host/event.hpp"
#include "device/host/memory.hpp"
#include "device/host/module.hpp"
#include "device/own.hpp"
#include "drover/base/error.hpp"
#include "drover/base/trace.hpp"

namespace drover::device::host {
namespace {

// The bytes of the arguments, copied at submission as on a GPU, each aligned for any type.
class ArgumentCopy {
 public:
  explicit ArgumentCopy(std::span<const KernelArgument> arguments) {
    for (const auto& argument : arguments) {
      if (argument.data == nullptr || argument.bytes == 0) {
        throw Error(Errc::invalid_argument, "a kernel argument has no value");
      }
      auto& slot = values_.emplace_back((argument.bytes + sizeof(Unit) - 1) / sizeof(Unit));
      std::memcpy(slot.data(), argument.data, argument.bytes);
    }
  }
  [[nodiscard]] std::vector<void*> pointers() {
    std::vector<void*> all;
    all.reserve(values_.size());
    for (auto& value : values_) all.push_back(value.data());
    return all;
  }

 private:
  using Unit = std::max_align_t;
  std::vector<std::vector<Unit>> values_;
};

void run_kernel(HostFunction function, const LaunchShape& shape, ArgumentCopy& arguments) {
  const std::vector<void*> pointers = arguments.pointers();
  HostLaunch launch{};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    launch.grid[axis] = shape.grid.at(axis);
    launch.block[axis] = shape.block.at(axis);
  }
  launch.shared_bytes = shape.shared_bytes;
  launch.argument_count = static_cast<std::uint32_t>(pointers.size());
  launch.arguments = pointers.data();
  function(&launch);
}

void check_shape(const LaunchShape& shape) {
  constexpr std::uint64_t kMostThreads = 1024;  // as on every GPU so far
  std::uint64_t threads = 1;
  for (const auto size : shape.block) threads *= size;
  const bool has_blocks = shape.grid[0] > 0 && shape.grid[1] > 0 && shape.grid[2] > 0;
  if (!has_blocks || threads == 0 || threads > kMostThreads) {
    throw Error(Errc::invalid_argument,
                fmt::format("cannot launch {}x{}x{} blocks of {}x{}x{} threads", shape.grid[0], shape.grid[1],
                            shape.grid[2], shape.block[0], shape.block[1], shape.block[2]),
                "use at least one block, and 1 to 1024 threads per block");
  }
}

}  // namespace

HostStream::HostStream(HostBackend& backend, std::shared_ptr<WorkQueue> queue, Ownership ownership) noexcept
    : backend_(backend), live_(backend.counters().streams), queue_(std::move(queue)), ownership_(ownership) {}

HostStream::~HostStream() {
  if (ownership_ == Ownership::owned && !fork_guard::is_forked_child()) queue_->close();
}

void HostStream::move(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  queue_->submit([to, from, bytes] {
    const TraceSpan span("stream.copy", bytes);
    std::memmove(to, from, bytes);
  });
}

void HostStream::finish_unless_registered(const void* host, std::size_t bytes) const {
  if (bytes == 0 || backend_.is_registered(host, bytes)) return;
  static_cast<void>(queue_->wait(Deadline::never()));
}

void HostStream::upload(DevicePtr to, const void* from, std::size_t bytes) {
  fork_guard::check();
  check_host(from, bytes);
  backend_.check_range(to, bytes, "an upload");
  move(pointer(to), from, bytes);
  finish_unless_registered(from, bytes);
}

void HostStream::download(void* to, DevicePtr from, std::size_t bytes) {
  fork_guard::check();
  check_host(to, bytes);
  backend_.check_range(from, bytes, "a download");
  move(to, pointer(from), bytes);
  finish_unless_registered(to, bytes);
}

void HostStream::copy(DevicePtr to, DevicePtr from, std::size_t bytes) {
  fork_guard::check();
  backend_.check_range(to, bytes, "the target of a copy");
  backend_.check_range(from, bytes, "the source of a copy");
  move(pointer(to), pointer(from), bytes);
}

void HostStream::fill(DevicePtr to, std::uint8_t value, std::size_t bytes) {
  fork_guard::check();
  backend_.check_range(to, bytes, "a fill");
  if (bytes == 0) return;
  queue_->submit([to, value, bytes] {
    const TraceSpan span("stream.fill", bytes);
    std::memset(pointer(to), value, bytes);
  });
}

void HostStream::launch(const Kernel& kernel, const LaunchShape& shape, std::span<const KernelArgument> arguments) {
  fork_guard::check();
  check_shape(shape);
  const HostFunction function = own<const HostKernel>(kernel).function();
  queue_->submit([function, shape, copied = ArgumentCopy(arguments)]() mutable {
    const TraceSpan span("stream.kernel");
    run_kernel(function, shape, copied);
  });
}

void HostStream::record(StreamEvent& event) {
  fork_guard::check();
  const auto made = std::make_shared<EventRecord>();
  auto& mine = own<HostEvent>(event);
  queue_->submit([made] { made->complete(); });
  mine.set_latest(made);
}

void HostStream::wait(const StreamEvent& event) {
  fork_guard::check();
  const auto record = own<const HostEvent>(event).latest();
  if (record == nullptr) return;
  queue_->submit([record] { static_cast<void>(record->wait(Deadline::never())); });
}

void HostStream::signal(TimelineWord& word, std::uint64_t value) {
  fork_guard::check();
  backend_.check_word(word);
  queue_->submit([&word, value] { timeline_store(word, value); });
}

void HostStream::wait(TimelineWord& word, std::uint64_t value) {
  fork_guard::check();
  backend_.check_word(word);
  queue_->submit([&word, value] { static_cast<void>(timeline_wait(word, value, Deadline::never())); });
}

bool HostStream::is_idle() const {
  fork_guard::check();
  return queue_->is_idle();
}

WaitResult HostStream::synchronize(Deadline deadline) const {
  fork_guard::check();
  return queue_->wait(deadline);
}

}  // namespace drover::device::host
