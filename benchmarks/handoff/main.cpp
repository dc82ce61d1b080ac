#include <sys/stat.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <stdexcept>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "drover/device/select.hpp"
#include "drover/session/init.hpp"
#include "drover/session/process.hpp"
#include "handoff/workload.hpp"

namespace drover::bench {
namespace {

constexpr std::uint64_t kLargestInPipe = kGiB;

// A named pipe that goes with this object.
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

// A quarter of what is free, since contenders have copies.
bool fits(const Place& place, std::uint64_t bytes) {
  if (place.is_device) return bytes <= backend_of(place.backend).memory_info(place.index).free / 4;
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES));
  return bytes <= pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) / 4;
}

void measure_at(Session& session, const Place& place, const Options& options, std::vector<Row>& rows) {
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
    if (!fits(place, bytes)) continue;
    const Step step{.session = session, .lane = lane, .place = place, .bytes = bytes, .is_smoke = options.is_smoke};
    const std::string name = workload_name(place, bytes);
    if (options.wants(name, "drover", "")) measure_leases(step, rows);
    if (bytes <= kLargestInPipe && options.wants(name, "bytes through a pipe", "")) measure_pipe(step, rows);
  }
  lane.to.close();
  static_cast<void>(worker.wait(Deadline::after(std::chrono::seconds(30))));
}

void run(const Options& options) {
  Session session = Session::start();
  std::vector<Row> rows;
  for (const Place& place : places()) {
    fmt::print(stderr, "measuring {}\n", to_string(place));
    measure_at(session, place, options, rows);
  }
  report(rows, options);
}

}  // namespace
}  // namespace drover::bench

int main(int argc, char** argv) {
  using namespace drover;
  try {
    init(argc, argv);
    bench::run(bench::parse_options(argc, argv, "Memory of one process in the hands of another."));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
