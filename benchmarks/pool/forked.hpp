// benchmarks/pool/forked.hpp: workers as they are written by hand: fork, and a pipe in either direction.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <span>

#include "drover/base/fd.hpp"

namespace drover::bench {

/// Both ends of a pipe.
struct PipeEnds {
  Fd read;
  Fd write;
};
[[nodiscard]] PipeEnds make_pipe();

/// Writes or reads all of it. `read_whole` is false at the end of the pipe; both throw for what fails.
void write_whole(const Fd& to, std::span<const std::byte> bytes);
[[nodiscard]] bool read_whole(const Fd& from, std::span<std::byte> bytes);

/// A child made by fork, which ends when its requests end. Move-only.
class ForkedWorker {
 public:
  /// Forks; `serve` runs in the child, which has only these two ends open, and must not allocate memory that others
  /// could be allocating while the fork happens.
  ForkedWorker(const Fd& answers, const std::function<void(const Fd& requests, const Fd& answers)>& serve);
  ForkedWorker(ForkedWorker&& other) noexcept;
  ForkedWorker& operator=(ForkedWorker&&) = delete;
  ForkedWorker(const ForkedWorker&) = delete;
  ForkedWorker& operator=(const ForkedWorker&) = delete;
  /// Closes its requests and waits for it.
  ~ForkedWorker();

  [[nodiscard]] const Fd& requests() const noexcept { return requests_; }

 private:
  ForkedWorker(PipeEnds pipe, const Fd& answers, const std::function<void(const Fd&, const Fd&)>& serve);

  Fd requests_;
  pid_t pid_ = -1;
};

}  // namespace drover::bench
