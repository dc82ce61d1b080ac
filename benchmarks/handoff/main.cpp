#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <stdexcept>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/device/backend.hpp"
#include "drover/session/process.hpp"
#include "drover/session/worker.hpp"
#include "handoff/workload.hpp"

namespace drover::bench {
namespace {

constexpr std::uint64_t kLargestInPipe = kGiB;

// A named pipe that exists as long as this object.
class NamedPipe {
 public:
  NamedPipe() : path_(std::filesystem::temp_directory_path() / fmt::format("drover-handoff-{}", ::getpid())) {
    if (::mkfifo(path_.c_str(), 0600) != 0) throw std::runtime_error("cannot make a named pipe at " + path_.string());
  }
  NamedPipe(const NamedPipe&) = delete;
  NamedPipe& operator=(const NamedPipe&) = delete;
  ~NamedPipe() { ::unlink(path_.c_str()); }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::vector<Place> places() {
  std::vector<Place> all{Place::cpu()};
  for (const Backend* const backend : available_backends()) all.push_back(Place::device(backend->kind(), 0));
  return all;
}

// A quarter of the free memory, since contenders have copies.
bool fits(const Place& place, std::uint64_t bytes) {
  if (place.is_device) return bytes <= backend_of(place.backend).memory_info(place.index).free / 4;
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES));
  return bytes <= pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) / 4;
}

bool is_gpu(const Place& place) { return place.is_device && place.backend == BackendKind::cuda; }

struct Plan {
  Options options;
  Limits limits;
};

void measure_step(const Step& step, const Options& options, std::vector<Row>& rows) {
  const std::string name = workload_name(step.place, step.bytes);
  if (options.wants(name, "drover", "")) measure_leases(step, rows);
  if (options.wants(name, "drover, a tensor", "")) measure_tensors(step, rows);
  if (options.wants(name, "drover, a tensor", "recall")) measure_recall(step, rows);
  if (is_gpu(step.place) && options.wants(name, "CUDA IPC", "")) measure_cuda_ipc(step, rows);
  if (step.bytes <= kLargestInPipe && options.wants(name, "bytes through a pipe", "")) measure_pipe(step, rows);
}

void measure_at(Session& session, const Place& place, const Plan& plan, std::vector<Row>& rows) {
  const Options& options = plan.options;
  const NamedPipe pipe;
  Lane lane{.to = Queue(session), .back = Queue(session), .pipe = pipe.path()};
  Process worker = Process::start(session, {.entry = reader(),
                                            .arguments = {to_string(place), lane.to.handle().to_string(),
                                                          lane.back.handle().to_string(), lane.pipe},
                                            .name = "reader"});
  static_cast<void>(await(lane.back));
  const auto sizes = options.is_smoke
                         ? std::vector<std::uint64_t>{4 * kKiB, 4 * kMiB}
                         : std::vector<std::uint64_t>{4 * kKiB, 256 * kKiB, 4 * kMiB, 64 * kMiB, kGiB, 8 * kGiB};
  for (const std::uint64_t bytes : sizes) {
    if (!plan.limits.allow(bytes) || !fits(place, bytes)) continue;
    measure_step({.session = session, .lane = lane, .place = place, .bytes = bytes, .is_smoke = options.is_smoke},
                 options, rows);
  }
  lane.to.close();
  static_cast<void>(worker.wait(Deadline::after(std::chrono::seconds(30))));
}

bool wants_uploads(const Place& place, const Plan& plan) {
  const std::uint64_t bytes = plan.options.is_smoke ? kMiB : kGiB;
  return place.is_device && plan.limits.allow(bytes) && fits(place, bytes) && fits(Place::cpu(), bytes) &&
         plan.options.wants(workload_name(place, bytes), "", "host to device");
}

void run(const Plan& plan) {
  Session session = Session::start();
  std::vector<Row> rows;
  const auto all = places();
  for (const Place& place : all) {
    fmt::print(stderr, "measuring {}\n", to_string(place));
    measure_at(session, place, plan, rows);
    if (wants_uploads(place, plan)) measure_uploads(session, place, plan.options.is_smoke, rows);
  }
  if (std::ranges::none_of(all, is_gpu)) fmt::print(stderr, "skipped: CUDA IPC: there is no GPU\n");
  report(rows, plan.options);
}

}  // namespace
}  // namespace drover::bench

int main(int argc, char** argv) {
  using namespace drover;
  try {
    init(argc, argv);
    bench::Plan plan;
    plan.options = bench::parse_options(argc, argv, "Handing memory of one process to another.", &plan.limits);
    bench::run(plan);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
