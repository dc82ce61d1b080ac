#include "session/keeper/life_mark.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace drover::session {

LifeMark::LifeMark(std::atomic<std::uint32_t>& word) noexcept {
  node_.next = &head_.list;
  head_.list.next = &node_;
  head_.futex_offset = static_cast<long>(reinterpret_cast<std::uintptr_t>(&word)) -
                       static_cast<long>(reinterpret_cast<std::uintptr_t>(&node_));
  word.store(static_cast<std::uint32_t>(::syscall(SYS_gettid)));
  const bool is_known = ::syscall(SYS_get_robust_list, 0, &before_, &size_before_) == 0;
  if (!is_known || ::syscall(SYS_set_robust_list, &head_, sizeof(head_)) != 0) before_ = nullptr;
}

LifeMark::~LifeMark() {
  if (before_ != nullptr) ::syscall(SYS_set_robust_list, before_, size_before_);
}

}  // namespace drover::session
