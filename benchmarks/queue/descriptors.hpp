// benchmarks/queue/descriptors.hpp: what pipes and sockets have in common.
#pragma once

#include <cstddef>
#include <span>

#include "drover/base/fd.hpp"

namespace drover::bench {

/// A descriptor that was made as a number; throws with the name of the call if there is none.
[[nodiscard]] Fd own_fd(int number, const char* call);
/// Makes reading and writing return at once when there is nothing or no room.
void set_nonblocking(const Fd& fd);

/// Writes all bytes.
void write_all(const Fd& fd, std::span<const std::byte> bytes);
/// How reading whole messages from a stream of bytes ended.
enum class ReadResult { filled, nothing, end };
/// Fills `into`, in as many calls as it takes. `nothing` only from a descriptor that does not block, and only when
/// not even the first byte is there; once there is one, waits for the rest.
[[nodiscard]] ReadResult read_all(const Fd& fd, std::span<std::byte> into);

}  // namespace drover::bench
