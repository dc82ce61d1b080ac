// The physical limit of moving a large message: one copy from shared memory to shared memory, in one process.
#include <algorithm>

#include "drover/base/mapping.hpp"
#include "queue/parts.hpp"

namespace drover::bench {
namespace {

std::string refusal(const Cell& cell) { return cell.metric == Metric::whole ? "" : "a copy is not a queue"; }

Endpoint make(const Cell& cell, const Session&) {
  Fd file = make_memory_file("drover-bench-copy", 2 * cell.bytes);
  return {.producer = std::move(file), .consumer = {}, .name = {}, .keep = {}};
}

void play(const Order& order, std::array<Fd, 2>& fds, Post& post) {
  const Mapping memory = Mapping::shared(fds[0], 2 * order.cell.bytes);
  const auto from = memory.bytes().first(order.cell.bytes);
  const auto to = memory.bytes().last(order.cell.bytes);
  std::ranges::fill(memory.bytes(), std::byte{1});
  post.send("ready");
  post.expect("go");
  pin_thread(order.cpu);
  const std::int64_t begin = now_ns();
  for (std::uint32_t i = 0; i < order.most_samples; ++i) {
    const std::int64_t before = now_ns();
    std::memcpy(to.data(), from.data(), from.size());
    keep(to.data());
    const std::int64_t after = now_ns();
    post.board().samples.add(static_cast<double>(after - before));
    if (after - begin > order.budget_ns && i >= 2) break;
  }
  post.send("done");
  post.expect("close");
}

}  // namespace

Contender plain_memcpy() {
  return {.name = "memcpy", .refusal = refusal, .make = make, .play = play, .is_alone = true};
}

}  // namespace drover::bench
