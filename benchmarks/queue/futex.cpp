// The kernel's cost to wake a process: FUTEX_WAIT and FUTEX_WAKE on a word, and nothing around them.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "queue/parts.hpp"
#include "queue/shared_lines.hpp"

namespace drover::bench {
namespace {

struct Mailbox {
  std::atomic<std::uint32_t> count;
  std::uint64_t word;
};

std::string refusal(const Cell& cell) {
  const bool is_wait = cell.metric == Metric::wake || cell.metric == Metric::waited_hop;
  return is_wait && cell.bytes == 8 ? "" : "one word, always waited for asleep";
}

Endpoint make(const Cell&, const Session&) { return make_shared_memory<Mailbox>(); }

class FutexLane {
 public:
  static constexpr bool kIsRead = false;

  explicit FutexLane(const LaneEnd& end)
      : memory_(Mapping::shared(end.fd, sizeof(Mailbox))), box_(in_memory<Mailbox>(memory_)) {}

  [[nodiscard]] std::span<std::byte> draft() noexcept { return word_bytes(); }
  void send() {
    box_.count.fetch_add(1);
    ::syscall(SYS_futex, &box_.count, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
  [[nodiscard]] std::span<const std::byte> receive() {
    while (box_.count.load() == seen_) ::syscall(SYS_futex, &box_.count, FUTEX_WAIT, seen_, nullptr, nullptr, 0);
    ++seen_;
    return word_bytes();
  }
  [[nodiscard]] static std::span<const std::byte> try_receive() { return {}; }
  static void finish(bool) {}

 private:
  [[nodiscard]] std::span<std::byte> word_bytes() noexcept {
    return std::as_writable_bytes(std::span(&box_.word, 1));
  }

  Mapping memory_;
  Mailbox& box_;
  std::uint32_t seen_ = 0;
};

}  // namespace

Contender bare_futex() { return {.name = "futex", .refusal = refusal, .make = make, .play = play_lanes<FutexLane>}; }

}  // namespace drover::bench
