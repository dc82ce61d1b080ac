// One process owns the GPU and serves all others, which need no context of their own.
#include <algorithm>
#include <exception>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "drover/drover.hpp"

namespace {

using namespace drover;

// Computes on the device what arrives through any of the pipes, until all of them are closed.
const auto serve = entry("serve", [](Worker& worker) {
  const Memory memory(worker.session());
  const Place device = Place::device(select_backend().backend.kind(), 0);
  std::vector<Pipe> helpers;
  for (const auto& handle : worker.arguments()) helpers.emplace_back(worker.session(), PipeHandle::parse(handle));
  while (!helpers.empty()) {
    const std::vector<WaitSource> sources(helpers.begin(), helpers.end());
    const std::size_t ready = wait(sources, Deadline::never()).front();
    Tensor numbers;
    if (receive(helpers[ready], memory, numbers) == GetResult::got) {
      const Tensor ones = full(memory, numbers.dtype(), numbers.shape(), 1, device);
      static_cast<void>(send(helpers[ready], add(scale(numbers.to(device), 2), ones).to(Place::cpu())));
    } else {
      helpers.erase(helpers.begin() + static_cast<std::ptrdiff_t>(ready));
    }
  }
});

// Has a tensor computed without touching the GPU. Arguments: a number, a pipe to the server, and a queue for the
// mean.
const auto help_out = entry("help_out", [](Worker& worker) {
  const Memory memory(worker.session());
  Pipe server(worker.session(), PipeHandle::parse(worker.arguments().at(1)));
  Queue results(worker.session(), ObjectHandle::parse(worker.arguments().at(2)));
  static_cast<void>(send(server, full(memory, DType::float64, {500, 500}, std::stoi(worker.arguments().at(0)))));
  Tensor answer;
  if (receive(server, memory, answer) == GetResult::got)
    static_cast<void>(results.put(fmt::format("{:.1f}", sum(answer) / 250'000)));
});

int run() {
  const Session session = Session::start();
  Queue results(session);
  std::vector<std::string> to_helpers;
  std::vector<Process> helpers;
  std::vector<Pipe> ends;  // kept until the server and the helpers have opened them
  for (int number = 0; number < 4; ++number) {
    auto [ours, theirs] = Pipe::make(session);
    to_helpers.push_back(ours.handle().to_string());
    helpers.push_back(Process::start(
        session, {.entry = help_out,
                  .arguments = {std::to_string(number), theirs.handle().to_string(), results.handle().to_string()}}));
    ends.push_back(std::move(ours));
    ends.push_back(std::move(theirs));
  }
  Process server = Process::start(session, {.entry = serve, .arguments = to_helpers});
  std::vector<std::string> means;
  for (Message mean; means.size() < helpers.size() && results.get(mean) == GetResult::got;)
    means.emplace_back(mean.text());
  ends.clear();  // the last ones: the server is done
  for (auto& helper : helpers) static_cast<void>(helper.wait(Deadline::never()));
  static_cast<void>(server.wait(Deadline::never()));
  std::ranges::sort(means);
  fmt::print("[{}]\n", fmt::join(means, ", "));
  return means == std::vector<std::string>{"1.0", "3.0", "5.0", "7.0"} ? 0 : 1;
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
