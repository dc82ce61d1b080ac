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
      return {Errc::limit_reached, "too many descriptors are on their way between processes; raise ulimit -n"};
    case ENFILE:
      return {Errc::limit_reached, "the whole machine is out of open files; raise fs.file-max or stop programs"};
    case EAGAIN:
      return {Errc::limit_reached, "a limit on processes, threads or locked memory is reached; see ulimit -a"};
    case ENOSPC: return {Errc::limit_reached, "free space on the file system, or give the program another folder"};
    case EACCES:
    case EPERM:
      return {Errc::permission_denied, "run as the user who owns it, or allow the call in the container's profile"};
    case ENOENT: return {Errc::not_found, "check the name"};
    case EINVAL: return {Errc::invalid_argument, ""};
    case EBUSY: return {Errc::busy, "wait until its holder lets go, or stop the holder"};
    case ENOSYS:
      return {Errc::unsupported, "drover needs Linux 5.10 or newer and a sandbox that passes its calls through"};
    case EPIPE:
    case ECONNRESET: return {Errc::peer_lost, "the other process has ended; its own output says why"};
    case ECHILD: return {Errc::not_found, "let no other part of the program wait for all children or ignore SIGCHLD"};
    case ETIMEDOUT: return {Errc::timed_out, ""};
    default: return {Errc::system, ""};
  }
}

}  // namespace

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
