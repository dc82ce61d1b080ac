#include "pool/plan/mps.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "base/config.hpp"
#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"

namespace drover::pool {
namespace {

constexpr std::size_t kLongestFolder = 80;  // socket paths in it have a limit of 107 bytes
constexpr std::size_t kLongestOutput = 600;
constexpr std::chrono::milliseconds kMpsPause{10};

// $1 the control program, $2 the directory, $3 tenths of a second to quit. Standard input is the pipe from the
// application. The daemon and its server are in the guard's process group, so that the final kill reaches them in any
// state. The guard ends with the daemon; the subshell that reads the pipe goes on until it has cleaned up.
constexpr const char* kGuard = R"script(
exec 3<&0 </dev/null
"$1" -f 3<&- &
daemon=$!
(
  read -r _ <&3
  exec 3<&-
  echo "quit -t 1" | "$1" >/dev/null 2>&1 &
  left=$3
  while [ "$left" -gt 0 ] && kill -0 "$daemon" 2>/dev/null; do
    sleep 0.1
    left=$((left - 1))
  done
  rm -rf "$2"
  kill -KILL 0
) &
exec 3<&-
wait "$daemon"
)script";

std::string find_program(const std::string& name) {
  const auto is_program = [](const std::string& path) { return ::access(path.c_str(), X_OK) == 0; };
  if (name.find('/') != std::string::npos && is_program(name)) return name;
  std::istringstream folders(name.find('/') == std::string::npos ? environment_path("PATH").value_or("") : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const auto path = fmt::format("{}/{}", folder, name);
    if (!folder.empty() && is_program(path)) return path;
  }
  throw Error(Errc::not_found,
              fmt::format("MPS needs the program '{}', which was not found or cannot be executed", name),
              "install the programs of NVIDIA's driver (in containers: NVIDIA_DRIVER_CAPABILITIES=compute,utility), "
              "put their directory in PATH, or do not set `mps`");
}

std::filesystem::path make_folder() {
  std::error_code failed;
  const auto usual = std::filesystem::temp_directory_path(failed);
  const bool is_good = !failed && usual.string().size() < kLongestFolder;
  std::string pattern = ((is_good ? usual : std::filesystem::path("/tmp")) / "drover-mps-XXXXXX").string();
  const char* const made = sys::call("mkdtemp", ::mkdtemp, pattern.data());
  if (made == nullptr || made == sys::failure<const char*>()) {
    throw_errno("mkdtemp", fmt::format("the directory '{}' of an MPS daemon", pattern));
  }
  for (const char* const name : {"pipe", "log"}) {
    const auto path = fmt::format("{}/{}", pattern, name);
    if (sys::call("mkdir", ::mkdir, path.c_str(), mode_t{0700}) == 0) continue;
    const int error = errno;
    std::filesystem::remove_all(pattern, failed);
    errno = error;
    throw_errno("mkdir", fmt::format("the directory '{}' of an MPS daemon", path));
  }
  return pattern;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string text;
  for (const auto& piece : pieces) text += (text.empty() ? "" : ",") + piece;
  return text;
}

// The end of the daemon's output.
std::string output_of(const std::filesystem::path& folder) {
  const std::ifstream file(folder / "output");
  std::ostringstream all;
  all << file.rdbuf();
  std::string text = std::move(all).str();
  while (text.ends_with('\n')) text.pop_back();
  if (text.size() > kLongestOutput) text = "..." + text.substr(text.size() - kLongestOutput);
  return text.empty() ? "it printed nothing" : fmt::format("it printed: {}", text);
}

// A daemon that has written its pid has made its sockets.
bool is_ready(const std::filesystem::path& folder) {
  pid_t daemon = 0;
  std::ifstream(folder / "pipe" / "nvidia-cuda-mps-control.pid") >> daemon;
  return daemon > 0;
}

bool has_ended(int pidfd, Deadline deadline) {
  pollfd watched{.fd = pidfd, .events = POLLIN, .revents = 0};
  return sys::retry("poll", ::poll, &watched, nfds_t{1}, deadline.poll_timeout()) > 0;
}

[[noreturn]] void throw_ended(const std::string& how, const std::string& output) {
  const bool is_other = output.find("already running") != std::string::npos;
  throw Error(is_other ? Errc::busy : Errc::unsupported,
              fmt::format("the MPS daemon {} before it was ready; {}", how, output),
              is_other
                  ? "end the other daemon with `echo quit | nvidia-cuda-mps-control`, or do not set `mps`, to use it"
                  : "check the compute mode (`nvidia-smi -q -d COMPUTE`) and the rights of this container, or do not "
                    "set `mps`");
}

}  // namespace

