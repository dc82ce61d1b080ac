// fuzz/fuzz_input.hpp: reads values from the bytes of a fuzzer's input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace drover::fuzz {

/// Reading always succeeds: beyond the end are zeros.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  [[nodiscard]] bool is_empty() const noexcept { return rest_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return rest_.size(); }

  /// A number of any size.
  template <class Number>
  Number take() {
    Number number{};
    const std::size_t bytes = std::min(sizeof(number), rest_.size());
    std::memcpy(&number, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
    return number;
  }
  /// A number from 0 to `most`.
  std::uint64_t take_up_to(std::uint64_t most) { return most == 0 ? 0 : take<std::uint32_t>() % (most + 1); }
  /// The remaining bytes.
  [[nodiscard]] std::span<const std::byte> rest() const { return std::as_bytes(rest_); }

 private:
  std::span<const std::uint8_t> rest_;
};

/// Aborts the run with a report; libFuzzer saves the input.
[[noreturn]] inline void fail() { __builtin_trap(); }
/// Fails unless `holds`.
inline void check(bool holds) {
  if (!holds) fail();
}

}  // namespace drover::fuzz
