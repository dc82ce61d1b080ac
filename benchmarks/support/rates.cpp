#include "support/rates.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace drover::bench {
namespace {

constexpr std::int64_t kPatience = 30'000'000'000;

// The count, and its time: the arrival of the last one if recorded, otherwise the time of the poll.
struct Snapshot {
  std::uint64_t count = 0;
  std::int64_t moment = 0;
};

Snapshot look(const Board& board, const Watched& watched) {
  Snapshot seen;
  for (std::size_t worker = watched.first; worker < watched.first + watched.count; ++worker) {
    const Progress& progress = board.progress[worker];
    const auto count = progress.count.load(std::memory_order_acquire);
    seen.count += count;
    if (!watched.is_noted || count == 0) continue;
    const auto& last = progress.moments[(count - 1) % Progress::kMoments];
    seen.moment = std::max(seen.moment, last.load(std::memory_order_relaxed));
  }
  if (!watched.is_noted) seen.moment = now_ns();
  return seen;
}

Snapshot look_later(const Board& board, const Watched& watched, std::int64_t pause, std::uint64_t count) {
  const std::int64_t begin = now_ns();
  for (;;) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause));
    const Snapshot seen = look(board, watched);
    if (seen.count >= count) return seen;
    if (now_ns() - begin > kPatience) throw std::runtime_error("workers make no progress");
  }
}

}  // namespace

std::uint64_t count_all(const Board& board, const Watched& watched) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t worker = watched.first; worker < watched.first + watched.count; ++worker) {
    sum += board.progress[worker].count.load();
  }
  return sum;
}

std::vector<double> watch_rates(const Board& board, const Watched& watched, const RatePace& pace) {
  std::vector<double> rates;
  Snapshot before = look_later(board, watched, pace.warm_ns, pace.warm_least);
  for (std::uint32_t window = 0; window < pace.windows; ++window) {
    const Snapshot after = look_later(board, watched, pace.window_ns, before.count + pace.window_least);
    const auto seconds = static_cast<double>(after.moment - before.moment) / 1e9;
    rates.push_back(static_cast<double>(after.count - before.count) / seconds);
    before = after;
  }
  return rates;
}

}  // namespace drover::bench
