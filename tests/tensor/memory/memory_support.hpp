// tests/tensor/memory/memory_support.hpp: tests that run at every place, and numbers in blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "drover/device/backend.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/tensor/memory.hpp"
#include "drover/tensor/send.hpp"
#include "drover/tensor/tensor.hpp"
#include "support/backends.hpp"

namespace drover::test {

/// Writes a number to the start of a block at any place.
inline void write_number(const Block& block, std::uint64_t number) {
  if (block.place().is_device) {
    backend_of(block.place().backend).open(block.place().index).upload(block.device_ptr(), &number, sizeof(number));
  } else {
    std::memcpy(block.bytes().data(), &number, sizeof(number));
  }
}

/// Reads the number back.
inline std::uint64_t read_number(const Block& block) {
  std::uint64_t number = 0;
  if (block.place().is_device) {
    backend_of(block.place().backend).open(block.place().index).download(&number, block.device_ptr(), sizeof(number));
  } else {
    std::memcpy(&number, block.bytes().data(), sizeof(number));
  }
  return number;
}

/// Receives a tensor within a minute.
inline Tensor receive_tensor(const Memory& memory, Queue& queue) {
  Tensor tensor;
  EXPECT_EQ(get(queue, memory, tensor, Deadline::after(std::chrono::seconds(60))), GetResult::got);
  return tensor;
}

/// Runs at the place that the parameter names; skipped if there is no such device.
class PlaceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!place().is_device) return;
    if (const auto reason = reason_to_skip(place().backend); !reason.empty()) GTEST_SKIP() << reason;
  }
  [[nodiscard]] static Place place() { return Place::parse(GetParam()); }
};

/// The place as part of a test name.
inline std::string place_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::erase(name, ':');
  return name;
}

}  // namespace drover::test

/// For a suite derived from PlaceTest: host memory, an emulated device, a GPU.
#define DROVER_INSTANTIATE_AT_PLACES(suite)                                                              \
  INSTANTIATE_TEST_SUITE_P(Host, suite, ::testing::Values("cpu", "host:0"), ::drover::test::place_name); \
  INSTANTIATE_TEST_SUITE_P(Cuda, suite, ::testing::Values("cuda:0"), ::drover::test::place_name)

/// The same where streams are needed: an emulated device, a GPU.
#define DROVER_INSTANTIATE_ON_DEVICES(suite)                                                      \
  INSTANTIATE_TEST_SUITE_P(Host, suite, ::testing::Values("host:0"), ::drover::test::place_name); \
  INSTANTIATE_TEST_SUITE_P(Cuda, suite, ::testing::Values("cuda:0"), ::drover::test::place_name)
