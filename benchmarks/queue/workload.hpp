// benchmarks/queue/workload.hpp: measurements of ways to pass messages between processes.
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

/// The metrics; see README.md.
enum class Metric : std::uint32_t { messages, polled_hop, waited_hop, wake, whole };

/// One measurement, taken of every contender that supports it.
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
/// The depth of a queue in messages, for contenders that can choose: 1024, fewer for large messages.
[[nodiscard]] std::uint64_t depth_of(const Cell& cell) noexcept;

/// A lane for messages in one direction, before its ends are handed out. Destroyed once every worker has opened its
/// end.
struct Endpoint {
  Fd producer;                 ///< for producers; may be empty
  Fd consumer;                 ///< for consumers; may be empty
  std::string name;            ///< by which both open it; may be empty; at most kMostName
  std::shared_ptr<void> keep;  ///< removes the name when destroyed; shared, to erase its type
};

/// Longest name of an Endpoint.
inline constexpr std::size_t kMostName = 127;

/// The part of a worker in a step.
enum class Part : std::uint32_t { produce, consume, ping, pong, wake, sleep };

/// An order to a worker, as bytes: conductor and worker are the same program.
struct Order {
  std::uint32_t contender = 0;  ///< index in the list of contenders
  Part part = Part::produce;
  Cell cell;
  std::uint32_t index = 0;                                 ///< among the producers or consumers
  std::int32_t cpu = -1;                                   ///< processor to run on; any if negative
  pid_t partner = 0;                                       ///< the sleeper, for the process that wakes it
  std::uint32_t warm_samples = 0;                          ///< unrecorded samples
  std::uint32_t most_samples = 0;                          ///< limit of recorded samples
  std::int64_t budget_ns = 0;                              ///< time limit for samples
  std::array<std::array<char, kMostName + 1>, 2> names{};  ///< of the lanes in both directions
};
static_assert(std::is_trivially_copyable_v<Order>);

/// One end of a lane in a worker.
struct LaneEnd {
  const Order& order;
  Post& post;
  Fd fd;                     ///< the Endpoint's descriptor for this side
  std::string name;          ///< of the Endpoint
  bool is_producer = false;  ///< which side
};

/// A contender: a way to pass messages.
struct Contender {
  const char* name = "";
  /// Why a cell does not apply to it; empty if it does.
  std::string (*refusal)(const Cell& cell) = nullptr;
  /// Creates a lane; called by the conductor.
  Endpoint (*make)(const Cell& cell, const Session& session) = nullptr;
  /// Plays a part; called in workers. `fds` are the descriptors of the lanes that have any.
  void (*play)(const Order& order, std::array<Fd, 2>& fds, Post& post) = nullptr;
  /// Whether a step has only one process.
  bool is_alone = false;
};

/// All contenders, drover first; an order names one by its index.
[[nodiscard]] std::span<const Contender> contenders();

/// Each contender has its own file.
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
