// tests/conformance/backend_suite.hpp: the suite that every backend must pass. A new backend adds a file that
// instantiates it.
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

/// The backend under test and its first device. After each test the harness checks that no device resource is left.
class BackendSuite : public testing::TestWithParam<BackendKind> {
 protected:
  void SetUp() override;
  void TearDown() override;

  [[nodiscard]] static Backend& backend() { return backend_of(GetParam()); }
  [[nodiscard]] static Device& device() { return backend().open(0); }

  /// Page-aligned registered host memory, for words and fast copies.
  struct RegisteredMemory {
    Mapping memory;
    std::unique_ptr<HostRegistration> registration;
    [[nodiscard]] TimelineWord& word(std::size_t index = 0) const {
      return reinterpret_cast<TimelineWord*>(memory.data())[index];
    }
  };
  [[nodiscard]] static RegisteredMemory registered(std::size_t bytes);

  /// Holds back streams. Opens at the end of its scope, so that a failing test does not hang.
  class Gate {
   public:
    ~Gate() { timeline_store(memory_.word(), kTimelinePoison); }
    /// Work submitted after this does not run before `open`.
    void hold(Stream& stream) const { stream.wait(memory_.word(), 1); }
    void open() const { timeline_store(memory_.word(), 1); }
    /// A word in the same registered memory; word 0 is the gate itself.
    [[nodiscard]] TimelineWord& word(std::size_t index) const { return memory_.word(index); }

   private:
    RegisteredMemory memory_ = registered(4096);
  };

  /// The numbers `first`, `first + 1`, ..., and the numbers in device memory.
  [[nodiscard]] static std::vector<std::uint32_t> numbers(std::size_t count, std::uint32_t first = 0);
  [[nodiscard]] static std::vector<std::uint32_t> read(const DeviceMemory& memory, std::size_t count);
};

}  // namespace drover::test
