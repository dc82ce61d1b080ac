// A map over large tensors, compared with workers that receive the bytes through pipes.
#include <array>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/pool/pool.hpp"
#include "drover/tensor/tensor.hpp"
#include "pool/forked.hpp"
#include "pool/workload.hpp"

namespace drover::bench {
namespace {

constexpr std::size_t kWorkers = 4;
constexpr std::size_t kTensors = 4;  // each is an argument several times
constexpr std::size_t kTimes = 4;

using Words = std::span<const std::uint64_t>;

// How workers read the elements.
enum class Use : std::uint64_t { last, sum };

std::uint64_t use_words(Use use, Words words) {
  return use == Use::last ? words.back() : std::accumulate(words.begin(), words.end(), std::uint64_t{0});
}

const auto use_tensor = task(
    "bench.tensor", [](Use use, const Tensor& tensor) { return use_words(use, tensor.elements<std::uint64_t>()); });

// Tensors of this many words, each filled with its number.
std::vector<Tensor> make_tensors(const Memory& memory, std::size_t words) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < kTensors; ++i)
    tensors.push_back(full(memory, DType::uint64, {static_cast<std::int64_t>(words)}, i + 1));
  return tensors;
}

std::uint64_t wanted(Use use, std::size_t tensor, std::size_t words) {
  return (tensor + 1) * (use == Use::last ? 1 : words);
}

void map_tensors(Pool& pool, Use use, const std::vector<Tensor>& tensors, std::size_t words) {
  std::vector<std::tuple<Use, Tensor>> items;
  for (std::size_t i = 0; i < kTensors * kTimes; ++i) items.emplace_back(use, tensors[i % kTensors]);
  const auto results = pool.starmap(use_tensor, items);
  for (std::size_t i = 0; i < results.size(); ++i) check_result(results[i], wanted(use, i % kTensors, words));
}

// Workers with a pipe in each direction, each with a thread of ours, so that all are written to at once.
class PipedWorkers {
 public:
  explicit PipedWorkers(std::size_t words) : memory_(words) {
    const auto serve = [this](const Fd& from, const Fd& to) {
      Use use{};
      while (read_whole(from, std::as_writable_bytes(std::span(&use, 1))) &&
             read_whole(from, std::as_writable_bytes(std::span(memory_)))) {
        const std::uint64_t result = use_words(use, memory_);
        write_whole(to, std::as_bytes(std::span(&result, 1)));
      }
    };
    for (auto& answers : answers_) workers_.emplace_back(answers.write, serve);
  }

  void map(Use use, const std::vector<Tensor>& tensors) {
    std::array<std::uint64_t, kTensors * kTimes> results{};
    std::vector<std::thread> threads;
    for (std::size_t worker = 0; worker < kWorkers; ++worker) {
      threads.emplace_back([&, worker] {
        for (std::size_t i = worker; i < results.size(); i += kWorkers)
          results[i] = ask(worker, use, tensors[i % kTensors].elements<std::uint64_t>());
      });
    }
    for (auto& thread : threads) thread.join();
    for (std::size_t i = 0; i < results.size(); ++i)
      check_result(results[i], wanted(use, i % kTensors, memory_.size()));
  }

 private:
  std::uint64_t ask(std::size_t worker, Use use, Words words) {
    const Fd& requests = workers_[worker].requests();
    write_whole(requests, std::as_bytes(std::span(&use, 1)));
    write_whole(requests, std::as_bytes(words));
    std::uint64_t result = 0;
    static_cast<void>(read_whole(answers_[worker].read, std::as_writable_bytes(std::span(&result, 1))));
    return result;
  }

  std::vector<std::uint64_t> memory_;  // shared with the children until they write to it
  std::array<PipeEnds, kWorkers> answers_{make_pipe(), make_pipe(), make_pipe(), make_pipe()};
  std::vector<ForkedWorker> workers_;
};

}  // namespace

void measure_tensors(const Options& options, std::vector<Row>& rows) {
  const std::uint64_t bytes = options.is_smoke ? kMiB : 64 * kMiB;
  const std::size_t words = bytes / sizeof(std::uint64_t);
  const std::size_t rounds = options.is_smoke ? 1 : 10;
  const auto name = fmt::format("{}, {}", workers_text(kWorkers), format_bytes(bytes));
  Pool pool({.workers = kWorkers, .devices = "none"});
  static_cast<void>(pool.wait_ready());
  PipedWorkers piped(words);
  const auto tensors = make_tensors(pool.memory(), words);
  for (const auto& [use, metric] : {std::pair(Use::last, "last number"), std::pair(Use::sum, "sum of all")}) {
    const auto add = [&](const char* contender, const auto& body) {
      if (options.wants(name, contender, metric))
        rows.push_back(rate_row(name, contender, metric, bytes * kTensors * kTimes, time_each(rounds, body)));
    };
    add("drover, tensors", [&, how = use] { map_tensors(pool, how, tensors, words); });
    add("fork + pipe, bytes", [&, how = use] { piped.map(how, tensors); });
  }
}

}  // namespace drover::bench
