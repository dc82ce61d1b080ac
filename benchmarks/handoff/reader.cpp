// The receiving process. A message with a lease is drover's; a number announces that many bytes in the pipe, or CUDA
// handles.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

#include "drover/base/fd.hpp"
#include "drover/device/backend.hpp"
#include "drover/tensor/send.hpp"
#include "handoff/workload.hpp"
#include "support/board.hpp"

namespace drover::bench {
namespace {

void read_all(int file, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t count = ::read(file, into.data(), into.size());
    if (count <= 0) throw std::runtime_error("the pipe ended early");
    into = into.subspan(static_cast<std::size_t>(count));
  }
}

Answer use(const Block& block, std::uint64_t bytes) {
  Answer answer;
  answer.usable_at = now_ns();
  answer.last = read_last(block, bytes);
  answer.read_at = now_ns();
  return answer;
}

// As in a program that needs received bytes on its device.
Answer take_from_pipe(int file, Memory& memory, const Place& place, std::uint64_t bytes) {
  const Block block = memory.allocate(place, bytes);
  if (!place.is_device) {
    read_all(file, block.bytes().first(bytes));
  } else {
    std::vector<std::byte> host(bytes);
    read_all(file, host);
    backend_of(place.backend).open(place.index).upload(block.device_ptr(), host.data(), bytes);
  }
  return use(block, bytes);
}

void serve(Worker& worker) {
  const auto& arguments = worker.arguments();
  const Place place = Place::parse(arguments.at(0));
  Queue to(worker.session(), ObjectHandle::parse(arguments.at(1)));
  Queue back(worker.session(), ObjectHandle::parse(arguments.at(2)));
  Memory memory(worker.session());
  const Fd pipe(::open(arguments.at(3).c_str(), O_RDWR | O_CLOEXEC));
  if (place.is_device) static_cast<void>(backend_of(place.backend).open(place.index));
  send(back, {});
  for (Message message; to.get(message) == GetResult::got;) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, message.bytes().data(), sizeof(bytes));
    if (message.leases().empty() && bytes == kIpcFollows) {
      serve_cuda_ipc(pipe.get(), back);
    } else if (message.leases().empty() && bytes == kRecallFollows) {
      send(back, recall_tensor(worker.session()));
    } else if (message.leases().empty()) {
      send(back, take_from_pipe(pipe.get(), memory, place, bytes));
    } else if (message.bytes().size() > sizeof(bytes)) {
      send(back, use_tensor(memory, message));
    } else {
      auto leases = message.take_leases();
      send(back, use(memory.open(std::move(leases.front())), bytes));
    }
  }
}

const Entry the_reader = entry("handoff reader", serve);

}  // namespace

const Entry& reader() { return the_reader; }

}  // namespace drover::bench
