// process/inspect/foreign_memory.hpp: reads the memory of another process while it runs.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

namespace drover::process {

/// Reads from another process of this user without stopping it; false unless all of `into` could be read. What is
/// read may be changing, and is not trusted.
[[nodiscard]] bool read_foreign_memory(pid_t pid, std::uint64_t address, std::span<std::byte> into) noexcept;

/// The same for one value.
template <class Value>
[[nodiscard]] std::optional<Value> read_foreign(pid_t pid, std::uint64_t address) noexcept {
  static_assert(std::is_trivially_copyable_v<Value>);
  Value value{};
  if (!read_foreign_memory(pid, address, std::as_writable_bytes(std::span(&value, 1)))) return std::nullopt;
  return value;
}

}  // namespace drover::process
