// Locks, semaphores, conditions, events, barriers and values in corrupted memory.
#include <memory>

#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/ipc/barrier.hpp"
#include "drover/ipc/condition.hpp"
#include "drover/ipc/event.hpp"
#include "drover/ipc/lock.hpp"
#include "drover/ipc/semaphore.hpp"
#include "drover/ipc/value.hpp"
#include "fuzz/fuzz_input.hpp"
#include "fuzz/spoiled_objects.hpp"

namespace {

using namespace drover;

// Never waits: the fuzzer's session would end a wait for a process that does not exist, but only after some time.
Deadline now() { return Deadline::after({}); }

class SyncRun {
 public:
  explicit SyncRun(fuzz::Input& input) : input_(input) {}

  void run() {
    for (int steps = 0; !input_.is_empty() && steps < 100; ++steps) {
      try {
        step();
      } catch (const Error& error) {
        continue;  // a valid outcome
      }
    }
  }

 private:
  void step() {
    switch (input_.take<std::uint8_t>() % 9) {
      case 0: use_lock(); return;
      case 1: use_rlock(); return;
      case 2: use_semaphore(); return;
      case 3: use_condition(); return;
      case 4: use_event(); return;
      case 5: use_barrier(); return;
      case 6: use_value(); return;
      case 7: recover(); return;
      default: fuzz::spoil(layout_of(any_handle()), input_); return;
    }
  }

  void use_lock() {
    switch (input_.take<std::uint8_t>() % 4) {
      case 0: static_cast<void>(lock_.try_acquire()); return;
      case 1: lock_.release(); return;
      case 2: lock_.force_release(); return;
      default: static_cast<void>(lock_.is_own() || lock_.is_held()); return;
    }
  }
  void use_rlock() {
    switch (input_.take<std::uint8_t>() % 3) {
      case 0: static_cast<void>(rlock_.try_acquire()); return;
      case 1: rlock_.release(); return;
      default: static_cast<void>(rlock_.depth()); return;
    }
  }
  void use_semaphore() {
    switch (input_.take<std::uint8_t>() % 3) {
      case 0: static_cast<void>(semaphore_.try_acquire()); return;
      case 1: semaphore_.release(1 + input_.take_up_to(3)); return;
      default: static_cast<void>(semaphore_.value()); return;
    }
  }
  void use_condition() {
    switch (input_.take<std::uint8_t>() % 4) {
      case 0: static_cast<void>(condition_.try_acquire()); return;
      case 1: static_cast<void>(condition_.notify(1)); return;
      case 2: static_cast<void>(condition_.waiting()); return;
      default: condition_.release(); return;
    }
  }
  void use_event() {
    switch (input_.take<std::uint8_t>() % 3) {
      case 0: event_.set(); return;
      case 1: event_.clear(); return;
      default: static_cast<void>(event_.wait(now())); return;
    }
  }
  void use_barrier() {
    switch (input_.take<std::uint8_t>() % 4) {
      case 0: static_cast<void>(barrier_.wait(now())); return;
      case 1: barrier_.reset(); return;
      case 2: barrier_.abort(); return;
      default: static_cast<void>(barrier_.waiting() + static_cast<std::uint32_t>(barrier_.last_lost())); return;
    }
  }
  void use_value() {
    switch (input_.take<std::uint8_t>() % 3) {
      case 0: value_.store(input_.take<std::uint64_t>()); return;
      case 1: static_cast<void>(value_.update([](std::uint64_t number) { return number + 1; })); return;
      default: static_cast<void>(value_.load()); return;
    }
  }

  const ObjectHandle& any_handle() {
    switch (input_.take<std::uint8_t>() % 7) {
      case 0: return lock_.handle();
      case 1: return rlock_.handle();
      case 2: return semaphore_.handle();
      case 3: return condition_.handle();
      case 4: return event_.handle();
      case 5: return barrier_.handle();
      default: return value_.handle();
    }
  }

  // As the keeper does, for the fuzzer itself or for others.
  void recover() {
    const OpenObject object = objects_->open(any_handle());
    ipc::info_of(object.spec.kind)
        .recover(ipc::layout_of(object.data), object.spec, static_cast<Owner>(1 + input_.take_up_to(2)));
  }

  std::span<std::byte> layout_of(const ObjectHandle& handle) {
    return objects_->memory(handle).subspan(sizeof(ipc::ObjectHeader));
  }

  fuzz::Input& input_;
  std::shared_ptr<fuzz::SpoiledObjects> objects_ = std::make_shared<fuzz::SpoiledObjects>(Owner{1});
  Lock lock_{objects_};
  RLock rlock_{objects_};
  Semaphore semaphore_{objects_, 3};
  Condition condition_{objects_};
  Event event_{objects_};
  Barrier barrier_{objects_, 2};
  Value<std::uint64_t> value_{objects_};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  set_log_sink([](LogLevel, std::string_view) noexcept {});
  fuzz::Input input(data, size);
  SyncRun(input).run();
  return 0;
}
