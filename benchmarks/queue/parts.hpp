// benchmarks/queue/parts.hpp: the parts of workers, the same for every contender. Templates, so that no
// contender pays for a virtual call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "queue/sleeper.hpp"
#include "queue/workload.hpp"
#include "support/cpus.hpp"

namespace drover::bench {

/// First word of the last message.
inline constexpr std::uint64_t kEnd = ~std::uint64_t{0};
/// From this size on, the arrival of each message is recorded: the cost is negligible then.
inline constexpr std::uint64_t kNoted = 64 * std::uint64_t{1024};

/// One end of a lane is a class L with:
///   L(LaneEnd end)                          opens it
///   std::span<std::byte> draft()            memory to write the next message in, of the cell's size
///   void send()                             sends the draft; waits for room
///   std::span<const std::byte> receive()    waits for a message, valid until the next call; empty at the end
///   std::span<const std::byte> try_receive()  the same without waiting; empty if there is none
///   void finish(bool is_first)              called by every producer after the last message: ends `receive`
///   void flush()                            sends messages that `send` has held back
///   static constexpr bool kIsRead           whether consumers read whole messages or only their first words

/// The first word of a message.
[[nodiscard]] inline std::uint64_t first_word(std::span<const std::byte> message) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, message.data(), sizeof(word));
  return word;
}

/// Writes the first word of a message.
inline void set_first_word(std::span<std::byte> message, std::uint64_t word) noexcept {
  std::memcpy(message.data(), &word, sizeof(word));
}

/// Reads every word of a message.
inline void read_whole(std::span<const std::byte> message) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at + sizeof(sum) <= message.size(); at += sizeof(sum)) {
    sum += first_word(message.subspan(at));
  }
  keep(sum);
}

/// Memory of this process for messages of `bytes`, with every page present; one per process and number.
[[nodiscard]] std::span<std::byte> arena(std::size_t number, std::size_t bytes);

template <class Lane>
void send_word(Lane& lane, std::uint64_t word) {
  set_first_word(lane.draft(), word);
  lane.send();
}

/// Throws unless a message has the size of the cell.
inline void check_size(std::span<const std::byte> message, const Order& order) {
  if (message.size() != order.cell.bytes) {
    throw std::runtime_error("received a message of " + std::to_string(message.size()) + " bytes");
  }
}

/// Opens the lanes of a part, reports that, and waits for the start.
template <class Lane>
class Stage {
 public:
  Stage(const Order& order, std::array<Fd, 2>& fds, Post& post) : order_(order), fds_(fds), post_(post) {}

  [[nodiscard]] Lane open(std::size_t way, bool is_producer) {
    return Lane(LaneEnd{.order = order_,
                        .post = post_,
                        .fd = std::move(fds_[way]),
                        .name = order_.names[way].data(),
                        .is_producer = is_producer});
  }
  // Bound to a processor only now, so that threads that a library has started may run anywhere.
  void wait_for_start() {
    post_.send("ready");
    post_.expect("go");
    pin_thread(order_.cpu);
  }

 private:
  const Order& order_;
  std::array<Fd, 2>& fds_;
  Post& post_;
};

template <class Lane>
void produce(const Order& order, Stage<Lane>& stage, Post& post) {
  Lane out = stage.open(0, true);
  stage.wait_for_start();
  std::uint64_t number = 0;
  while (post.board().signals.is_stopped.load(std::memory_order_relaxed) == 0) send_word(out, number++);
  if constexpr (requires { out.flush(); }) out.flush();
  post.send(std::to_string(number));
  post.expect("finish");
  out.finish(order.index == 0);
  post.expect("close");
}

template <class Lane>
void consume(const Order& order, Stage<Lane>& stage, Post& post) {
  Lane in = stage.open(0, false);
  stage.wait_for_start();
  const bool is_noted = order.cell.bytes >= kNoted;
  const bool is_ordered = order.cell.producers == 1 && order.cell.consumers == 1;
  Progress& progress = post.progress();
  for (std::uint64_t number = 0;; ++number) {
    const auto message = in.receive();
    if (message.empty() || first_word(message) == kEnd) break;
    check_size(message, order);
    if (is_ordered && first_word(message) != number) throw std::runtime_error("received a message out of order");
    if constexpr (Lane::kIsRead) read_whole(message);
    if (is_noted) {
      progress.step(now_ns());
    } else {
      progress.step();
    }
  }
  post.send("done");
  post.expect("close");
}

