// benchmarks/support/board.hpp: the memory that the processes of a benchmark share, beside what is measured.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace drover::bench {

/// Most processes of one benchmark, and most samples one of them reports at a time.
inline constexpr std::size_t kMostWorkers = 8;
inline constexpr std::size_t kMostSamples = std::size_t{1} << 16U;
/// Two lines: neighbours are fetched in pairs.
inline constexpr std::size_t kFarApart = 128;
/// `Signals::total` while it is not known.
inline constexpr std::uint64_t kUnknown = ~std::uint64_t{0};

/// How far one worker is. Written by that worker alone, on lines of its own; the conductor looks now and then.
struct alignas(kFarApart) Progress {
  /// Arrivals that are remembered. A reader must be done before the writer is this far ahead.
  static constexpr std::size_t kMoments = 64;

  std::atomic<std::uint64_t> count;                         ///< messages or rounds so far
  std::array<std::atomic<std::int64_t>, kMoments> moments;  ///< when number i came, at i % kMoments, if noted

  /// One more.
  void step() noexcept { count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  /// One more, that came at `moment`.
  void step(std::int64_t moment) noexcept {
    moments[count.load(std::memory_order_relaxed) % kMoments].store(moment, std::memory_order_relaxed);
    step();
  }
};

/// What the conductor tells all workers at once.
struct alignas(kFarApart) Signals {
  std::atomic<std::uint32_t> is_stopped;  ///< workers that run until told look here
  std::atomic<std::uint64_t> total;       ///< what was sent in all, or how many rounds there are, once that is known
};

/// What one worker, the same throughout a step, has measured.
struct alignas(kFarApart) SampleList {
  std::atomic<std::uint64_t> count;
  std::array<double, kMostSamples> nanoseconds;

  /// Keeps a sample; what does not fit is dropped.
  void add(double sample) noexcept {
    const auto place = count.load(std::memory_order_relaxed);
    if (place == kMostSamples) return;
    nanoseconds[place] = sample;
    count.store(place + 1, std::memory_order_release);
  }
};

/// One per benchmark, in a memory file that the conductor and all workers map. Begins as zeros.
struct Board {
  Signals signals;
  std::array<Progress, kMostWorkers> progress;  ///< by worker
  SampleList samples;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Now, on the clock all processes share.
[[nodiscard]] inline std::int64_t now_ns() noexcept {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

/// Lets the compiler believe that `value` is used.
template <class Value>
inline void keep(const Value& value) noexcept {
  asm volatile("" : : "g"(value) : "memory");
}

}  // namespace drover::bench
