// drover/pool/future.hpp: results of asynchronous work.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "drover/base/checked.hpp"
#include "drover/base/clock.hpp"
#include "drover/base/mutex.hpp"

namespace drover {

namespace detail {

/// The shared state of futures: whether the result is ready, and its callbacks. Thread-safe.
class FutureState {
 public:
  FutureState() = default;
  FutureState(const FutureState&) = delete;
  FutureState& operator=(const FutureState&) = delete;
  virtual ~FutureState();

  [[nodiscard]] bool is_done() const noexcept { return status_.load(std::memory_order_acquire) == kDone; }
  WaitResult wait(Deadline deadline);
  /// Waits. Throws the error, if there is one, or `Errc::timed_out`.
  void await_value(Deadline deadline);
  /// Runs `call` when done, on the thread that completes it; immediately if it is done. Exceptions are logged.
  void on_done(std::function<void()> call);
  /// Completes it with an error, unless it is done. Returns whether it did.
  bool fail(std::exception_ptr error) noexcept;
  /// Tries to cancel; true if the task will never run.
  virtual bool cancel() { return false; }
  /// For error messages: "task 17 'sum'".
  [[nodiscard]] virtual std::string describe() const;
  /// The error it failed with; nullptr if it has a value or is not done.
  [[nodiscard]] std::exception_ptr error() const noexcept { return is_done() ? error_ : nullptr; }

 protected:
  /// Whether the caller is the first to set the result; then it must call `finish`.
  [[nodiscard]] bool begin_finish() noexcept;
  /// Completes it, with its error if it failed.
  void finish(std::exception_ptr error = nullptr) noexcept;

 private:
  static constexpr std::uint32_t kPending = 0;
  static constexpr std::uint32_t kFinishing = 1;
  static constexpr std::uint32_t kDone = 2;

  std::atomic<std::uint32_t> status_{kPending};
  std::atomic<std::uint32_t> sleepers_{0};
  std::exception_ptr error_;
  Mutex mutex_;
  std::vector<std::function<void()>> calls_ DROVER_GUARDED_BY(mutex_);
};

template <class Result>
using Stored = std::conditional_t<std::is_void_v<Result>, std::monostate, Result>;

/// A future state with a value.
template <class Result>
class FutureValue : public FutureState {
 public:
  /// Completes it with a value, unless it is done. If constructing the value throws, completes it with that error.
  template <class... Given>
  bool set(Given&&... given) noexcept {
    if (!begin_finish()) return false;
    std::exception_ptr error;
    try {
      value_.emplace(std::forward<Given>(given)...);
    } catch (...) {
      error = std::current_exception();
    }
    finish(std::move(error));
    return true;
  }
  /// Requires: done, without an error.
  [[nodiscard]] Stored<Result>& value() noexcept { return *value_; }  // NOLINT(bugprone-unchecked-optional-access)

 private:
  std::optional<Stored<Result>> value_;
};

/// Whether this thread completes futures, and so must not wait for one.
[[nodiscard]] bool is_callback_thread() noexcept;
/// Throws `Errc::invalid_argument` on such a thread.
void check_may_wait();

}  // namespace detail

/// The future result of a task, or of a function of other results. A handle: copies refer to the same result.
/// Thread-safe.
template <class Result>
class Future {
 public:
  struct promise_type;  // NOLINT(readability-identifier-naming): the language's name

  /// Not valid, as a moved-from one: its use throws `Errc::invalid_argument`.
  Future() = default;
  /// Pools make futures.
  explicit Future(std::shared_ptr<detail::FutureValue<Result>> state) noexcept : state_(std::move(state)) {}

