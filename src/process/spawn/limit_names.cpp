#include "process/spawn/limit_names.hpp"

#include <sys/resource.h>

#include <array>
#include <utility>

#include <fmt/format.h>

namespace drover::process {

std::string limit_name(int resource) {
  constexpr std::array<std::pair<int, const char*>, 16> kNames = {{{RLIMIT_AS, "RLIMIT_AS"},
                                                                   {RLIMIT_CORE, "RLIMIT_CORE"},
                                                                   {RLIMIT_CPU, "RLIMIT_CPU"},
                                                                   {RLIMIT_DATA, "RLIMIT_DATA"},
                                                                   {RLIMIT_FSIZE, "RLIMIT_FSIZE"},
                                                                   {RLIMIT_LOCKS, "RLIMIT_LOCKS"},
                                                                   {RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK"},
                                                                   {RLIMIT_MSGQUEUE, "RLIMIT_MSGQUEUE"},
                                                                   {RLIMIT_NICE, "RLIMIT_NICE"},
                                                                   {RLIMIT_NOFILE, "RLIMIT_NOFILE"},
                                                                   {RLIMIT_NPROC, "RLIMIT_NPROC"},
                                                                   {RLIMIT_RSS, "RLIMIT_RSS"},
                                                                   {RLIMIT_RTPRIO, "RLIMIT_RTPRIO"},
                                                                   {RLIMIT_RTTIME, "RLIMIT_RTTIME"},
                                                                   {RLIMIT_SIGPENDING, "RLIMIT_SIGPENDING"},
                                                                   {RLIMIT_STACK, "RLIMIT_STACK"}}};
  for (const auto& [number, name] : kNames) {
    if (number == resource) return name;
  }
  return fmt::format("limit {}", resource);
}

}  // namespace drover::process
