// The start of workers until they are ready, with and without devices.
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "drover/device/backend.hpp"
#include "drover/ipc/queue.hpp"
#include "drover/pool/pool.hpp"
#include "drover/session/process.hpp"
#include "drover/session/worker.hpp"
#include "pool/workload.hpp"
#include "support/board.hpp"

namespace drover::bench {
namespace {

constexpr std::chrono::minutes kPatience{2};

// Arguments: the queue for its report, and optionally the device to open first.
void open_device(Worker& worker) {
  const auto& arguments = worker.arguments();
  Queue ready(worker.session(), ObjectHandle::parse(arguments.at(0)));
  const Place place = Place::parse(arguments.at(1));
  if (place.is_device) static_cast<void>(backend_of(place.backend).open(place.index));
  static_cast<void>(ready.put("ready"));
}

const Entry the_opener = entry("pool device opener", open_device);

// The first device of the backend that a pool would select.
Place first_device() { return Place::device(select_backend().backend.kind(), 0); }

// Seconds since a time.
double since(std::int64_t begin) { return static_cast<double>(now_ns() - begin) / 1e9; }

double start_pool(std::size_t workers, const Place& place, const Session* session = nullptr) {
  const std::int64_t begin = now_ns();
  Pool pool(session != nullptr ? *session : Session::start(),
            {.workers = workers, .devices = place.is_device ? "all" : "none"});
  if (pool.wait_ready(Deadline::after(kPatience)) != WaitResult::done)
    throw std::runtime_error("the workers of a pool are not ready after two minutes");
  return since(begin);
}

// Sets an environment variable for a scope. No other thread of a benchmark reads the environment.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name); before != nullptr) before_ = before;
    ::setenv(name, value, 1);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// Gives each worker as many of the GPU's queues as a process has by default, which delays the creation of contexts.
double start_pool_with_all_connections(std::size_t workers, const Place& place) {
  const Variable connections("CUDA_DEVICE_MAX_CONNECTIONS", "8");
  const Variable copies("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "4");
  return start_pool(workers, place);
}

// The minimum for workers of a pool: processes of the program that join the session and open the device.
double start_processes(const Session& session, const Place& place, std::size_t count) {
  Queue ready(session);
  const std::int64_t begin = now_ns();
  std::vector<Process> processes;
  for (std::size_t i = 0; i < count; ++i) {
    processes.push_back(Process::start(
        session,
        {.entry = the_opener, .arguments = {ready.handle().to_string(), to_string(place)}, .name = "opener"}));
  }
  Message message;
  for (std::size_t i = 0; i < count; ++i) {
    if (ready.get(message, Deadline::after(kPatience)) != GetResult::got)
      throw std::runtime_error("a process that opens a device does not answer");
  }
  const double seconds = since(begin);
  for (Process& process : processes) static_cast<void>(process.wait(Deadline::after(kPatience)));
  return seconds;
}

// All at once, until the last has ended: the minimum for this number of processes.
double run_trivial_programs(std::size_t count) {
  const std::int64_t begin = now_ns();
  std::vector<pid_t> children(count, -1);
  std::string name = "/bin/true";
  std::array<char*, 2> arguments{name.data(), nullptr};
  for (pid_t& child : children) {
    const int error = ::posix_spawn(&child, name.c_str(), nullptr, nullptr, arguments.data(), nullptr);
    if (error != 0) throw std::system_error(error, std::generic_category(), "posix_spawn of " + name);
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return since(begin);
}

void measure_at(const Place& place, std::size_t workers, const Options& options, std::vector<Row>& rows) {
  const std::string name = fmt::format("{}, {}", workers_text(workers), to_string(place));
  const std::size_t rounds = options.is_smoke ? 1 : 10;
  const auto add = [&](const char* contender, const auto& start) {
    if (!options.wants(name, contender, "ready")) return;
    std::vector<double> seconds;
    for (std::size_t i = 0; i < rounds; ++i) seconds.push_back(start());
    rows.push_back(time_row(name, contender, "ready", seconds));
  };
  add("drover", [&] { return start_pool(workers, place); });
  const Session session = Session::start();
  add("drover, in a session", [&] { return start_pool(workers, place, &session); });
  add(place.is_device ? "processes + contexts" : "processes of a session",
      [&] { return start_processes(session, place, workers); });
  if (place.is_device && place.backend == BackendKind::cuda) {
    add("drover, 8 connections each", [&] { return start_pool_with_all_connections(workers, place); });
  }
  if (!place.is_device) add("posix_spawn of /bin/true", [&] { return run_trivial_programs(workers); });
}

}  // namespace

void measure_start(const Options& options, std::vector<Row>& rows) {
  const auto counts = options.is_smoke ? std::vector<std::size_t>{1, 2} : std::vector<std::size_t>{1, 4, 16};
  for (const Place& place : {Place::cpu(), first_device()}) {
    for (const std::size_t workers : counts) measure_at(place, workers, options, rows);
  }
}

}  // namespace drover::bench
