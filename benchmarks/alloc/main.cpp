#include <exception>
#include <random>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "alloc/workload.hpp"
#include "drover/base/bytes.hpp"
#include "drover/device/backend.hpp"
#include "drover/session/session.hpp"
#include "drover/session/worker.hpp"
#include "support/board.hpp"

namespace drover::bench {
namespace {

constexpr std::size_t kLargest = 16 * kKiB;
constexpr int kBatch = 16;  // pairs per sample, so that the cost of the clock is negligible
constexpr const char* kAny = "release + allocate";
constexpr const char* kNewest = "release + allocate the newest";

// While `live` blocks are in use, releases one and allocates another size in its place: a random one, whose
// bookkeeping may be out of the cache, or always the same, which shows the cost of the number of others.
std::vector<double> measure(Allocator& allocator, std::size_t live, std::size_t samples, bool at_random) {
  std::minstd_rand random(7);  // NOLINT(*-msc32-c,*-msc51-cpp,*-generator-seed): the same for all contenders
  const auto any_size = [&] { return 1 + random() % kLargest; };
  for (std::size_t slot = 0; slot < live; ++slot) allocator.allocate(slot, any_size());
  std::vector<double> nanoseconds;
  for (std::size_t sample = 0; sample < samples + 1; ++sample) {
    const std::int64_t begin = now_ns();
    for (int pair = 0; pair < kBatch; ++pair) {
      const std::size_t slot = at_random ? random() % live : live - 1;
      allocator.release(slot);
      allocator.allocate(slot, any_size());
    }
    if (sample > 0) nanoseconds.push_back(static_cast<double>(now_ns() - begin) / kBatch);
  }
  for (std::size_t slot = 0; slot < live; ++slot) allocator.release(slot);
  return nanoseconds;
}

struct Case {
  std::string place;
  std::vector<Contender> contenders;
  std::vector<std::size_t> live;
  std::size_t samples;
};

std::vector<Case> cases(const std::shared_ptr<Membership>& membership, bool is_smoke) {
  const std::size_t samples = is_smoke ? 2 : 20'000;
  std::vector<Case> all;
  const auto drover_at = [membership](const Place& place) {
    return Contender{"drover", [=](std::size_t slots) { return make_drover(membership, place, slots); }};
  };
  Case host{"cpu", {drover_at(Place::cpu()), {"malloc", make_malloc}}, {10, 100, 1000, 10'000}, samples};
  if (has_boost()) host.contenders.push_back({"boost managed memory", make_boost});
  all.push_back(std::move(host));
  for (const Backend* const backend : available_backends()) {
    const Place place = Place::device(backend->kind(), 0);
    const Contender plain{"Device::allocate", [place](std::size_t slots) { return make_device(place, slots); }};
    all.push_back({to_string(place), {drover_at(place), plain}, {10, 1000}, samples / 200 + 1});
  }
  return all;
}

void run(const Options& options) {
  const Session session = Session::start();
  std::vector<Row> rows;
  for (const Case& one : cases(session, options.is_smoke)) {
    fmt::print(stderr, "measuring {}\n", one.place);
    for (const std::size_t live : one.live) {
      const std::string workload = fmt::format("{}, {} live blocks", one.place, live);
      for (const Contender& contender : one.contenders) {
        for (const char* const metric : {kAny, kNewest}) {
          if (!options.wants(workload, contender.name, metric)) continue;
          const auto allocator = contender.make(live);
          rows.push_back(nanosecond_row(workload, contender.name, metric,
                                        measure(*allocator, live, one.samples, metric == kAny)));
        }
      }
    }
  }
  report(rows, options);
}

}  // namespace
}  // namespace drover::bench

int main(int argc, char** argv) {
  using namespace drover;
  try {
    init(argc, argv);
    bench::run(bench::parse_options(argc, argv, "Allocation and release of memory blocks."));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
