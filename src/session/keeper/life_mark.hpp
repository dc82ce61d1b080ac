// session/keeper/life_mark.hpp: a word in shared memory that shows the death of the keeper.
#pragma once

#include <linux/futex.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace drover::session {

/// Puts a word on the calling thread's list of robust futexes while it lives: when the thread ends in any way, the
/// kernel sets FUTEX_OWNER_DIED in the word, before it closes any connection of the process. So whoever maps the word
/// sees the death without a system call. Replaces the list of the C library, which serves robust mutexes only.
/// Where the kernel has no such lists, the word never changes. Requires: destroyed by the same thread, or not at all;
/// the word is mapped until then.
class LifeMark {
 public:
  /// Stamps the word.
  explicit LifeMark(std::atomic<std::uint32_t>& word) noexcept;
  ~LifeMark();
  LifeMark(const LifeMark&) = delete;
  LifeMark& operator=(const LifeMark&) = delete;

 private:
  robust_list node_{};
  robust_list_head head_{};
  robust_list_head* before_ = nullptr;
  std::size_t size_before_ = 0;
};

}  // namespace drover::session
