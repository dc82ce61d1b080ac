// drover/base/trace.hpp: the hook that receives what each part of drover did and how long it took.
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
  Clock::time_point end;    ///< when it ended; equal to `begin` for an instant
  std::uint64_t value = 0;  ///< bytes or items, depending on the name; 0 if neither
};

/// Receives each record, on the thread that did the work. Must be quick, and must neither throw nor call drover.
using TraceSink = void (*)(const TraceRecord& record) noexcept;

namespace detail {
inline std::atomic<TraceSink> trace_sink{nullptr};
}  // namespace detail

/// Installs the sink of the process; nullptr disables tracing. Returns the previous sink.
inline TraceSink set_trace_sink(TraceSink sink) noexcept { return detail::trace_sink.exchange(sink); }

/// Whether a sink is installed; one relaxed load.
[[nodiscard]] inline bool is_tracing() noexcept {
  return detail::trace_sink.load(std::memory_order_relaxed) != nullptr;
}

/// Reports the time from its construction to its destruction. Without a sink it costs a load and a branch at
/// construction, a branch at destruction, and reads no clock. With DROVER_NO_TRACE it compiles to nothing.
class TraceSpan {
 public:
#ifdef DROVER_NO_TRACE
  explicit TraceSpan(const char* /*name*/, std::uint64_t /*value*/ = 0) noexcept {}
#else
  /// Requires: `name` has static lifetime.
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
