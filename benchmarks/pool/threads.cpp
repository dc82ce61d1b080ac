// Threads instead of processes: the cost of a task without isolation.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "pool/workload.hpp"

namespace drover::bench {
namespace {

using Job = std::packaged_task<std::uint64_t()>;

class ThreadRunner final : public Runner {
 public:
  explicit ThreadRunner(std::size_t workers) {
    for (std::size_t i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
  }
  ~ThreadRunner() override {
    {
      const std::scoped_lock lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  ThreadRunner(const ThreadRunner&) = delete;
  ThreadRunner& operator=(const ThreadRunner&) = delete;

  void run(std::size_t count) override {
    std::vector<std::future<std::uint64_t>> futures;
    futures.reserve(count);
    for (std::size_t i = 0; i < count; ++i) futures.push_back(submit(i));
    for (std::size_t i = 0; i < count; ++i) check_result(futures[i].get(), i);
  }

 private:
  std::future<std::uint64_t> submit(std::uint64_t number) {
    Job job([number] { return number; });
    auto future = job.get_future();
    {
      const std::scoped_lock lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
    return future;
  }
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_over_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

std::unique_ptr<Runner> make(std::size_t workers) { return std::make_unique<ThreadRunner>(workers); }

}  // namespace

std::vector<Contender> thread_pools() { return {{.name = "threads, mutex", .make = make}}; }

}  // namespace drover::bench
