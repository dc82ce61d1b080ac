// drover/base/trace.hpp: the hook through which every part tells what it does and how long it takes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "drover/base/clock.hpp"

namespace drover {

/// One finished piece of work. `name` has static lifetime, e.g. "device.copy".
struct TraceRecord {
  const char* name = "";    ///< what was done
  Clock::time_point begin;  ///< when it began
  Clock::time_point end;    ///< when it ended; equal to begin for an instant
  std::uint64_t value = 0;  ///< bytes, items or whatever the name says; 0 if nothing
};

/// Receives each record, on the thread that did the work. Must be quick, must not throw or call drover.
using TraceSink = void (*)(const TraceRecord& record) noexcept;

namespace detail {
inline std::atomic<TraceSink> trace_sink{nullptr};
}  // namespace detail

/// Installs a sink for the whole process; nullptr switches tracing off. Returns the one before.
inline TraceSink set_trace_sink(TraceSink sink) noexcept { return detail::trace_sink.exchange(sink); }

/// Whether anyone listens; one relaxed load.
[[nodiscard]] inline bool is_tracing() noexcept {
  return detail::trace_sink.load(std::memory_order_relaxed) != nullptr;
}

/// Reports the time from its construction to its destruction. With no sink it costs one load and one
/// branch at either end and reads no clock. Building with DROVER_NO_TRACE leaves nothing at all.
class TraceSpan {
 public:
#ifdef DROVER_NO_TRACE
  explicit TraceSpan(const char* /*name*/, std::uint64_t /*value*/ = 0) noexcept {}
#else
  /// Begins. `name` must have static lifetime.
  explicit TraceSpan(const char* name, std::uint64_t value = 0) noexcept
      : name_(is_tracing() ? name : nullptr), value_(value) {
    if (name_ != nullptr) begin_ = Clock::now();
  }
  ~TraceSpan() {
    if (name_ == nullptr) return;
    if (const TraceSink sink = detail::trace_sink.load(); sink != nullptr) {
      sink({.name = name_, .begin = begin_, .end = Clock::now(), .value = value_});
    }
  }
#endif
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
#ifndef DROVER_NO_TRACE
  const char* name_;
  std::uint64_t value_;
  Clock::time_point begin_;
#endif
};

}  // namespace drover
