// Kills workers at random moments while they run tasks: every task has exactly one correct result.
//
// DROVER_POOL_KILLS and DROVER_POOL_TASKS set the amounts; DROVER_POOL_SEED repeats a run.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "drover/pool/pool.hpp"
#include "drover/pool/this_worker.hpp"
#include "pool/run/pool_support.hpp"
#include "support/build.hpp"
#include "support/captured_log.hpp"

namespace drover::pool {
namespace {

using namespace std::chrono_literals;

std::uint64_t setting(const char* name, std::uint64_t standard) {
  const char* const text = std::getenv(name);
  return text == nullptr ? standard : std::strtoull(text, nullptr, 10);
}

// Computes a little, so that kills hit running tasks.
std::uint64_t stirred(std::uint64_t x) {
  for (int i = 0; i < 20'000; ++i) x = (x ^ (x >> 31U)) * 0x9E3779B97F4A7C15ULL + 1;
  return x;
}

const auto torture_stir = task("torture_stir", [](std::uint64_t x) { return stirred(x); });
const auto torture_tensor = task("torture_tensor", [](std::int64_t base, const Tensor& numbers) {
  const Tensor made = full(this_worker().memory(), DType::int64, {64}, base);
  return drover::add(made, numbers);
});

// Kills random workers of a pool until it is stopped or has killed enough.
class Killer {
 public:
  Killer(Pool& pool, std::uint64_t kills, std::uint64_t seed)
      : thread_([this, &pool, kills, seed] {
          std::mt19937_64 random(seed);
          std::set<pid_t> dead;  // killed workers stay listed for a moment
          while (!stops_ && count_ < kills) {
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
            const auto workers = pool.workers();
            const auto& victim = workers[random() % workers.size()];
            // Only ready workers: the pool would give up a slot that never becomes ready.
            if (!victim.is_ready || victim.pid <= 0 || !dead.insert(victim.pid).second) continue;
            if (::kill(victim.pid, SIGKILL) == 0) ++count_;
          }
        }) {}
  ~Killer() {
    stops_ = true;
    thread_.join();
  }
  Killer(const Killer&) = delete;
  Killer& operator=(const Killer&) = delete;
  [[nodiscard]] std::uint64_t count() const { return count_; }

 private:
  std::atomic<bool> stops_ = false;
  std::atomic<std::uint64_t> count_ = 0;
  std::thread thread_;
};

TEST(PoolTorture, every_task_has_exactly_one_correct_result) {
  const std::uint64_t kills = setting("DROVER_POOL_KILLS", test::kIsSanitized ? 15 : 60);
  const std::uint64_t tasks = setting("DROVER_POOL_TASKS", test::kIsSanitized ? 2000 : 10'000);
  const std::uint64_t seed = setting("DROVER_POOL_SEED", std::random_device()());
  SCOPED_TRACE(fmt::format("DROVER_POOL_SEED={}", seed));
  const test::CapturedLog log(LogLevel::warn);
  Pool pool({.workers = 4, .devices = "none"},
            {.task = {.retry = Retry::times(1000)}, .quarantine_after = 0, .stall_report_after = 20s});
  ASSERT_EQ(pool.wait_ready(Deadline::after(test::kPatience)), WaitResult::done);
  std::uint64_t done = 0;
  std::uint64_t killed = 0;
  {
    const Killer killer(pool, kills, seed);
    // Continues until all kills have happened while tasks were in flight.
    while (done < tasks || killer.count() < kills) {
      const auto results = pool.map(torture_stir, std::views::iota(done, done + 1000));
      for (const std::uint64_t result : results) ASSERT_EQ(result, stirred(done++));
    }
    killed = killer.count();
  }
  EXPECT_GE(killed, kills);
  const auto statistics = pool.statistics();
  EXPECT_EQ(statistics.finished, done);
  EXPECT_EQ(statistics.failed, 0U);
  EXPECT_LE(statistics.restarts, killed);  // the last ones may not be known yet
  EXPECT_GE(statistics.restarts + 4, killed);
  std::printf("%s\n", fmt::format("{} kills, {} tasks, {} begun again, {} workers replaced", killed, done,
                                  statistics.retried, statistics.restarts)
                          .c_str());
}

TEST(PoolTorture, tensors_survive_and_none_leaks) {
  const std::uint64_t kills = setting("DROVER_POOL_KILLS", test::kIsSanitized ? 10 : 40) / 2;
  const test::CapturedLog log(LogLevel::warn);
  Pool pool({.workers = 3, .devices = "none"}, {.task = {.retry = Retry::times(1000)}, .quarantine_after = 0});
  ASSERT_EQ(pool.wait_ready(Deadline::after(test::kPatience)), WaitResult::done);
  const std::uint64_t before = pool.memory().claimed(Place::cpu());
  {
    const Tensor numbers = arange(pool.memory(), DType::int64, 0, 64);
    const Killer killer(pool, kills, 1);
    for (std::int64_t base = 0; killer.count() < kills; base += 50) {
      std::vector<Future<Tensor>> futures;
      for (std::int64_t i = 0; i < 50; ++i) futures.push_back(pool.submit(torture_tensor, base + i, numbers));
      for (std::int64_t i = 0; i < 50; ++i) {
        const Tensor result = futures[static_cast<std::size_t>(i)].get(Deadline::after(test::kPatience));
        const auto elements = result.elements<std::int64_t>();
        for (std::int64_t k = 0; k < 64; ++k) ASSERT_EQ(elements[static_cast<std::size_t>(k)], base + i + k);
      }
    }
  }
  ASSERT_EQ(pool.join(Deadline::after(test::kPatience)), WaitResult::done);
  EXPECT_EQ(pool.memory().claimed(Place::cpu()), before);
}

}  // namespace
}  // namespace drover::pool
