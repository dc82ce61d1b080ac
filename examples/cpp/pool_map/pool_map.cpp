// The main use of drover: a map over tensors on all devices. One worker is killed in the middle of its work, and the
// result is right.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "drover/drover.hpp"

namespace {

using namespace drover;
constexpr std::int64_t kParts = 240;          // unless another number is given
constexpr std::int64_t kNumbers = 1'000'000;  // of each part
constexpr std::size_t kLeastWorkers = 4;

// Tasks are registered before main, so that every process of this program knows them.
const auto total = task("total", [](const Tensor& part) { return sum(part); });
const auto same = task("same", [](Tensor tensor) { return tensor; });

// Parts of 0, 1, 2, ... spread over all devices. The tensors stay where they are, and tasks run there.
std::vector<Tensor> make_parts(const Pool& pool, std::int64_t count) {
  std::vector<Place> places;
  for (const auto& worker : pool.workers()) {
    const Place place = Place::parse(worker.place);
    if (std::ranges::find(places, place) == places.end()) places.push_back(place);
  }
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < count; ++i) {
    const Place& place = places[static_cast<std::size_t>(i) % places.size()];
    parts.push_back(arange(pool.memory(), DType::int64, i * kNumbers, (i + 1) * kNumbers, place));
  }
  return parts;
}

bool map_and_kill(Pool& pool, const std::vector<Tensor>& parts) {
  const auto show = progress_bar("sums");
  bool is_killed = false;
  MapOptions how{.task = TaskOptions{.retry = Retry::times(2)}};
  how.progress = [&](const Progress& progress) {
    show(progress);
    if (is_killed || progress.done < parts.size() / 4) return;
    is_killed = true;
    ::kill(pool.workers()[0].pid, SIGKILL);  // on purpose, in the middle of its work
  };
  double result = 0;
  for (const double one : pool.map(total, parts, how)) result += one;
  const double count = static_cast<double>(parts.size()) * static_cast<double>(kNumbers);
  const bool is_right = result == count * (count - 1) / 2;
  const auto statistics = pool.statistics();
  fmt::print("{} tensors summed by {} workers, {} killed and replaced, {} {} retried: {}\n", parts.size(),
             pool.size(), statistics.restarts, statistics.retried, statistics.retried == 1 ? "task" : "tasks",
             is_right ? "the result is right" : "the result is WRONG");
  return is_right;
}

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// The usual way: copied to the host, sent as bytes through a pipe, and copied to the device again.
double through_a_pipe(const Tensor& tensor) {
  const auto begin = Clock::now();
  const Tensor here = tensor.to(Place::cpu());
  const auto bytes = here.element_bytes();
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw_errno("pipe", "for the comparison");
  const Fd reading(ends[0]);
  Fd writing(ends[1]);
  std::thread writer([&] {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t count = ::write(writing.get(), bytes.data() + done, bytes.size() - done);
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
    }
    writing.reset();
  });
  const Tensor there = empty(tensor.memory(), tensor.dtype(), {tensor.element_count()}, Place::cpu());
  const auto into = there.element_bytes();
  for (std::size_t done = 0; done < into.size();) {
    const ssize_t count = ::read(reading.get(), into.data() + done, into.size() - done);
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  writer.join();
  there.to(tensor.place()).synchronize();
  return microseconds_since(begin);
}

double by_drover(Pool& pool, const Tensor& tensor) {
  const auto begin = Clock::now();
  pool.submit(same, tensor).get().synchronize();  // there and back
  return microseconds_since(begin);
}

// With tensors of at most `most` bytes.
void compare(Pool& pool, const Place& place, std::int64_t most) {
  fmt::print("\na tensor at {} to another process, median of 5 in microseconds:\n", to_string(place));
  fmt::print("{:>10}  {:>22}  {:>30}\n", "size", "drover, there and back", "bytes through a pipe, one way");
  for (const std::int64_t mebibytes : {1, 16, 256}) {
    if (mebibytes << 20 > most) break;
    const Tensor tensor = zeros(pool.memory(), DType::uint8, {mebibytes << 20}, place);
    tensor.synchronize();
    static_cast<void>(by_drover(pool, tensor));  // the worker maps it
    std::vector<double> ours;
    std::vector<double> pipe;
    for (int i = 0; i < 5; ++i) {
      ours.push_back(by_drover(pool, tensor));
      pipe.push_back(through_a_pipe(tensor));
    }
    std::ranges::sort(ours);
    std::ranges::sort(pipe);
    fmt::print("{:>10}  {:>22.0f}  {:>30.0f}   {:.0f} times as long\n", format_bytes(tensor.bytes()), ours[2],
               pipe[2], pipe[2] / ours[2]);
  }
}

std::int64_t parts_from(const std::string& text) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1)
    throw std::invalid_argument("usage: pool_map [number of parts, 1 or more]");
  return count;
}

int run(std::int64_t count) {
  const std::size_t devices = select_backend().backend.devices().size();
  Pool pool({.workers = std::max(devices, kLeastWorkers), .devices = "all"}, {.name = "pool_map"});
  static_cast<void>(pool.wait_ready());
  for (const auto& worker : pool.workers())
    fmt::print("{}: process {}, {} ({})\n", worker.name, worker.pid, worker.place, worker.device_uuid);
  const auto parts = make_parts(pool, count);
  const bool is_right = map_and_kill(pool, parts);
  static_cast<void>(pool.wait_ready());
  compare(pool, parts.front().place(), count * kNumbers * static_cast<std::int64_t>(sizeof(std::int64_t)));
  return is_right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    init(argc, argv);  // a worker does its work here and never returns
    return run(argc > 1 ? parts_from(argv[1]) : kParts);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
