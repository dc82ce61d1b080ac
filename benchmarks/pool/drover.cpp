// drover: a Pool, by map and by single futures, with batching and without.
#include <cstdint>
#include <ranges>
#include <vector>

#include "drover/pool/pool.hpp"
#include "pool/workload.hpp"

namespace drover::bench {
namespace {

const auto echo = task("bench.echo", [](std::uint64_t number) { return number; });

class PoolRunner : public Runner {
 public:
  PoolRunner(std::size_t workers, bool batching)
      : pool_({.workers = workers, .devices = "none"}, {.batching = batching}) {
    static_cast<void>(pool_.wait_ready());
  }
  void run_one() override { check_result(pool_.submit(echo, std::uint64_t{7}).get(), 7); }

 protected:
  [[nodiscard]] Pool& pool() noexcept { return pool_; }

 private:
  Pool pool_;
};

class MapRunner final : public PoolRunner {
 public:
  using PoolRunner::PoolRunner;
  void run(std::size_t count) override {
    const auto results = pool().map(echo, std::views::iota(std::uint64_t{0}, std::uint64_t{count}));
    check_result(results.size(), count);
    for (std::size_t i = 0; i < count; ++i) check_result(results[i], i);
  }
};

class SubmitRunner final : public PoolRunner {
 public:
  using PoolRunner::PoolRunner;
  void run(std::size_t count) override {
    std::vector<Future<std::uint64_t>> futures;
    futures.reserve(count);
    for (std::size_t i = 0; i < count; ++i) futures.push_back(pool().submit(echo, i));
    for (std::size_t i = 0; i < count; ++i) check_result(futures[i].get(), i);
  }
};

template <class Kind, bool Batching>
std::unique_ptr<Runner> make(std::size_t workers) {
  return std::make_unique<Kind>(workers, Batching);
}

}  // namespace

std::vector<Contender> drover_pools() {
  return {{.name = "drover, map", .make = make<MapRunner, true>},
          {.name = "drover, submit", .make = make<SubmitRunner, true>, .is_timed_alone = false},
          {.name = "drover, map, unbatched", .make = make<MapRunner, false>},
          {.name = "drover, submit, unbatched", .make = make<SubmitRunner, false>, .is_timed_alone = false}};
}

}  // namespace drover::bench
