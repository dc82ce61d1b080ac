#include "driver_probe.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "device_json.hpp"
#include "drover/base/error.hpp"
#include "drover/process/child_process.hpp"

namespace drover::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTimeToDie{3000};
constexpr milliseconds kTimeWithoutInit{10000};

// A memory file, which unlike a pipe never blocks the writer: no reader is needed while we wait.
Fd make_output_file() {
  Fd file(::memfd_create("drover-probe", MFD_CLOEXEC));
  if (!file.is_open()) throw_errno("memfd_create", "the driver's report");
  return file;
}

std::string read_all(const Fd& file) {
  std::string text;
  std::array<char, 4096> part{};
  for (;;) {
    const auto count = ::pread(file.get(), part.data(), part.size(), static_cast<off_t>(text.size()));
    if (count < 0) throw_errno("pread", "the driver's report");
    if (count == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
}

// The report is the last line; a driver may print others before it.
std::string last_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.find_last_of('\n') + 1);
}

// A process that is stuck in the kernel survives SIGKILL, and waiting for it would block us too: it is abandoned, and
// init reaps it.
bool end_or_abandon(std::unique_ptr<ChildProcess> child) {
  child->kill(SIGKILL);
  if (child->wait(Deadline::after(kTimeToDie))) return true;
  [[maybe_unused]] const auto* const abandoned = child.release();
  return false;
}

DriverProbe ask(milliseconds limit, bool initialize) {
  const Fd output = make_output_file();
  SpawnOptions options{.executable = own_executable(), .arguments = {"probe-driver"}};
  options.inherit = {{output.get(), STDOUT_FILENO}};
  if (!initialize) options.arguments.emplace_back("--no-init");
  auto child = std::make_unique<ChildProcess>(ChildProcess::spawn(options));
  const auto pid = child->pid();
  const auto ended = child->wait(Deadline::after(limit));
  if (!ended) {
    const double seconds = static_cast<double>(limit.count()) / 1000.0;
    const bool is_gone = end_or_abandon(std::move(child));
    const auto stuck = is_gone ? "" : fmt::format("; process {} is stuck in the kernel and cannot be killed", pid);
    return {ProbeOutcome::timed_out, fmt::format("within {} s{}", seconds, stuck), {}};
  }
  if (!ended->is_success()) return {ProbeOutcome::died, ended->to_string(), {}};
  return {ProbeOutcome::answered, {}, report_from_json(last_line(read_all(output)))};
}

}  // namespace

DriverProbe probe_driver(milliseconds limit) {
  auto probe = ask(limit, true);
  if (probe.outcome == ProbeOutcome::answered) return probe;
  auto second = ask(std::min(limit, kTimeWithoutInit), false);
  if (second.outcome == ProbeOutcome::answered) {
    probe.detail += " in cuInit";
    probe.report = std::move(second.report);
  }
  return probe;
}

}  // namespace drover::cli
