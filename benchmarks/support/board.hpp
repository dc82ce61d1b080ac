// benchmarks/support/board.hpp: memory that the processes of a benchmark share, apart from what is measured.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace drover::bench {

/// The limits of processes in one benchmark, and of samples that one of them reports at a time.
inline constexpr std::size_t kMostWorkers = 8;
inline constexpr std::size_t kMostSamples = std::size_t{1} << 16U;
/// Two cache lines, since they are fetched in pairs.
inline constexpr std::size_t kFarApart = 128;
/// `Signals::total` while it is unknown.
inline constexpr std::uint64_t kUnknown = ~std::uint64_t{0};

/// The progress of one worker, on cache lines of its own. Written by that worker only; the conductor polls it.
struct alignas(kFarApart) Progress {
  /// Arrivals that are kept. A reader must finish before the writer is this far ahead.
  static constexpr std::size_t kMoments = 64;

  std::atomic<std::uint64_t> count;  ///< messages or rounds so far
  std::array<std::atomic<std::int64_t>, kMoments>
      moments;  ///< the arrival time of number i, at i % kMoments, if recorded

  /// Counts one more.
  void step() noexcept { count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  /// Counts one more, which arrived at `moment`.
  void step(std::int64_t moment) noexcept {
    moments[count.load(std::memory_order_relaxed) % kMoments].store(moment, std::memory_order_relaxed);
    step();
  }
};

/// Signals of the conductor to all workers.
struct alignas(kFarApart) Signals {
  std::atomic<std::uint32_t> is_stopped;  ///< ends workers that run until stopped
  std::atomic<std::uint64_t> total;       ///< messages sent in all, or rounds, once known
};

/// The samples of one worker, the same one throughout a step.
struct alignas(kFarApart) SampleList {
  std::atomic<std::uint64_t> count;
  std::array<double, kMostSamples> nanoseconds;

  /// Stores a sample, or drops it if there is no room.
  void add(double sample) noexcept {
    const auto place = count.load(std::memory_order_relaxed);
    if (place == kMostSamples) return;
    nanoseconds[place] = sample;
    count.store(place + 1, std::memory_order_release);
  }
};

/// One per benchmark, in a memory file that the conductor and all workers map. Zero at first.
struct Board {
  Signals signals;
  std::array<Progress, kMostWorkers> progress;  ///< by worker
  SampleList samples;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// The current time on a clock that all processes share.
[[nodiscard]] inline std::int64_t now_ns() noexcept {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

/// Keeps the compiler from removing the computation of `value`.
template <class Value>
inline void keep(const Value& value) noexcept {
  asm volatile("" : : "g"(value) : "memory");
}

}  // namespace drover::bench
