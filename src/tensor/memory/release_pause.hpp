// tensor/memory/release_pause.hpp: when memory of other libraries must not be released.
#pragma once

namespace drover::tensor {

/// While one exists, its thread releases nothing that keeps memory of other libraries alive: a library that asks for
/// memory may hold locks that its deleters need. They are released by a later use of the memory.
class ReleasePause {
 public:
  explicit ReleasePause(bool is_needed = true) noexcept : step_(is_needed ? 1 : 0) { count() += step_; }
  ~ReleasePause() { count() -= step_; }
  ReleasePause(const ReleasePause&) = delete;
  ReleasePause& operator=(const ReleasePause&) = delete;

  /// Whether this thread has one.
  [[nodiscard]] static bool exists() noexcept { return count() > 0; }

 private:
  [[nodiscard]] static int& count() noexcept {
    thread_local int count = 0;
    return count;
  }

  const int step_;
};

}  // namespace drover::tensor
