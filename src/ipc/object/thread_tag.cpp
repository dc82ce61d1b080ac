#include "ipc/object/thread_tag.hpp"

#include <array>
#include <atomic>

#include "drover/base/error.hpp"

namespace drover::ipc {

constinit thread_local ThreadTag impl::own_thread_tag = 0;

namespace {

constexpr std::uint32_t kTags = 1U << 16U;
constexpr std::uint32_t kBits = 64;

// One bit per tag. Atomics instead of a mutex, which a forked child could find held by a thread that it lacks.
std::array<std::atomic<std::uint64_t>, kTags / kBits>& taken_tags() {
  static std::array<std::atomic<std::uint64_t>, kTags / kBits> tags{};
  return tags;
}

// Goes round all numbers before it reuses one, so that a lock which an ended thread left held is not mistaken for the
// next thread's.
ThreadTag take_tag() {
  static std::atomic<std::uint32_t> next{1};
  for (std::uint32_t tries = 0; tries < kTags; ++tries) {
    const std::uint32_t tag = next.fetch_add(1, std::memory_order_relaxed) % kTags;
    const std::uint64_t bit = std::uint64_t{1} << (tag % kBits);
    if (tag != 0 && (taken_tags()[tag / kBits].fetch_or(bit) & bit) == 0) return static_cast<ThreadTag>(tag);
  }
  throw Error(Errc::limit_reached, "65535 threads of this process use shared locks at the same time",
              "use fewer threads");
}

// The thread keeps its number to the end, because destructors of thread-local and static objects that run after this
// one release their locks. The number is not reused before all others were given out.
struct TagReturner {
  TagReturner() = default;
  TagReturner(const TagReturner&) = delete;
  TagReturner& operator=(const TagReturner&) = delete;
  ~TagReturner() {
    taken_tags()[impl::own_thread_tag / kBits].fetch_and(~(std::uint64_t{1} << (impl::own_thread_tag % kBits)));
  }
};

void return_tag_at_exit() { static thread_local const TagReturner returner; }

}  // namespace

ThreadTag impl::number_this_thread() {
  own_thread_tag = take_tag();
  return_tag_at_exit();
  return own_thread_tag;
}

}  // namespace drover::ipc
