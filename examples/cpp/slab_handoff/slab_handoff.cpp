// Device memory that outlives the process that made it: one process fills a slab and is killed, and another reads it.
#include <csignal>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "drover/drover.hpp"

namespace {

using namespace drover;
constexpr std::size_t kCount = 64 * kMiB / sizeof(std::uint32_t);

BackendKind kind_from(const std::string& name) { return name == "cuda" ? BackendKind::cuda : BackendKind::host; }

// Makes a slab, fills it, sends its descriptor, and waits to be killed.
void produce(Backend& backend, Channel& parent) {
  const auto slab = backend.create_slab(0, kCount * sizeof(std::uint32_t));
  const auto memory = backend.open(0).map(*slab);
  const std::vector<std::uint32_t> values(kCount, 3);
  backend.open(0).upload(memory->ptr(), values.data(), kCount * sizeof(std::uint32_t));
  const Fd exported = slab->export_fd();
  parent.send(std::to_string(slab->size()), std::vector{exported.get()});
  ChannelMessage nothing;
  static_cast<void>(parent.receive(nothing, Deadline::never()));  // until it is killed, or the parent dies
}

// Receives a slab, reads every number in it, and sends the sum.
void consume(Backend& backend, Channel& parent) {
  ChannelMessage message;
  if (parent.receive(message, Deadline::never()) != ReceiveResult::message) return;
  const auto slab = backend.import_slab(0, message.fds.at(0), std::stoull(message.bytes));
  const auto memory = backend.open(0).map(*slab);
  std::vector<std::uint32_t> values(kCount);
  backend.open(0).download(values.data(), memory->ptr(), kCount * sizeof(std::uint32_t));
  std::uint64_t sum = 0;
  for (const auto value : values) sum += value;
  parent.send(std::to_string(sum));
}

struct Worker {
  ChildProcess process;
  Channel channel;
};

Worker start(const char* role, const Backend& backend) {
  auto [ours, theirs] = Channel::make_pair();
  return {ChildProcess::spawn({.executable = own_executable(),
                               .arguments = {role, std::string(to_string(backend.kind()))},
                               .environment = {},
                               .inherit = {{theirs.fd(), 3}}}),
          std::move(ours)};
}

ChannelMessage next_message(Worker& worker) {
  ChannelMessage message;
  if (worker.channel.receive(message, Deadline::after(std::chrono::minutes(1))) == ReceiveResult::message)
    return message;
  throw Error(Errc::peer_lost, fmt::format("process {} sent nothing", worker.process.pid()), "read what it printed");
}

bool demonstrate(const Backend& backend) {
  const auto& info = backend.devices().front();
  Worker producer = start("produce", backend);
  const ChannelMessage slab = next_message(producer);
  fmt::print("{:8} process {} filled a slab of {} and sent 1 file descriptor\n", device_id(info),
             producer.process.pid(), format_bytes(std::stoull(slab.bytes)));
  producer.process.kill(SIGKILL);
  const auto ended = producer.process.wait(Deadline::never());
  fmt::print("{:8} process {} was {}\n", "", producer.process.pid(),
             ended && ended->signal() ? "killed by SIGKILL" : "gone already");
  Worker consumer = start("consume", backend);
  consumer.channel.send(slab.bytes, std::vector{slab.fds.at(0).get()});
  const auto sum = std::stoull(next_message(consumer).bytes);
  fmt::print("{:8} process {} read all {} numbers from it: sum {}, expected {}\n", "", consumer.process.pid(), kCount,
             sum, 3 * kCount);
  return sum == 3 * kCount;
}

int run(int argc, char** argv) {
  if (argc == 3) {  // started by ourselves, as a worker
    Channel parent(Fd{3});
    Backend& backend = backend_of(kind_from(argv[2]));
    std::string(argv[1]) == "produce" ? produce(backend, parent) : consume(backend, parent);
    return 0;
  }
  bool is_right = true;
  for (const Backend* const backend : available_backends()) is_right = demonstrate(*backend) && is_right;
  fmt::print("{}\n", is_right ? "Nothing was copied between the processes, and nothing was lost." : "WRONG DATA");
  return is_right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