  /// Whether it refers to a result.
  [[nodiscard]] bool is_valid() const noexcept { return state_.pointer() != nullptr; }
  /// Equal for copies, and unique among the results that exist at a time.
  [[nodiscard]] const void* id() const noexcept { return state_.pointer().get(); }
  /// Whether the result, or an error, is available.
  [[nodiscard]] bool is_done() const { return state_->is_done(); }
  /// Waits until done. Throws `Errc::invalid_argument` in a callback of `then`, which runs on the completing thread.
  WaitResult wait(Deadline deadline = Deadline::never()) const { return state_->wait(deadline); }
  /// Waits and returns a copy of the result, or throws what the task threw. Throws `Errc::timed_out` at the deadline,
  /// while the task goes on, `Errc::cancelled`, and `Errc::peer_lost` if its worker died.
  Result get(Deadline deadline = Deadline::never()) const& {  // NOLINT(modernize-use-nodiscard): often for its errors
    state_->await_value(deadline);
    if constexpr (!std::is_void_v<Result>) return state_->value();
  }
  /// Moves the result out, for a future without other users.
  Result get(Deadline deadline = Deadline::never()) && {
    state_->await_value(deadline);
    if constexpr (!std::is_void_v<Result>) return std::move(state_->value());
  }
  /// The error it failed with; nullptr if it has a result or is not done.
  [[nodiscard]] std::exception_ptr error() const { return state_->error(); }
  /// Cancels the task if it has not begun; true if it will never run. A running task is asked to stop
  /// (`this_worker().is_interrupted()`).
  bool cancel() const { return state_->cancel(); }  // NOLINT(modernize-use-nodiscard): often only tried

  /// The future of `function(result)`. A thread of the pool calls it when the result is available, so it should be
  /// quick. It gets the result as const, because others may use it too. An error passes on to the new future, and
  /// `function` is not called.
  template <class Function>
  auto then(Function function) const;
  /// Calls `call(future)` when done, with a result or an error, on the same thread as `then`. Exceptions are logged.
  template <class Call>
  void on_done(Call call) const {
    state_->on_done([state = state_.pointer(), call = std::move(call)]() mutable { call(Future(state)); });
  }

  /// For co_await, which resumes on a thread of the pool when the result is available.
  [[nodiscard]] bool await_ready() const { return is_done(); }
  /// Same as above.
  void await_suspend(std::coroutine_handle<> waiting) const {
    state_->on_done([waiting] { waiting.resume(); });
  }
  /// Same as above.
  Result await_resume() const { return get(); }  // NOLINT(modernize-use-nodiscard): as above

