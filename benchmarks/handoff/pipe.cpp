// The usual way: the bytes go through a pipe, by way of host memory if they are on a device.
#include <fcntl.h>
#include <unistd.h>

#include <span>
#include <stdexcept>

#include "drover/base/bytes.hpp"
#include "drover/base/fd.hpp"
#include "drover/device/backend.hpp"
#include "handoff/workload.hpp"
#include "support/board.hpp"

namespace drover::bench {
namespace {

void write_all(int file, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count <= 0) throw std::runtime_error("cannot write to the pipe");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void send_bytes(int file, const Block& block, std::uint64_t bytes) {
  const Place place = block.place();
  if (!place.is_device) return write_all(file, block.bytes().first(bytes));
  std::vector<std::byte> host(bytes);
  backend_of(place.backend).open(place.index).download(host.data(), block.device_ptr(), bytes);
  write_all(file, host);
}

}  // namespace

void measure_pipe(const Step& step, std::vector<Row>& rows) {
  const auto& [session, lane, place, bytes, is_smoke] = step;
  const int rounds = is_smoke ? 1 : bytes <= kMiB ? 100 : bytes <= 64 * kMiB ? 20 : 3;
  const Fd pipe(::open(lane.pipe.c_str(), O_RDWR | O_CLOEXEC));
  Memory memory(session);
  const Block block = memory.allocate(place, bytes);
  std::vector<double> nanoseconds;
  for (int round = 0; round < rounds + 1; ++round) {
    const auto number = static_cast<std::uint64_t>(round) + 1;
    write_last(block, bytes, number);
    const std::int64_t begin = now_ns();
    if (lane.to.put(std::as_bytes(std::span(&bytes, 1))) != PutResult::put) throw std::runtime_error("not put");
    send_bytes(pipe.get(), block, bytes);
    const Answer answer = await(lane.back);
    if (answer.last != number) throw std::runtime_error("the reader read a wrong number");
    if (round > 0) nanoseconds.push_back(static_cast<double>(answer.usable_at - begin));
  }
  rows.push_back(nanosecond_row(workload_name(place, bytes), "bytes through a pipe", "hand over", nanoseconds));
}

}  // namespace drover::bench
