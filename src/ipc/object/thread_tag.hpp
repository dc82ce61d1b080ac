// ipc/object/thread_tag.hpp: a small number for each thread of this process, which marks what the thread holds.
#pragma once

#include <cstdint>

namespace drover::ipc {

/// From 1; 0 is no thread.
using ThreadTag = std::uint16_t;

namespace impl {
extern constinit thread_local ThreadTag own_thread_tag;
ThreadTag number_this_thread();
}  // namespace impl

/// The number of the calling thread; 0 if it has none yet.
[[nodiscard]] inline ThreadTag known_thread_tag() noexcept { return impl::own_thread_tag; }

/// The number of the calling thread, assigned on first use: unique among the living threads of this process, and
/// reused as late as possible. Throws `Errc::limit_reached` if 65535 threads have numbers.
[[nodiscard]] inline ThreadTag this_thread_tag() {
  const ThreadTag known = known_thread_tag();
  return known != 0 ? known : impl::number_this_thread();
}

}  // namespace drover::ipc