 private:
  detail::Checked<std::shared_ptr<detail::FutureValue<Result>>> state_;  // shared with the pool until done
};

namespace detail {

template <class Result, class Function>
struct ThenResult {
  using Type = std::invoke_result_t<Function&, const Result&>;
};
template <class Function>
struct ThenResult<void, Function> {
  using Type = std::invoke_result_t<Function&>;
};

// Completes a future with what `call` returns or throws.
template <class Result, class Call>
void set_from(FutureValue<Result>& state, const Call& call) noexcept {
  try {
    if constexpr (std::is_void_v<Result>) {
      call();
      state.set();
    } else {
      state.set(call());
    }
  } catch (...) {
    state.fail(std::current_exception());
  }
}

template <class Result>
struct PromiseBase {
  std::shared_ptr<FutureValue<Result>> state = std::make_shared<FutureValue<Result>>();
  Future<Result> get_return_object() { return Future<Result>(state); }
  std::suspend_never initial_suspend() noexcept { return {}; }
  std::suspend_never final_suspend() noexcept { return {}; }
  void unhandled_exception() noexcept { state->fail(std::current_exception()); }
};

template <class Result>
struct Promise : PromiseBase<Result> {
  template <class Value = Result>
  void return_value(Value&& value) {
    this->state->set(std::forward<Value>(value));
  }
};
template <>
struct Promise<void> : PromiseBase<void> {
  void return_void() { state->set(); }
};

}  // namespace detail

/// A function that returns a Future may be a coroutine and `co_await` others. It runs on the caller's thread until
/// the first result that is not available, and resumes on the thread that completes that result.
template <class Result>
struct Future<Result>::promise_type  // NOLINT(readability-identifier-naming): as above
    : detail::Promise<Result> {};

template <class Result>
template <class Function>
auto Future<Result>::then(Function function) const {
  using Next = std::remove_cvref_t<typename detail::ThenResult<Result, Function>::Type>;
  auto next = std::make_shared<detail::FutureValue<Next>>();
  state_->on_done([state = state_.pointer(), next, function = std::move(function)]() mutable {
    if (auto error = state->error()) {
      next->fail(error);
      return;
    }
    detail::set_from(*next, [&]() -> Next {
      if constexpr (std::is_void_v<Result>) {
        return function();
      } else {
        return function(std::as_const(state->value()));
      }
    });
  });
  return Future<Next>(next);
}

/// All results, in the order of `futures`, or the first error.
template <class Result>
  requires(!std::is_void_v<Result>)
[[nodiscard]] Future<std::vector<Result>> when_all(std::vector<Future<Result>> futures) {
  struct Gathering {
    std::vector<Future<Result>> futures;
    std::atomic<std::size_t> missing;
  };
  auto all = std::make_shared<detail::FutureValue<std::vector<Result>>>();
  auto gathering = std::make_shared<Gathering>(std::move(futures), 0);
  gathering->missing = gathering->futures.size();
  const auto gather = [all, gathering] {
    detail::set_from(*all, [&] {
      std::vector<Result> results;
      results.reserve(gathering->futures.size());
      for (const auto& future : gathering->futures) results.push_back(future.get());
      return results;
    });
    gathering->futures.clear();
  };
  if (gathering->futures.empty()) gather();
  for (std::size_t i = 0, count = gathering->futures.size(); i < count; ++i) {
    const Future<Result> one = gathering->futures[i];
    one.on_done([all, gathering, gather](const Future<Result>& done) {
      if (const auto error = done.error()) all->fail(error);
      if (--gathering->missing == 0 && !all->is_done()) gather();
    });
  }
  return Future<std::vector<Result>>(all);
}

/// Futures in the order in which they complete. Move-only; for one thread.
template <class Result>
class Completions {
 public:
  /// See `as_completed`.
  explicit Completions(const std::vector<Future<Result>>& futures) {
    for (const auto& future : futures) add(future);
  }
  /// Takes over.
  Completions(Completions&&) noexcept = default;
  /// Takes over.
  Completions& operator=(Completions&&) noexcept = default;
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;
  ~Completions() = default;
  /// Adds a future.
  void add(const Future<Result>& future) {
    static_cast<void>(*arrivals_);  // throws if moved from
    ++left_;
    future.on_done([arrivals = arrivals_.pointer()](const Future<Result>& done) {
      const MutexLock lock(arrivals->mutex);
      arrivals->done.push_back(done);
      arrivals->came.notify_one();
    });
  }
  /// Number of futures that `next` has not returned.
  [[nodiscard]] std::size_t left() const noexcept { return left_; }
  /// The next one that is done; nullopt after the last one, or at the deadline. Throws as Future::wait.
  [[nodiscard]] std::optional<Future<Result>> next(Deadline deadline = Deadline::never()) {
    const MutexLock lock(arrivals_->mutex);
    if (left_ == 0) return std::nullopt;
    if (arrivals_->done.empty()) detail::check_may_wait();
    while (arrivals_->done.empty()) {
      if (deadline.is_never()) {
        arrivals_->came.wait(arrivals_->mutex);
      } else if (arrivals_->came.wait_until(arrivals_->mutex, deadline.moment()) == std::cv_status::timeout &&
                 arrivals_->done.empty()) {
        return std::nullopt;
      }
    }
    auto first = std::move(arrivals_->done.front());
    arrivals_->done.pop_front();
    --left_;
    return first;
  }

 private:
  struct Arrivals {
    Mutex mutex;
    ConditionVariable came;
    std::deque<Future<Result>> done DROVER_GUARDED_BY(mutex);
  };
  detail::Checked<std::shared_ptr<Arrivals>> arrivals_ =
      std::make_shared<Arrivals>();  // shared with callbacks of futures that are not done
  std::size_t left_ = 0;
};

/// Yields futures as they complete: `auto done = as_completed(futures); while (auto one = done.next()) ...`.
template <class Result>
[[nodiscard]] Completions<Result> as_completed(const std::vector<Future<Result>>& futures) {
  return Completions<Result>(futures);
}

}  // namespace drover
