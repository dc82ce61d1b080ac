// benchmarks/handoff/workload.hpp: handing memory of one process to another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "drover/ipc/queue.hpp"
#include "drover/session/worker.hpp"
#include "drover/tensor/memory.hpp"
#include "support/report.hpp"

namespace drover::bench {

/// The reader's answer: when it could use the memory, when it had read its last number, and that number; and, where
/// measured, when it began or had released the memory.
struct Answer {
  std::int64_t begun_at = 0;
  std::int64_t usable_at = 0;
  std::int64_t read_at = 0;
  std::int64_t closed_at = 0;
  std::uint64_t last = 0;
};

/// The queues between this process and the reader.
struct Lane {
  Queue to;          ///< to the reader
  Queue back;        ///< answers of the reader
  std::string pipe;  ///< path of a named pipe, for contenders that use one
};

/// Sends an answer; waits for the next answer.
void send(Queue& queue, const Answer& answer);
[[nodiscard]] Answer await(Queue& queue);

/// The last number in the first `bytes` of a block at any place.
void write_last(const Block& block, std::uint64_t bytes, std::uint64_t number);
[[nodiscard]] std::uint64_t read_last(const Block& block, std::uint64_t bytes);

/// The reader for all contenders. Arguments: place, handles of both queues, path of the pipe.
[[nodiscard]] const Entry& reader();

/// One step of the benchmark.
struct Step {
  const Session& session;
  Lane& lane;
  Place place;
  std::uint64_t bytes = 0;
  bool is_smoke = false;
};

/// drover: a lease goes with a message.
void measure_leases(const Step& step, std::vector<Row>& rows);
/// drover: a tensor with unfinished work on it; and the reader's side.
void measure_tensors(const Step& step, std::vector<Row>& rows);
[[nodiscard]] Answer use_tensor(const Memory& memory, Message& message);
/// drover: a tensor that the session keeps; and the reader's side, announced instead of a number of bytes.
void measure_recall(const Step& step, std::vector<Row>& rows);
[[nodiscard]] Answer recall_tensor(const Session& session);
inline constexpr std::uint64_t kRecallFollows = ~std::uint64_t{0} - 1;
/// The usual way: through a pipe, from a device by way of host memory on both sides.
void measure_pipe(const Step& step, std::vector<Row>& rows);

/// CUDA's own handles through a pipe, without drover: kept open by the reader, or opened each time. Requires: cuda:0.
void measure_cuda_ipc(const Step& step, std::vector<Row>& rows);
/// The reader's side, until the sender finishes.
void serve_cuda_ipc(int pipe, Queue& back);
/// Announces it to the reader, instead of a number of bytes.
inline constexpr std::uint64_t kIpcFollows = ~std::uint64_t{0};

/// Copies to a device from a block at `cpu`, and at cuda:0 from the driver's own memory.
void measure_uploads(const Session& session, const Place& place, bool is_smoke, std::vector<Row>& rows);

/// "cuda:0, 1.0 GiB".
[[nodiscard]] std::string workload_name(const Place& place, std::uint64_t bytes);

}  // namespace drover::bench
