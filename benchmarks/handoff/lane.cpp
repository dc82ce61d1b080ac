// Common code of both sides.
#include <cstring>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/device/backend.hpp"
#include "handoff/workload.hpp"

namespace drover::bench {

void send(Queue& queue, const Answer& answer) {
  if (queue.put(std::as_bytes(std::span(&answer, 1))) != PutResult::put)
    throw std::runtime_error("the sender does not read answers");
}

Answer await(Queue& queue) {
  Message message;
  if (queue.get(message, Deadline::after(std::chrono::minutes(2))) != GetResult::got) {
    throw std::runtime_error("the reader does not answer: see its output");
  }
  Answer answer;
  if (message.bytes().size() != sizeof(answer)) throw std::runtime_error("the reader sent a malformed answer");
  std::memcpy(&answer, message.bytes().data(), sizeof(answer));
  return answer;
}

void write_last(const Block& block, std::uint64_t bytes, std::uint64_t number) {
  const std::uint64_t at = bytes - sizeof(number);
  const Place place = block.place();
  if (place.is_device) {
    backend_of(place.backend).open(place.index).upload(block.device_ptr() + at, &number, sizeof(number));
  } else {
    std::memcpy(block.bytes().data() + at, &number, sizeof(number));
  }
}

std::uint64_t read_last(const Block& block, std::uint64_t bytes) {
  std::uint64_t number = 0;
  const std::uint64_t at = bytes - sizeof(number);
  const Place place = block.place();
  if (place.is_device) {
    backend_of(place.backend).open(place.index).download(&number, block.device_ptr() + at, sizeof(number));
  } else {
    std::memcpy(&number, block.bytes().data() + at, sizeof(number));
  }
  return number;
}

std::string workload_name(const Place& place, std::uint64_t bytes) {
  return fmt::format("{}, {}", to_string(place), format_bytes(bytes));
}

}  // namespace drover::bench
