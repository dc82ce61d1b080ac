// Four workers answer the jobs of a queue. One of them is killed in the middle of a job, and another repeats the job.
#include <csignal>
#include <thread>

#include <fmt/format.h>

#include "drover/drover.hpp"

namespace {

using namespace drover;
constexpr int kJobs = 12;

// The body of a worker. Entries are registered before main, so that every process of this program knows them.
const auto echo = entry("echo", [](Worker& worker) {
  Queue jobs(worker.session(), ObjectHandle::parse(worker.arguments().at(0)));
  Queue answers(worker.session(), ObjectHandle::parse(worker.arguments().at(1)));
  for (Delivery job; jobs.receive(job) == GetResult::got; job.done()) {
    fmt::print(stderr, "job {}{}\n", job.text(), job.is_redelivered() ? ", again" : "");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // hard work
    if (worker.name() == "unlucky") static_cast<void>(std::raise(SIGKILL));
    static_cast<void>(answers.put(fmt::format("{} says {}", worker.name(), job.text())));
  }
});

int run() {
  const Session session = Session::start();
  Queue jobs(session);
  Queue answers(session);
  std::vector<ProcessOptions> options(4);
  for (auto& each : options)
    each = {.entry = echo, .arguments = {jobs.handle().to_string(), answers.handle().to_string()}};
  options.at(1).name = "unlucky";
  auto workers = start_all(session, options);
  for (int i = 0; i < kJobs; ++i) static_cast<void>(jobs.put(std::to_string(i)));
  int count = 0;
  for (Message answer; count < kJobs && answers.get(answer) == GetResult::got; ++count) {
    fmt::print("{}\n", answer.text());
  }
  jobs.close();  // ends the workers' loops
  for (auto& worker : workers) {
    static_cast<void>(worker.wait(Deadline::after(std::chrono::minutes(1))));
    fmt::print("{}\n", worker.describe());
  }
  fmt::print("{} of {} jobs were answered.\n", count, kJobs);
  return count == kJobs ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    init(argc, argv);  // a worker does its work here and never returns
    return run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
