// benchmarks/queue/descriptors.hpp: common code of pipes and sockets.
#pragma once

#include <cstddef>
#include <span>

#include "drover/base/fd.hpp"

namespace drover::bench {

/// Owns the descriptor that a call returned; throws with the name of the call if it failed.
[[nodiscard]] Fd own_fd(int number, const char* call);
/// Makes reading and writing non-blocking.
void set_nonblocking(const Fd& fd);

/// Writes all bytes.
void write_all(const Fd& fd, std::span<const std::byte> bytes);
/// The result of reading a whole message from a byte stream.
enum class ReadResult { filled, nothing, end };
/// Fills `into`, in several calls if necessary. `nothing` if a non-blocking descriptor has not a single byte; after
/// the first byte, waits for the rest.
[[nodiscard]] ReadResult read_all(const Fd& fd, std::span<std::byte> into);

}  // namespace drover::bench
