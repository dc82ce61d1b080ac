#include "ipc/wake/bridge.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include "base/own_thread.hpp"
#include "base/signals_blocked.hpp"
#include "base/sys.hpp"
#include "base/thread.hpp"
#include "drover/base/error.hpp"
#include "ipc/wake/sleep_on_many.hpp"

namespace drover::ipc {
namespace {

// Never destroyed, because its thread never ends. A forked child lacks that thread, and locks that it held stay held,
// so the child makes a new bridge.
std::atomic<Bridge*> current{nullptr};
thread_local bool is_bridge = false;

}  // namespace

struct Bridge::Watch::Entry {
  BridgeTarget target;
  Fd event;
  std::atomic<bool> is_armed{true};

  // Whether to wake the owner: the target is ready, or the session is over.
  [[nodiscard]] bool is_due() const {
    if (target.is_ready()) return true;
    try {
      target.membership->check();
    } catch (const std::exception&) {  // the owner will get the same error
      return true;
    }
    return false;
  }

  // Disarmed before the write: a rearm in between causes one spurious wake-up. In the other order the entry would
  // stay disarmed.
  void fire() {
    is_armed = false;
    const std::uint64_t one = 1;
    static_cast<void>(sys::retry("write", ::write, event.get(), static_cast<const void*>(&one), sizeof(one)));
    wake_one(*target.bell);  // this process may not take anything, and another waiter may need the wake-up
  }
};

Bridge& Bridge::instance() {
  static const int is_registered = ::pthread_atfork(nullptr, nullptr, [] { current = nullptr; });
  static_cast<void>(is_registered);
  if (Bridge* const known = current) return *known;
  auto made = std::unique_ptr<Bridge>(new Bridge);
  Bridge* known = nullptr;
  return current.compare_exchange_strong(known, made.get()) ? *made.release() : *known;
}

Bridge::Watch::Watch(BridgeTarget target) : bridge_(&instance()), entry_(std::make_shared<Entry>()) {
  entry_->target = std::move(target);
  entry_->event = Fd(sys::call("eventfd", ::eventfd, 0U, int{EFD_CLOEXEC | EFD_NONBLOCK}));
  if (!entry_->event.is_open()) throw_errno("eventfd", "a descriptor for an event loop");
  bridge_->add(entry_);
}

Bridge::Watch::~Watch() {
  if (is_of_this_process()) bridge_->remove(entry_);
}

bool Bridge::Watch::is_of_this_process() const noexcept { return bridge_ == current; }

int Bridge::Watch::fd() const noexcept { return entry_->event.get(); }

void Bridge::Watch::rearm() {
  if (!is_of_this_process()) return;
  std::uint64_t count = 0;
  static_cast<void>(sys::retry("read", ::read, entry_->event.get(), static_cast<void*>(&count), sizeof(count)));
  if (!entry_->is_armed.exchange(true)) bridge_->restart();
}

void Bridge::add(std::shared_ptr<Watch::Entry> entry) {
  {
    const MutexLock lock(mutex_);
    if (!is_running_) start_thread();
    is_running_ = true;
    entries_.push_back(std::move(entry));
  }
  restart();
}

// The thread must not take signals that are meant for the application.
void Bridge::start_thread() {
  const SignalsBlocked blocked;
  drover::start_thread("the thread that serves descriptors for event loops", [this] { run(); }).detach();
}

// Waits for two passes, since the current one may have started with the entry. Passes on a wake-up meant for it.
void Bridge::remove(const std::shared_ptr<Watch::Entry>& entry) {
  mutex_.lock();
  std::erase(entries_, entry);
  const std::uint64_t enough = passes_ + 2;
  while (passes_ < enough) {
    restart();
    has_passed_.wait(mutex_);
  }
  mutex_.unlock();
  static_cast<void>(announce_sleep(*entry->target.bell));  // that wake-up may have cleared the bit
  wake_one(*entry->target.bell);
}

void Bridge::restart() noexcept { wake_always(turn_); }

bool Bridge::is_this_thread() noexcept { return is_bridge; }

void Bridge::run() {
  const OwnThread own;
  is_bridge = true;
  for (;;) pass();
}

void Bridge::pass() {
  const std::uint32_t turn = announce_sleep(turn_);
  {
    std::vector<std::shared_ptr<Watch::Entry>> entries;
    mutex_.lock();
    ++passes_;
    has_passed_.notify_all();
    entries = entries_;
    mutex_.unlock();
    std::vector<std::uint32_t> announced;
    std::erase_if(entries, [](const auto& entry) { return !entry->is_armed; });
    for (const auto& entry : entries) announced.push_back(announce_sleep(*entry->target.bell));
    bool has_fired = false;
    for (const auto& entry : entries) {
      if (!entry->is_due()) continue;
      entry->fire();
      has_fired = true;
    }
    if (!has_fired) sleep(entries, announced, turn);
  }
}

void Bridge::sleep(const std::vector<std::shared_ptr<Watch::Entry>>& entries, std::vector<std::uint32_t>& announced,
                   std::uint32_t turn) {
  std::vector<Bell*> bells = {&turn_};
  for (const auto& entry : entries) bells.push_back(entry->target.bell);
  announced.insert(announced.begin(), turn);
  sleep_on_many(bells, announced, kLongestSleep);
}

}  // namespace drover::ipc
