// Forked workers with messages of fixed size in pipes: one pipe to each, and one for all answers.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "drover/base/error.hpp"
#include "pool/forked.hpp"
#include "pool/workload.hpp"

namespace drover::bench {
namespace {

constexpr std::size_t kMostAtOnce = 64;
constexpr std::size_t kInFlight = 1024;  // per worker; far less than the capacity of a pipe

struct Request {
  std::uint64_t number = 0;
  std::uint64_t worker = 0;
};
using Requests = std::array<Request, kMostAtOnce>;

// Reads the available messages, at least one, or none at the end. Writes are multiples of messages, and so are reads.
std::span<Request> read_some(const Fd& from, Requests& into, std::size_t most) {
  const ssize_t count = ::read(from.get(), into.data(), most * sizeof(Request));
  if (count < 0) throw_errno("read", "from a pipe");
  return std::span(into).first(static_cast<std::size_t>(count) / sizeof(Request));
}

class ForkRunner final : public Runner {
 public:
  ForkRunner(std::size_t workers, std::size_t batch) : batch_(batch), in_flight_(workers, 0) {
    const auto serve = [batch](const Fd& from, const Fd& to) {
      Requests requests;
      while (true) {
        const auto some = read_some(from, requests, batch);
        if (some.empty()) return;
        write_whole(to, std::as_bytes(some));
      }
    };
    for (std::size_t i = 0; i < workers; ++i) workers_.emplace_back(answers_.write, serve);
    run(workers);  // waits until all have started
  }

  void run(std::size_t count) override {
    std::uint64_t sum = 0;
    for (std::size_t sent = 0, came = 0; came < count;) {
      for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
        if (in_flight_[worker] <= kInFlight / 2) sent += send(worker, sent, count);
      }
      const auto some = read_some(answers_.read, answered_, kMostAtOnce);
      for (const auto& answer : some) {
        sum += answer.number;
        --in_flight_[answer.worker];
      }
      came += some.size();
    }
    check_result(sum, count * (count - 1) / 2);
  }

 private:
  // Sends a worker as much as it may have in flight. Returns the number of messages.
  std::size_t send(std::size_t worker, std::size_t first, std::size_t count) {
    std::size_t sent = 0;
    Requests requests;
    while (in_flight_[worker] + batch_ <= kInFlight && first + sent < count) {
      const std::size_t some = std::min(batch_, count - first - sent);
      for (std::size_t i = 0; i < some; ++i) requests[i] = {.number = first + sent++, .worker = worker};
      write_whole(workers_[worker].requests(), std::as_bytes(std::span(requests).first(some)));
      in_flight_[worker] += some;
    }
    return sent;
  }

  std::size_t batch_;
  PipeEnds answers_ = make_pipe();
  std::vector<ForkedWorker> workers_;
  std::vector<std::size_t> in_flight_;
  Requests answered_;
};

template <std::size_t Batch>
std::unique_ptr<Runner> make(std::size_t workers) {
  return std::make_unique<ForkRunner>(workers, Batch);
}

}  // namespace

std::vector<Contender> forked_workers() {
  return {{.name = "fork + pipe", .make = make<1>},
          {.name = "fork + pipe, 64 together", .make = make<kMostAtOnce>, .is_timed_alone = false}};
}

}  // namespace drover::bench
