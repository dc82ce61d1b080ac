// drover/pool/results.hpp: the results of many tasks, one by one, and their progress.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <optional>
#include <ranges>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>

#include "drover/base/clock.hpp"
#include "drover/pool/future.hpp"
#include "drover/pool/task.hpp"

namespace drover {

/// The progress of a map.
struct Progress {
  std::uint64_t done = 0;                  ///< results taken
  std::uint64_t failed = 0;                ///< errors among them
  std::uint64_t total = 0;                 ///< number of tasks; 0: unknown
  Clock::time_point began = Clock::now();  ///< start time
  bool is_over = false;                    ///< whether this is the last report
};

/// One line: "squares  [#####.....]  50 %  512/1024  3.1 k/s  0:02 left", truncated to `columns`.
[[nodiscard]] std::string describe_progress(const std::string& title, const Progress& progress, Clock::time_point now,
                                            std::size_t columns);

/// For MapOptions::progress: shows a bar on standard error, updated up to ten times a second. Prints only a final
/// line if that is no terminal.
[[nodiscard]] std::function<void(const Progress& progress)> progress_bar(std::string title);

/// How a map runs its tasks.
struct MapOptions {
  std::optional<TaskOptions> task;  ///< for each task; nullopt: the pool's
  std::size_t in_flight = 0;        ///< most tasks in flight; 0: enough to keep all workers busy
  bool ordered = true;              ///< results in the order of the items, not of completion
  std::function<void(const Progress& progress)> progress;  ///< called as results are taken; see progress_bar()
};

namespace detail {

/// Returns the next future, or an invalid one at the end.
template <class Result>
using Generator = std::function<Future<Result>()>;

// Makes a future of each item of a range, which it owns or refers to as std::views::all decides.
template <class View, class Make>
auto generate(View view, Make make) {
  using Made = std::invoke_result_t<Make&, std::ranges::range_reference_t<View>>;
  struct Walk {
    View view;
    Make make;
    std::optional<std::ranges::iterator_t<View>> at;
  };
  auto walk = std::make_shared<Walk>(std::move(view), std::move(make), std::nullopt);
  return [walk]() -> Made {
    if (!walk->at) walk->at.emplace(std::ranges::begin(walk->view));
    if (*walk->at == std::ranges::end(walk->view)) return {};
    struct Step {  // skips an item whose submission throws
      Walk& walk;
      ~Step() { ++*walk.at; }  // NOLINT(bugprone-unchecked-optional-access): set above
    } const step{*walk};
    return walk->make(**walk->at);  // NOLINT(bugprone-unchecked-optional-access): as above
  };
}

template <class Items>
std::size_t size_of(const Items& items) {
  if constexpr (std::ranges::sized_range<const Items>) {
    return std::ranges::size(items);
  } else {
    return 0;
  }
}

}  // namespace detail

/// The results of many tasks, of which a limited number is in flight; more are submitted as results are taken.
/// Destruction cancels the rest. Move-only; for one thread. Must not outlive its pool.
template <class Result>
class Results {
 public:
  /// See Pool::imap.
  Results(detail::Generator<Result> more, MapOptions how, std::size_t total, std::size_t in_flight)
      : more_(std::move(more)), how_(std::move(how)), in_flight_(in_flight) {
    progress_.total = total;
    fill_deferred();
    report();
  }
  /// Takes over.
  Results(Results&&) noexcept = default;
  Results& operator=(Results&&) = delete;
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  ~Results() {
    for (const auto& future : in_order_) future.cancel();
    for (const auto& [id, future] : by_id_) future.cancel();
  }

  /// Waits for the next future and returns it; nullopt at the end.
  [[nodiscard]] std::optional<Future<Result>> next_future() {
    if (auto error = std::exchange(deferred_, nullptr)) std::rethrow_exception(error);
    fill();
    if (in_flight() == 0) {
      finish();
      return std::nullopt;
    }
    Future<Result> future = how_.ordered ? take_first() : take_done();
    ++progress_.done;
    if (future.error()) ++progress_.failed;
    report();
    fill_deferred();
    return future;
  }
  /// The next result; nullopt at the end. Throws what its task threw; the next call continues with the next result.
  [[nodiscard]] std::optional<detail::Stored<Result>> next() {
    auto future = next_future();
    if (!future) return std::nullopt;
    if constexpr (std::is_void_v<Result>) {
      future->get();
      return std::monostate{};
    } else {
      return std::move(*future).get();
    }
  }
  /// Waits for the next result and throws its error; false at the end.
  bool skip() { return next().has_value(); }

  /// \cond an iterator has the members of iterators
  class Iterator {
   public:
    // Names that the standard library requires.
    using value_type = detail::Stored<Result>;  // NOLINT(readability-identifier-naming)
    using difference_type = std::ptrdiff_t;     // NOLINT(readability-identifier-naming)
    Iterator() = default;
    explicit Iterator(Results& results) : results_(&results) { ++*this; }
    value_type& operator*() const { return *current_; }
    Iterator& operator++() {
      current_ = results_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t /*end*/) const noexcept { return !current_.has_value(); }

   private:
    Results* results_ = nullptr;
    mutable std::optional<value_type> current_;
  };
  /// \endcond
  /// For `for (auto&& result : pool.imap(...))`.
  [[nodiscard]] Iterator begin() { return Iterator(*this); }
  /// Same as above.
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 private:
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_order_.size() + by_id_.size(); }
  void fill() {
    while (more_ && in_flight() < in_flight_) {
      Future<Result> future = more_();
      if (!future.is_valid()) {
        more_ = nullptr;
      } else if (how_.ordered) {
        in_order_.push_back(std::move(future));
      } else {
        completions_.add(future);
        by_id_.emplace(future.id(), std::move(future));
      }
    }
  }
  // The next call throws the error, because there is a result to return first.
  void fill_deferred() noexcept {
    try {
      fill();
    } catch (...) {
      deferred_ = std::current_exception();
    }
  }
  Future<Result> take_first() {
    Future<Result> first = std::move(in_order_.front());
    in_order_.pop_front();
    static_cast<void>(first.wait());
    return first;
  }
  Future<Result> take_done() {
    // NOLINTNEXTLINE(bugprone-unchecked-optional-access): without a deadline it waits until there is one
    Future<Result> done = completions_.next().value();
    by_id_.erase(done.id());
    return done;
  }
  void report() {
    if (how_.progress) how_.progress(progress_);
  }
  void finish() {
    if (std::exchange(progress_.is_over, true)) return;
    report();
  }

  detail::Generator<Result> more_;
  MapOptions how_;
  std::size_t in_flight_;
  std::deque<Future<Result>> in_order_;                    // in flight, if ordered
  std::unordered_map<const void*, Future<Result>> by_id_;  // in flight, if not
  Completions<Result> completions_{{}};
  Progress progress_;
  std::exception_ptr deferred_;
};

}  // namespace drover
