// Threads of Boost.Asio.
#include "pool/workload.hpp"

#ifdef DROVER_BENCH_BOOST
#include <cstdint>
#include <future>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#endif

namespace drover::bench {

#ifdef DROVER_BENCH_BOOST

namespace {

class AsioRunner final : public Runner {
 public:
  explicit AsioRunner(std::size_t workers) : pool_(workers) {}

  void run(std::size_t count) override {
    std::vector<std::future<std::uint64_t>> futures;
    futures.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::packaged_task<std::uint64_t()> job([i] { return std::uint64_t{i}; });
      futures.push_back(job.get_future());
      boost::asio::post(pool_, std::move(job));
    }
    for (std::size_t i = 0; i < count; ++i) check_result(futures[i].get(), i);
  }

 private:
  boost::asio::thread_pool pool_;
};

std::unique_ptr<Runner> make(std::size_t workers) { return std::make_unique<AsioRunner>(workers); }

}  // namespace

std::vector<Contender> boost_asio() { return {{.name = "threads, Boost.Asio", .make = make}}; }

#else

std::vector<Contender> boost_asio() { return {}; }

#endif

}  // namespace drover::bench
