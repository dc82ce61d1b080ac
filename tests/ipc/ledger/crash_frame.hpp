// tests/ipc/ledger/crash_frame.hpp: stops an operation before each of its writes and keeps what shared memory holds.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <vector>

#include "drover/ipc/membership.hpp"

namespace drover::test {

inline constexpr Owner kDead = 5;
inline constexpr Owner kAlive = 6;
inline constexpr Owner kStopped = 7;

/// Copies a `Memory` before each write to it: what is left if the process is killed there.
template <class Memory>
struct PicturedSteps {
  static void before_write() {
    if (memory != nullptr) pictures.push_back(*memory);
  }
  /// Pictures the steps of `work`, which runs under a lock that the dead never frees, and the state after the last.
  template <class Work>
  static void record(Memory& of, Work work) {
    pictures.clear();
    memory = &of;
    work();
    memory = nullptr;
    pictures.push_back(of);
  }
  static inline Memory* memory = nullptr;
  static inline std::vector<Memory> pictures;
};

/// One operation of the participant that dies in it.
template <class Core>
struct Operation {
  const char* name;
  std::vector<std::uint32_t> freed_before;  ///< chunks of blocks that are freed before it
  std::function<void(const Core&)> run;

  friend void PrintTo(const Operation& operation, std::ostream* out) {  // NOLINT(readability-identifier-naming)
    *out << operation.name;
  }
};

}  // namespace drover::test
