// The physical limit of passing data between two cores: each writes a cache line that the other reads.
#include "queue/parts.hpp"
#include "queue/shared_lines.hpp"

namespace drover::bench {
namespace {

constexpr std::uint64_t kOver = kEnd;

std::string refusal(const Cell& cell) {
  return cell.metric == Metric::polled_hop && cell.bytes == 8 ? "" : "one word on a cache line, polled";
}

Endpoint make(const Cell&, const Session&) { return make_shared_memory<Lines>(); }

void wait_for(const std::atomic<std::uint64_t>& word, std::uint64_t value) {
  while (word.load(std::memory_order_acquire) != value) {
  }
}

void ping_line(const Order& order, Lines& lines, Post& post) {
  const std::int64_t begin = now_ns();
  std::int64_t before = 0;
  for (std::uint64_t trip = 1;; ++trip) {
    lines.there.store(trip, std::memory_order_release);
    const std::int64_t sent = now_ns();
    if (trip > order.warm_samples + 1) post.board().samples.add(static_cast<double>(sent - before) / 2);
    before = sent;
    wait_for(lines.back, trip);
    const bool is_late = sent - begin > order.budget_ns && trip > order.warm_samples + 3;
    if (is_late || trip > order.warm_samples + order.most_samples) break;
  }
  lines.there.store(kOver);
}

void pong_line(Lines& lines) {
  for (std::uint64_t trip = 1;; ++trip) {
    std::uint64_t seen = trip - 1;
    while (seen == trip - 1) seen = lines.there.load(std::memory_order_acquire);
    if (seen == kOver) return;
    lines.back.store(seen, std::memory_order_release);
  }
}

void play(const Order& order, std::array<Fd, 2>& fds, Post& post) {
  const Mapping memory = Mapping::shared(fds[0], sizeof(Lines));
  auto& lines = in_memory<Lines>(memory);
  post.send("ready");
  post.expect("go");
  pin_thread(order.cpu);
  if (order.part == Part::ping) {
    ping_line(order, lines, post);
  } else {
    pong_line(lines);
  }
  post.send("done");
  post.expect("close");
}

}  // namespace

Contender cache_line() { return {.name = "cache line", .refusal = refusal, .make = make, .play = play}; }

}  // namespace drover::bench
