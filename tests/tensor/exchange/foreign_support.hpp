// tests/tensor/exchange/foreign_support.hpp: memory of another library, imitated.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "drover/device/backend.hpp"
#include "drover/tensor/dlpack.hpp"

namespace drover::test {

/// Numbers 0, 1, ... of int32 on a device, unknown to drover: "allocated" as by cudaMalloc, or "mapped" as expandable
/// segments are. Counts the `keep_alive` pointers of its arrays.
class ForeignNumbers {
 public:
  ForeignNumbers(const Place& place, const std::string& kind, std::int64_t count)
      : place_(place), device_(backend_of(place.backend).open(place.index)), count_(count) {
    const auto bytes = static_cast<std::size_t>(count) * sizeof(std::int32_t);
    if (kind == "mapped") {
      memory_ = device_.map(*backend_of(place.backend).create_slab(place.index, bytes));
    } else {
      memory_ = device_.allocate(bytes);
    }
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    device_.upload(memory_->ptr(), numbers.data(), bytes);
  }

  /// All of them, or a layout of them from a byte on. Every array has its own `keep_alive`.
  [[nodiscard]] DlpackArray array() { return array(TensorLayout::contiguous(DType::int32, {count_})); }
  [[nodiscard]] DlpackArray array(const TensorLayout& layout, std::uint64_t byte = 0) {
    ++*kept_;
    std::shared_ptr<void> keep_alive(nullptr, [memory = memory_, kept = kept_](void*) { --*kept; });
    return {.layout = layout, .place = place_, .base = memory_->ptr() + byte, .keep_alive = std::move(keep_alive)};
  }
  /// The `keep_alive` pointers not yet released; negative if one was released twice.
  [[nodiscard]] int kept() const { return *kept_; }
  /// Sets one of them.
  void set(std::uint64_t index, std::int32_t number) {
    device_.upload(memory_->ptr() + index * sizeof(number), &number, sizeof(number));
  }
  [[nodiscard]] DevicePtr ptr() const { return memory_->ptr(); }
  [[nodiscard]] double sum() const { return static_cast<double>(count_ * (count_ - 1) / 2); }

 private:
  Place place_;
  Device& device_;
  std::int64_t count_;
  std::shared_ptr<DeviceMemory> memory_;  // shared: with its arrays, likewise the next
  std::shared_ptr<std::atomic<int>> kept_ = std::make_shared<std::atomic<int>>(0);
};

/// Shares the memory of an array instead of copying it.
inline constexpr ImportOptions kByReference{.stream = {}, .by_reference = true};

/// The way in which memory of a kind is imported by reference.
inline ImportWay way_of(const std::string& kind) {
  return kind == "mapped" ? ImportWay::retained : ImportWay::ipc_handle;
}

}  // namespace drover::test
