// benchmarks/queue/workload.hpp: what is measured of every way to pass messages between processes.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "drover/base/fd.hpp"
#include "support/crew.hpp"

namespace drover::bench {

/// What is measured; see README.md.
enum class Metric : std::uint32_t { messages, polled_hop, waited_hop, wake, whole };

/// One thing to measure, of every contender that can.
struct Cell {
  Metric metric = Metric::messages;
  std::uint32_t producers = 1;
  std::uint32_t consumers = 1;
  std::uint64_t bytes = 8;  ///< of one message; a multiple of 8

  friend bool operator==(const Cell&, const Cell&) = default;
};

/// "1:1, 8 B" and "messages".
[[nodiscard]] std::string workload_name(const Cell& cell);
[[nodiscard]] std::string metric_name(Metric metric);
/// Messages a queue holds, for contenders that can choose: 1024, and fewer when they are large.
[[nodiscard]] std::uint64_t depth_of(const Cell& cell) noexcept;

/// A way for messages in one direction, before its ends are handed out. Goes when every worker has opened its end.
struct Endpoint {
  Fd producer;                 ///< what producers are given, if anything
  Fd consumer;                 ///< what consumers are given, if anything
  std::string name;            ///< by which both find it, if it has a name; at most kMostName
  std::shared_ptr<void> keep;  ///< removes the name when it goes; shared, because it has no type here
};

/// Longest name of an Endpoint.
inline constexpr std::size_t kMostName = 127;

/// What a worker does in a step.
enum class Part : std::uint32_t { produce, consume, ping, pong, wake, sleep };

/// An order to a worker, as bytes: conductor and worker are the same program.
struct Order {
  std::uint32_t contender = 0;  ///< place in the list of contenders
  Part part = Part::produce;
  Cell cell;
  std::uint32_t index = 0;                                 ///< among the producers or consumers
  std::int32_t cpu = -1;                                   ///< where to run; anywhere if negative
  pid_t partner = 0;                                       ///< who sleeps, for the one who wakes
  std::uint32_t warm_samples = 0;                          ///< not recorded, of what a worker samples
  std::uint32_t most_samples = 0;                          ///< recorded at most
  std::int64_t budget_ns = 0;                              ///< after so long enough is sampled
  std::array<std::array<char, kMostName + 1>, 2> names{};  ///< of the ways there and back
};
static_assert(std::is_trivially_copyable_v<Order>);

/// One end of a way, in a worker.
struct LaneEnd {
  const Order& order;
  Post& post;
  Fd fd;                     ///< what the Endpoint had for this side
  std::string name;          ///< of the Endpoint
  bool is_producer = false;  ///< which side
};

/// A way to pass messages.
struct Contender {
  const char* name = "";
  /// Why it is left out of a cell; empty if it takes part.
  std::string (*refusal)(const Cell& cell) = nullptr;
  /// Makes a way; called by the conductor.
  Endpoint (*make)(const Cell& cell, const Session& session) = nullptr;
  /// Plays a part; called in workers. `fds` are those of the ways there and back that have any.
  void (*play)(const Order& order, std::array<Fd, 2>& fds, Post& post) = nullptr;
  /// Whether a step has one process only.
  bool is_alone = false;
};

/// All of them, drover first; the place in the list is the number in orders.
[[nodiscard]] std::span<const Contender> contenders();

/// One file each.
[[nodiscard]] Contender drover_queue();
[[nodiscard]] Contender drover_many();
[[nodiscard]] Contender drover_loan();
[[nodiscard]] Contender pipe_contender();
[[nodiscard]] Contender unix_packets();
[[nodiscard]] Contender unix_stream();
[[nodiscard]] Contender posix_mq();
[[nodiscard]] Contender boost_message_queue();
[[nodiscard]] Contender zeromq();
[[nodiscard]] Contender cache_line();
[[nodiscard]] Contender bare_futex();
[[nodiscard]] Contender plain_memcpy();

}  // namespace drover::bench
