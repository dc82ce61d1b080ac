#include "drover/pool/future.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drover/base/error.hpp"
#include "ipc/wake/bell.hpp"
#include "ipc/wake/futex.hpp"
#include "pool/run/callback_thread.hpp"

namespace drover::detail {
namespace {

thread_local bool is_callback_thread_here = false;
constexpr std::chrono::seconds kLongestSleep{1};

using Calls = std::vector<std::function<void()>>;

// Callbacks of futures that callbacks complete run one after the other, not nested: a long chain would need a deep
// stack.
thread_local Calls* queued_calls = nullptr;

void run_all(Calls calls) noexcept {
  if (queued_calls != nullptr) {
    std::ranges::move(calls, std::back_inserter(*queued_calls));
    return;
  }
  while (!calls.empty()) {
    Calls next;
    queued_calls = &next;
    for (auto& call : calls) {
      run_call(call);
      call = nullptr;  // destroys what it captured before the next one runs
    }
    queued_calls = nullptr;
    calls = std::move(next);
  }
}

}  // namespace

CallbackThread::CallbackThread() noexcept { is_callback_thread_here = true; }
CallbackThread::~CallbackThread() { is_callback_thread_here = false; }
bool is_callback_thread() noexcept { return is_callback_thread_here; }

void check_may_wait() {
  require(!is_callback_thread_here, "the thread that completes futures cannot wait for one: it would wait forever",
          "use then, on_done or co_await in callbacks; wait in another thread");
}

FutureState::~FutureState() = default;

std::string FutureState::describe() const { return "a result"; }

WaitResult FutureState::wait(Deadline deadline) {
  if (is_done()) return WaitResult::done;
  check_may_wait();
  const auto began = Clock::now();
  static thread_local ipc::Patience patience = ipc::has_cores_to_spare() ? ipc::Patience() : ipc::Patience::none();
  if (!deadline.has_passed() && ipc::spin_for(patience, began, deadline, [this] { return is_done(); }))
    return WaitResult::done;
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  WaitResult result = WaitResult::done;
  for (auto status = status_.load(std::memory_order_seq_cst); status != kDone;
       status = status_.load(std::memory_order_seq_cst)) {
    if (deadline.has_passed()) {
      result = WaitResult::timed_out;
      break;
    }
    ipc::futex_sleep(status_, status, std::min<std::chrono::nanoseconds>(deadline.remaining(), kLongestSleep));
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  result == WaitResult::done ? patience.slept(Clock::now() - began) : patience.failed();
  return result;
}

void FutureState::await_value(Deadline deadline) {
  if (wait(deadline) == WaitResult::timed_out) {
    throw Error(Errc::timed_out, fmt::format("{} was not ready at the deadline; the task goes on", describe()),
                "wait longer, or check with `drover ps` what the worker does");
  }
  if (error_) std::rethrow_exception(error_);
}

void FutureState::on_done(std::function<void()> call) {
  {
    const MutexLock lock(mutex_);
    if (!is_done()) {
      calls_.push_back(std::move(call));
      return;
    }
  }
  run_call(call);
}

bool FutureState::begin_finish() noexcept {
  std::uint32_t expected = kPending;
  return status_.compare_exchange_strong(expected, kFinishing, std::memory_order_acquire, std::memory_order_relaxed);
}

void FutureState::finish(std::exception_ptr error) noexcept {
  error_ = std::move(error);
  Calls calls;
  {
    const MutexLock lock(mutex_);
    status_.store(kDone, std::memory_order_seq_cst);
    calls.swap(calls_);
  }
  if (sleepers_.load(std::memory_order_seq_cst) > 0) ipc::futex_wake(status_, std::numeric_limits<int>::max());
  run_all(std::move(calls));
}

bool FutureState::fail(std::exception_ptr error) noexcept {
  if (!begin_finish()) return false;
  finish(std::move(error));
  return true;
}

}  // namespace drover::detail
