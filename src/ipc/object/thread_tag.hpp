// ipc/object/thread_tag.hpp: a small number for each thread of this process, to be written into what a thread takes.
#pragma once

#include <cstdint>

namespace drover {

/// From 1; 0 is no thread.
using ThreadTag = std::uint16_t;

namespace detail {
extern constinit thread_local ThreadTag own_thread_tag;
ThreadTag number_this_thread();
}  // namespace detail

/// The number of the calling thread; 0 if it has none yet.
[[nodiscard]] inline ThreadTag known_thread_tag() noexcept { return detail::own_thread_tag; }

/// The same, after giving it one if need be: no other living thread of this process has it, and one that is given
/// back is given out again late. Throws `Errc::limit_reached` when 65535 threads have numbers.
[[nodiscard]] inline ThreadTag this_thread_tag() {
  const ThreadTag known = known_thread_tag();
  return known != 0 ? known : detail::number_this_thread();
}

}  // namespace drover