Mps::Mps(const MpsOptions& options) : owner_(::getpid()), grace_(options.grace) {
  const std::string control = find_program(options.control);
  folder_ = make_folder();
  environment_ = {{"CUDA_MPS_PIPE_DIRECTORY", (folder_ / "pipe").string()},
                  {"CUDA_MPS_LOG_DIRECTORY", (folder_ / "log").string()}};
  try {
    start(options, control);
    await_ready(options);
  } catch (...) {
    end();
    throw;
  }
  if (options.percentage > 0) {
    environment_.emplace_back("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", std::to_string(options.percentage));
  }
}

Mps::~Mps() { end(); }

void Mps::start(const MpsOptions& options, const std::string& control) {
  const auto tenths = std::max<std::chrono::milliseconds::rep>(1, options.grace.count() / 100);
  SpawnOptions guard;
  guard.executable = "/bin/sh";
  guard.arguments = {"-c", kGuard, "drover-mps-guard", control, folder_.string(), std::to_string(tenths)};
  guard.environment = environment_;
  guard.environment.emplace_back("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  if (!options.devices.empty()) guard.environment.emplace_back("CUDA_VISIBLE_DEVICES", joined(options.devices));
  const auto output = StandardStream::file((folder_ / "output").string());
  guard.streams = {.input = StandardStream::pipe(), .output = output, .error = output};
  guard.group = ChildGroup::own_session;
  guard_ = std::make_unique<ChildProcess>(ChildProcess::spawn(guard));
  life_ = guard_->take_pipe(0);
}

void Mps::await_ready(const MpsOptions& options) {
  const auto deadline = Deadline::after(options.patience);
  while (!is_ready(folder_)) {
    if (has_ended(guard_->pidfd(), Deadline::after(kMpsPause))) {
      const auto output = output_of(folder_);
      const auto status = finish();
      throw_ended(status ? status->to_string() : "ended", output);
    }
    if (deadline.has_passed()) {
      throw Error(
          Errc::timed_out,
          fmt::format("the MPS daemon was not ready after {} ms; {}", options.patience.count(), output_of(folder_)),
          "check whether a GPU hangs (`nvidia-smi`), or do not set `mps`");
    }
  }
}

// The guard must not be reaped before its tree is killed, because the tree is found through it.
std::optional<ExitStatus> Mps::finish() {
  if (guard_->kill_tree(Deadline::after(grace_)) == WaitResult::timed_out) {
    log(LogLevel::warn, fmt::format("an MPS daemon in {} did not die when it was killed", folder_.string()));
  }
  const auto status = guard_->wait(Deadline::after(grace_));
  guard_.reset();
  return status;
}

void Mps::end() noexcept {
  if (owner_ != ::getpid()) return;
  life_.reset();
  try {
    if (guard_) {
      static_cast<void>(has_ended(guard_->pidfd(), Deadline::after(grace_)));
      static_cast<void>(finish());
    }
  } catch (const std::exception& error) {
    log(LogLevel::warn, error.what());
  }
  std::error_code failed;
  std::filesystem::remove_all(folder_, failed);
  if (failed) log(LogLevel::warn, fmt::format("cannot remove the directory {} of an MPS daemon", folder_.string()));
}

}  // namespace drover::pool
