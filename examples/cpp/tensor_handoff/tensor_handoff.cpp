// Tensors travel to a worker and back without a copy, and one outlives the worker that made it.
#include <unistd.h>

#include <chrono>
#include <csignal>

#include <fmt/format.h>

#include "drover/drover.hpp"

namespace {

using namespace drover;
constexpr std::int64_t kCount = 4'000'000;
constexpr std::chrono::minutes kPatience{1};

// The bodies of two workers. Entries are registered before main, so that every process of this program knows them. A
// worker opens queues by their handles, which it receives as arguments.

// Sends each tensor back, which is the same memory, and then its double, which is new.
const auto doubler = entry("doubler", [](Worker& worker) {
  const Memory memory(worker.session());
  Queue jobs(worker.session(), ObjectHandle::parse(worker.arguments().at(0)));
  Queue answers(worker.session(), ObjectHandle::parse(worker.arguments().at(1)));
  for (Tensor tensor; get(jobs, memory, tensor) == GetResult::got;) {  // until the queue is closed
    static_cast<void>(put(answers, tensor));
    static_cast<void>(put(answers, scale(tensor, 2)));
  }
});

// Makes a tensor, sends it, and waits to be killed.
const auto maker = entry("maker", [](Worker& worker) {
  const Memory memory(worker.session());
  Queue answers(worker.session(), ObjectHandle::parse(worker.arguments().at(0)));
  Tensor tensor = arange(memory, DType::int64, 0, kCount, Place::parse(worker.arguments().at(1)));
  tensor.synchronize();  // work that the device has not finished would be lost with this process
  static_cast<void>(put(answers, std::move(tensor)));
  ::pause();
});

Tensor take(Queue& queue, const Memory& memory) {
  Tensor tensor;
  if (get(queue, memory, tensor, Deadline::after(kPatience)) == GetResult::got) return tensor;
  throw Error(Errc::peer_lost, "no tensor arrived", "read what the workers printed");
}

bool hand_over(const Session& session, const Memory& memory, const Place& place) {
  Queue jobs(session);
  Queue answers(session);
  auto worker = Process::start(
      session, {.entry = doubler, .arguments = {jobs.handle().to_string(), answers.handle().to_string()}});
  static_cast<void>(worker.wait_ready(Deadline::after(kPatience)));
  const Tensor tensor = random(memory, DType::float32, {2000, kCount / 2000}, 1, place);
  tensor.synchronize();
  bool is_right = true;
  for (int round = 0; round < 2; ++round) {  // in the first one the worker opens the device and maps the slab
    const auto start = Clock::now();
    static_cast<void>(put(jobs, tensor));  // the tensor stays here as well: both processes share its elements
    const Tensor same = take(answers, memory);
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    fmt::print("{} at {} went to {} and came back in {:.0f} us\n", format_bytes(tensor.bytes()), to_string(place),
               worker.name(), took.count());
    const Tensor twice = take(answers, memory);
    is_right = is_right && equal(same, tensor) && equal(twice, scale(tensor, 2));
    if (round == 1) fmt::print("{}\n", to_string(twice, {.most_elements = 16, .edge_elements = 2}));
  }
  jobs.close();  // ends the worker's loop
  const auto ended = worker.wait(Deadline::after(kPatience));
  fmt::print("{}: {}\n", worker.describe(), is_right ? "every number is the double" : "WRONG NUMBERS");
  return is_right && ended && ended->is_success();
}

bool outlive(const Session& session, const Memory& memory, const Place& place) {
  Queue answers(session);
  auto worker =
      Process::start(session, {.entry = maker, .arguments = {answers.handle().to_string(), to_string(place)}});
  static_cast<void>(wait({answers}, Deadline::after(kPatience)));  // sent, and not yet in any other process
  worker.kill(SIGKILL);
  static_cast<void>(worker.wait(Deadline::after(kPatience)));
  const Tensor tensor = take(answers, memory);
  const double wanted = 0.5 * static_cast<double>(kCount) * static_cast<double>(kCount - 1);
  const bool is_right = sum(tensor) == wanted;
  fmt::print("{}: its tensor {}\n", worker.describe(), is_right ? "is here, whole" : "is WRONG");
  return is_right;
}

int run() {
  const Session session = Session::start();
  const Memory memory(session);
  const Place place = Place::device(select_backend().backend.kind(), 0);  // a GPU if there is one, otherwise emulated
  const bool is_handed_over = hand_over(session, memory, place);
  return outlive(session, memory, place) && is_handed_over ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    init(argc, argv);  // a worker does its work here and never returns
    return run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
