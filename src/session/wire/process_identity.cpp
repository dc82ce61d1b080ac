#include "session/wire/process_identity.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>

#include <fmt/format.h>

#include "base/sys.hpp"
#include "drover/base/error.hpp"
#include "drover/base/log.hpp"
#include "drover/process/child_process.hpp"
#include "process/inspect/pidfd.hpp"
#include "session/wire/protocol.hpp"

namespace drover::session {
namespace {

constexpr int kFieldsBetween = 19;  // after the name: state is field 3, start time field 22

}  // namespace

std::optional<std::uint64_t> process_start_time(pid_t pid) {
  const auto path = fmt::format("/proc/{}/stat", pid);
  const auto open = [](const char* name) { return ::open(name, O_RDONLY | O_CLOEXEC); };
  const Fd file(sys::retry("open", open, path.c_str()));
  if (!file.is_open()) {
    if (errno == ENOENT || errno == ESRCH) return std::nullopt;
    throw_errno("open", path);
  }
  std::array<char, 1024> text{};
  const auto length = sys::retry("read", ::read, file.get(), static_cast<void*>(text.data()), text.size());
  if (length < 0) return std::nullopt;  // it ended meanwhile
  return parse_start_time({text.data(), static_cast<std::size_t>(length)});
}

std::optional<std::uint64_t> parse_start_time(std::string_view stat) {
  const auto name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  stat.remove_prefix(name_end + 1);
  for (int field = 0; field <= kFieldsBetween; ++field) {
    const auto space = stat.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    stat.remove_prefix(space + 1);
  }
  std::uint64_t ticks = 0;
  const auto [end, error] = std::from_chars(stat.data(), stat.data() + stat.size(), ticks);
  if (error != std::errc{} || end == stat.data() + stat.size() || *end != ' ') return std::nullopt;
  return ticks;
}

Fd open_pidfd(pid_t pid) {
  Fd pidfd(sys::call("pidfd_open", process::pidfd_open, pid));
  if (pidfd.is_open()) return pidfd;
  if (errno != ESRCH) throw_errno("pidfd_open", fmt::format("process {}", pid));
  throw Error(Errc::peer_lost, fmt::format("process {} ended before it could join the session", pid));
}

bool has_ended(const Fd& pidfd) noexcept { return process::pidfd_has_ended(pidfd.get()); }

void kill_process(const Fd& pidfd) noexcept {
  if (process::pidfd_send_signal(pidfd.get(), SIGKILL) != 0 && errno != ESRCH)
    log(LogLevel::warn, "cannot kill a worker; error", errno);
}

std::string program_name() {
  const std::string path = own_executable();
  std::string name = path.substr(path.find_last_of('/') + 1).substr(0, kMostNameBytes);
  for (char& letter : name) {
    if (!is_display_name(std::string(1, letter))) letter = '?';
  }
  return name;
}

}  // namespace drover::session
