// drover/pool/results.hpp: the results of many tasks, one by one.
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

/// How far it has come.
struct Progress {
  std::uint64_t done = 0;                  ///< results that were taken
  std::uint64_t failed = 0;                ///< errors among them
  std::uint64_t total = 0;                 ///< tasks altogether; 0: not known
  Clock::time_point began = Clock::now();  ///< when
  bool is_over = false;                    ///< whether this is the last word
};

/// What a bar says: "squares  [#####.....]  50 %  512/1024  3.1 k/s  0:02 left". Cut to `columns`.
[[nodiscard]] std::string describe_progress(const std::string& title, const Progress& progress, Clock::time_point now,
                                            std::size_t columns);

/// For MapOptions::progress: shows a bar on standard error if that is a terminal, ten times a second at most; else a
/// line at the end.
[[nodiscard]] std::function<void(const Progress& progress)> progress_bar(std::string title);

/// How many tasks are run for many items.
struct MapOptions {
  std::optional<TaskOptions> task;  ///< of each; nothing: the pool's
  std::size_t in_flight = 0;        ///< most that are under way; 0: enough to keep all workers busy
  bool ordered = true;              ///< results in the order of the items, else as they come
  std::function<void(const Progress& progress)> progress;  ///< told as results are taken; progress_bar() shows a bar
};

namespace detail {

/// Gives the next future; one that is not valid when there is no more.
template <class Result>
using Generator = std::function<Future<Result>()>;

// Runs through a range that it owns or refers to, as std::views::all decided.
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
    struct Step {  // also past an item that cannot be submitted
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

/// The results of many tasks. Not more than a number of them are under way; the rest is begun as results are taken.
/// Destruction cancels what was not taken. Move-only; belongs to one thread, and must not outlive its pool.
template <class Result>
class Results {
 public:
  /// Made by Pool::imap.
  Results(detail::Generator<Result> more, MapOptions how, std::size_t total, std::size_t in_flight)
      : more_(std::move(more)), how_(std::move(how)), in_flight_(in_flight) {
    progress_.total = total;
    fill_later();
    tell();
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

  /// The future that is next; nothing when there is no more. Waits until it is done.
  [[nodiscard]] std::optional<Future<Result>> next_future() {
    if (auto error = std::exchange(late_, nullptr)) std::rethrow_exception(error);
    fill();
    if (under_way() == 0) {
      finish();
      return std::nullopt;
    }
    Future<Result> future = how_.ordered ? take_first() : take_done();
    ++progress_.done;
    if (future.error()) ++progress_.failed;
    tell();
    fill_later();
    return future;
  }
  /// The next result; nothing when there is no more. Throws what its task threw; the next call goes on with the next.
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
  /// Waits for the next and throws its error; false when there is no more.
  bool skip() { return next().has_value(); }

  /// \cond an iterator has the members of iterators
  class Iterator {
   public:
    // The names by which the standard library knows iterators.
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
  /// As above.
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 private:
  [[nodiscard]] std::size_t under_way() const noexcept { return in_order_.size() + by_id_.size(); }
  void fill() {
    while (more_ && under_way() < in_flight_) {
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
  // What goes wrong is thrown by the next call: there is a result to be given first.
  void fill_later() noexcept {
    try {
      fill();
    } catch (...) {
      late_ = std::current_exception();
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
  void tell() {
    if (how_.progress) how_.progress(progress_);
  }
  void finish() {
    if (std::exchange(progress_.is_over, true)) return;
    tell();
  }

  detail::Generator<Result> more_;
  MapOptions how_;
  std::size_t in_flight_;
  std::deque<Future<Result>> in_order_;                    // under way, of ordered results
  std::unordered_map<const void*, Future<Result>> by_id_;  // the same of others
  Completions<Result> completions_{{}};
  Progress progress_;
  std::exception_ptr late_;
};

}  // namespace drover