/// Waits for a message as the metric requires: by polling, or in the contender's own way.
template <class Lane>
[[nodiscard]] std::span<const std::byte> receive_as(Lane& in, Metric metric) {
  if (metric != Metric::polled_hop) return in.receive();
  for (;;) {
    const auto message = in.try_receive();
    if (!message.empty()) return message;
  }
}

/// Sends one message of a hop; writes all of it if the metric requires that.
template <class Lane>
void send_hop(Lane& out, const Order& order, std::uint64_t word) {
  const auto draft = out.draft();
  if (order.cell.metric == Metric::whole) std::memset(draft.data(), static_cast<int>(word & 0x7FU), draft.size());
  set_first_word(draft, word);
  out.send();
}

/// Receives one message of a hop and returns its first word.
template <class Lane>
[[nodiscard]] std::uint64_t receive_hop(Lane& in, const Order& order) {
  const auto message = receive_as(in, order.cell.metric);
  check_size(message, order);
  if (Lane::kIsRead || order.cell.metric == Metric::whole) read_whole(message);
  return first_word(message);
}

/// Round trips, the first few unrecorded. The clock is read while the message is in flight, so that it costs nothing.
template <class Lane>
void ping(const Order& order, Stage<Lane>& stage, Post& post) {
  Lane out = stage.open(0, true);
  Lane in = stage.open(1, false);
  stage.wait_for_start();
  const std::uint64_t warm = order.warm_samples;
  const std::int64_t begin = now_ns();
  std::int64_t before = 0;
  for (std::uint64_t trip = 0;; ++trip) {
    send_hop(out, order, trip);
    const std::int64_t sent = now_ns();
    if (trip > warm) post.board().samples.add(static_cast<double>(sent - before) / 2);
    before = sent;
    if (receive_hop(in, order) != trip) throw std::runtime_error("received a different message in reply");
    const bool is_late = sent - begin > order.budget_ns && trip > warm + 2;
    if (is_late || trip == warm + order.most_samples) break;
  }
  send_word(out, kEnd);
  post.send("done");
  post.expect("close");
}

template <class Lane>
void pong(const Order& order, Stage<Lane>& stage, Post& post) {
  Lane in = stage.open(0, false);
  Lane out = stage.open(1, true);
  stage.wait_for_start();
  for (;;) {
    const std::uint64_t word = receive_hop(in, order);
    if (word == kEnd) break;
    send_hop(out, order, word);
  }
  post.send("done");
  post.expect("close");
}

template <class Lane>
void sleep(const Order&, Stage<Lane>& stage, Post& post) {
  Lane in = stage.open(0, false);
  stage.wait_for_start();
  for (;;) {
    const auto message = in.receive();
    const std::int64_t moment = now_ns();
    if (message.empty()) throw std::runtime_error("the lane ended early");
    if (first_word(message) == kEnd) break;
    post.progress().step(moment);
  }
  post.send("done");
  post.expect("close");
}

template <class Lane>
void wake(const Order& order, Stage<Lane>& stage, Post& post) {
  Lane out = stage.open(0, true);
  stage.wait_for_start();
  const Sleeper sleeper(order, post);
  sleeper.wake_often([&out](std::uint64_t number) { send_word(out, number); });
  send_word(out, kEnd);
  post.send("done");
  post.expect("close");
}

/// Plays any part with lanes of one kind.
template <class Lane>
void play_lanes(const Order& order, std::array<Fd, 2>& fds, Post& post) {
  pin_thread(-1);
  Stage<Lane> stage(order, fds, post);
  switch (order.part) {
    case Part::produce: return produce<Lane>(order, stage, post);
    case Part::consume: return consume<Lane>(order, stage, post);
    case Part::ping: return ping<Lane>(order, stage, post);
    case Part::pong: return pong<Lane>(order, stage, post);
    case Part::wake: return wake<Lane>(order, stage, post);
    case Part::sleep: return sleep<Lane>(order, stage, post);
  }
}

}  // namespace drover::bench
