// tests/conformance/backend_suite.hpp: what every backend must do. A new backend adds one file that instantiates it.
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "drover/base/mapping.hpp"
#include "drover/device/backend.hpp"
#include "support/backends.hpp"

namespace drover::test {

/// Names the instances: ".../host", ".../cuda".
[[nodiscard]] std::string backend_name(const testing::TestParamInfo<BackendKind>& info);

/// The backend under test and its first device. The harness checks after each test that nothing of it is left.
class BackendSuite : public testing::TestWithParam<BackendKind> {
 protected:
  void SetUp() override;
  void TearDown() override;

  [[nodiscard]] static Backend& backend() { return backend_of(GetParam()); }
  [[nodiscard]] static Device& device() { return backend().open(0); }

  /// Page-aligned host memory that the device knows, for words and fast copies.
  struct RegisteredMemory {
    Mapping memory;
    std::unique_ptr<HostRegistration> registration;
    [[nodiscard]] TimelineWord& word(std::size_t index = 0) const {
      return reinterpret_cast<TimelineWord*>(memory.data())[index];
    }
  };
  [[nodiscard]] static RegisteredMemory registered(std::size_t bytes);

  /// Holds streams back. Opens by itself at the end of its scope, so that a test that fails does not hang.
  class Gate {
   public:
    ~Gate() { timeline_store(memory_.word(), kTimelinePoison); }
    /// What is submitted behind this does not happen before `open`.
    void hold(Stream& stream) const { stream.wait(memory_.word(), 1); }
    void open() const { timeline_store(memory_.word(), 1); }
    /// Further words in the same registered memory, from 1 on.
    [[nodiscard]] TimelineWord& word(std::size_t index) const { return memory_.word(index); }

   private:
    RegisteredMemory memory_ = registered(4096);
  };

  /// 0, 1, 2, ... and a way to read device memory back.
  [[nodiscard]] static std::vector<std::uint32_t> numbers(std::size_t count, std::uint32_t first = 0);
  [[nodiscard]] static std::vector<std::uint32_t> read(const DeviceMemory& memory, std::size_t count);
};

}  // namespace drover::test
