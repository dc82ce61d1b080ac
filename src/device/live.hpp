// device/live.hpp: counts the resources of a backend that a process holds.
#pragma once

#include <atomic>
#include <cstddef>

#include "drover/device/backend.hpp"

namespace drover::device {

/// The counts behind Backend::live().
struct LiveCounters {
  std::atomic<std::size_t> memory{0};
  std::atomic<std::size_t> slabs{0};
  std::atomic<std::size_t> registrations{0};
  std::atomic<std::size_t> streams{0};
  std::atomic<std::size_t> events{0};
  std::atomic<std::size_t> modules{0};

  [[nodiscard]] LiveResources read() const noexcept {
    return {.memory = memory,
            .slabs = slabs,
            .registrations = registrations,
            .streams = streams,
            .events = events,
            .modules = modules};
  }
};

/// A member of each resource, which counts it while it lives.
class LiveToken {
 public:
  explicit LiveToken(std::atomic<std::size_t>& count) noexcept : count_(count) { ++count_; }
  ~LiveToken() { --count_; }
  LiveToken(const LiveToken&) = delete;
  LiveToken& operator=(const LiveToken&) = delete;

 private:
  std::atomic<std::size_t>& count_;
};

}  // namespace drover::device
