// benchmarks/pool/forked.hpp: hand-written workers: fork, and a pipe in each direction.
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

/// Write or read all bytes; throw on errors. `read_whole` returns false at the end of the pipe.
void write_whole(const Fd& to, std::span<const std::byte> bytes);
[[nodiscard]] bool read_whole(const Fd& from, std::span<std::byte> bytes);

/// A child made by fork, which ends when its requests end. Move-only.
class ForkedWorker {
 public:
  /// Forks; `serve` runs in the child, which has only these two ends open. It must not allocate memory if another
  /// thread may have been allocating during the fork.
  ForkedWorker(const Fd& answers, const std::function<void(const Fd& requests, const Fd& answers)>& serve);
  ForkedWorker(ForkedWorker&& other) noexcept;
  ForkedWorker& operator=(ForkedWorker&&) = delete;
  ForkedWorker(const ForkedWorker&) = delete;
  ForkedWorker& operator=(const ForkedWorker&) = delete;
  /// Closes the pipe of requests and waits for the child.
  ~ForkedWorker();

  [[nodiscard]] const Fd& requests() const noexcept { return requests_; }

 private:
  ForkedWorker(PipeEnds pipe, const Fd& answers, const std::function<void(const Fd&, const Fd&)>& serve);

  Fd requests_;
  pid_t pid_ = -1;
};

}  // namespace drover::bench
