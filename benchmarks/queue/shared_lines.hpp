// benchmarks/queue/shared_lines.hpp: a few words in shared memory, for contenders that need nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "drover/base/mapping.hpp"
#include "queue/workload.hpp"

namespace drover::bench {

/// Two words on separate cache lines, one per direction.
struct Lines {
  alignas(kFarApart) std::atomic<std::uint64_t> there;
  alignas(kFarApart) std::atomic<std::uint64_t> back;
};

/// An Endpoint of a new memory file that holds a value of type T.
template <class T>
[[nodiscard]] Endpoint make_shared_memory() {
  Fd file = make_memory_file("drover-bench-words", sizeof(T));
  new (Mapping::shared(file, sizeof(T)).data()) T{};
  Fd second = file.duplicate();
  return {.producer = std::move(file), .consumer = std::move(second), .name = {}, .keep = {}};
}

/// The value in a memory file made by make_shared_memory.
template <class T>
[[nodiscard]] T& in_memory(const Mapping& memory) noexcept {
  return *std::launder(reinterpret_cast<T*>(memory.data()));
}

}  // namespace drover::bench
