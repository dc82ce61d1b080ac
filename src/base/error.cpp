#include "drover/base/error.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace drover {
namespace {

std::string_view file_name(const char* path) {
  const std::string_view whole = path;
  const auto slash = whole.find_last_of('/');
  return slash == std::string_view::npos ? whole : whole.substr(slash + 1);
}

struct Translation {
  Errc code;
  const char* remedy;
};

Translation translate(int error_number) {
  switch (error_number) {
    case ENOMEM:
      return {Errc::out_of_memory,
              "free host memory, ask for less, or raise the memory limit of this container or cgroup"};
    case EMFILE:
      return {Errc::limit_reached, "raise the limit of open files (ulimit -n 65536) before starting the program"};
    case ETOOMANYREFS:
      return {Errc::limit_reached, "too many descriptors are in flight between processes; raise ulimit -n"};
    case ENFILE:
      return {Errc::limit_reached, "the whole machine is out of open files; raise fs.file-max or stop programs"};
    case EAGAIN:
      return {Errc::limit_reached, "a limit on processes, threads or locked memory is reached; see ulimit -a"};
    case ENOSPC: return {Errc::limit_reached, "free space on the file system, or give the program another directory"};
    case EACCES:
    case EPERM:
      return {Errc::permission_denied, "run as the user that owns it, or allow the call in the container's profile"};
    case ENOENT: return {Errc::not_found, "check the name"};
    case EINVAL: return {Errc::invalid_argument, ""};
    case EBUSY: return {Errc::busy, "wait until its holder releases it, or stop the holder"};
    case ENOSYS:
      return {Errc::unsupported, "drover needs Linux 5.10 or newer, and a sandbox that allows its system calls"};
    case EPIPE:
    case ECONNRESET: return {Errc::peer_lost, "the other process has ended; its own output says why"};
    case ECHILD:
      return {Errc::not_found,
              "make sure that no other part of the program waits for all children or ignores SIGCHLD"};
    case ETIMEDOUT: return {Errc::timed_out, ""};
    default: return {Errc::system, ""};
  }
}

}  // namespace

std::string_view to_string(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_argument: return "invalid_argument";
    case Errc::out_of_memory: return "out_of_memory";
    case Errc::device_memory: return "device_memory";
    case Errc::limit_reached: return "limit_reached";
    case Errc::permission_denied: return "permission_denied";
    case Errc::not_found: return "not_found";
    case Errc::busy: return "busy";
    case Errc::unsupported: return "unsupported";
    case Errc::driver_missing: return "driver_missing";
    case Errc::driver_mismatch: return "driver_mismatch";
    case Errc::forked: return "forked";
    case Errc::device_lost: return "device_lost";
    case Errc::device_fault: return "device_fault";
    case Errc::timed_out: return "timed_out";
    case Errc::peer_lost: return "peer_lost";
    case Errc::task_failed: return "task_failed";
    case Errc::cancelled: return "cancelled";
    case Errc::corrupt: return "corrupt";
    case Errc::system: return "system";
    case Errc::internal: return "internal";
  }
  return "unknown";
}

Error::Error(Errc code, std::string message, std::string remedy, std::source_location where)
    : code_(code), message_(std::move(message)), remedy_(std::move(remedy)), where_(where) {
  what_ = fmt::format("{}\n  code: {}", message_, to_string(code_));
  if (!remedy_.empty()) what_ += fmt::format("\n  remedy: {}", remedy_);
  what_ += fmt::format("\n  noticed at {}:{}", file_name(where_.file_name()), where_.line());
}

Error error_from_errno(int error_number, const char* call, const std::string& what, std::source_location where) {
  const auto [code, remedy] = translate(error_number);
  auto text = fmt::format("{} failed for {}: {} (errno {}) in process {}", call, what,
                          std::generic_category().message(error_number), error_number, ::getpid());
  return Error(code, std::move(text), remedy, where);
}

void throw_errno(const char* call, const std::string& what, std::source_location where) {
  throw error_from_errno(errno, call, what, where);
}

void require(bool holds, const char* message, const char* remedy, std::source_location where) {
  if (!holds) throw Error(Errc::invalid_argument, message, remedy, where);
}

}  // namespace drover
