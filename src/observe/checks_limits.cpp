// Checks of the system's limits: shared memory, open files, memory.
#include <algorithm>

#include <fmt/format.h>

#include "drover/base/bytes.hpp"
#include "observe/checks.hpp"

namespace drover::observe {
namespace {

constexpr std::uint64_t kEnoughSharedMemory = kGiB;
constexpr std::uint64_t kEnoughOpenFiles = 4096;
constexpr std::uint64_t kEnoughMemory = 2 * kGiB;

bool is_above(std::uint64_t part, std::uint64_t whole, double percent) {
  return static_cast<double>(part) * 100.0 >= static_cast<double>(whole) * percent;
}

std::uint64_t room(const MemoryLimit& limit) { return limit.limit - std::min(limit.limit, limit.used); }

// A limit at or above the memory of the machine has no effect.
std::optional<MemoryLimit> tightest_limit(const Facts& facts) {
  std::optional<MemoryLimit> tightest;
  for (const auto& limit : facts.memory_limits) {
    if (facts.memory_total != 0 && limit.limit >= facts.memory_total) continue;
    if (!tightest || room(limit) < room(*tightest)) tightest = limit;
  }
  return tightest;
}

}  // namespace

std::optional<Finding> check_shared_memory(const Facts& facts) {
  constexpr auto kId = "shared-memory";
  const char* const remedy =
      facts.is_container
          ? "start the container with a larger one: `docker run --shm-size=8g` (Kubernetes: an emptyDir of "
            "medium Memory at /dev/shm)"
          : "enlarge it with `sudo mount -o remount,size=8G /dev/shm`";
  if (!facts.shared_memory) {
    return warned(kId, "/dev/shm is missing; drover does not need it, but torch and NCCL do", remedy);
  }
  const auto [total, free] = *facts.shared_memory;
  if (total < kEnoughSharedMemory) {
    return warned(
        kId,
        fmt::format("/dev/shm has only {}; drover does not use it, but torch and NCCL do and die with SIGBUS "
                    "when it is full",
                    format_bytes(total)),
        remedy);
  }
  if (is_above(total - std::min(total, free), total, 95)) {
    return warned(kId, fmt::format("/dev/shm is nearly full: {} of {} free", format_bytes(free), format_bytes(total)),
                  "remove files that ended programs left there (`ls -l /dev/shm`), or enlarge it");
  }
  return passed(kId, fmt::format("/dev/shm has {} free of {}", format_bytes(free), format_bytes(total)));
}

std::optional<Finding> check_open_files(const Facts& facts) {
  constexpr auto kId = "open-files";
  const auto& files = facts.open_files;
  if (files.soft_limit == 0) return std::nullopt;
  if (files.hard_limit < kEnoughOpenFiles) {
    return warned(kId, fmt::format("a process may open {} files at most, and cannot raise that", files.hard_limit),
                  facts.is_container ? "start the container with `docker run --ulimit nofile=65536:65536`"
                                     : "raise the hard limit: a line `* hard nofile 65536` in "
                                       "/etc/security/limits.conf, or LimitNOFILE=65536 in the systemd unit");
  }
  if (files.soft_limit < kEnoughOpenFiles) {
    return warned(
        kId, fmt::format("a process may open {} files; many workers with shared memory need more", files.soft_limit),
        fmt::format("run `ulimit -n {}` in the shell that starts the program",
                    std::min<std::uint64_t>(files.hard_limit, 65536)));
  }
  if (is_above(files.in_use, files.soft_limit, 80)) {
    return warned(kId, fmt::format("{} of {} files are open already", files.in_use, files.soft_limit),
                  "close the files that the starting program leaves open, or raise the limit with `ulimit -n`");
  }
  return passed(kId, fmt::format("a process may open {} files", files.soft_limit));
}

std::optional<Finding> check_memory_limit(const Facts& facts) {
  constexpr auto kId = "memory-limit";
  const auto limit = tightest_limit(facts);
  if (!limit) return passed(kId, "no memory limit below the machine's own");
  const auto numbers =
      fmt::format("{} of {} used in cgroup {}", format_bytes(limit->used), format_bytes(limit->limit), limit->cgroup);
  const char* const remedy =
      facts.is_container ? "raise the container's limit (`docker run --memory`; Kubernetes: limits.memory), or "
                           "start fewer workers; shared memory counts too"
                         : "raise the cgroup's limit (systemd: MemoryMax=), ask the batch system for more, or "
                           "start fewer workers; shared memory counts too";
  if (is_above(limit->used, limit->limit, 90)) {
    return warned(kId,
                  fmt::format("the memory limit is nearly reached, after which processes are killed: {}", numbers),
                  remedy);
  }
  if (limit->limit < kEnoughMemory) return warned(kId, fmt::format("the memory limit is low: {}", numbers), remedy);
  return passed(kId, fmt::format("memory is limited: {}", numbers));
}

std::optional<Finding> check_overcommit(const Facts& facts) {
  constexpr auto kId = "overcommit";
  if (!facts.overcommit_memory) return std::nullopt;
  if (*facts.overcommit_memory != 2) {
    return passed(
        kId, fmt::format("address space can be overcommitted (vm.overcommit_memory={})", *facts.overcommit_memory));
  }
  return warned(
      kId, "vm.overcommit_memory=2 counts reserved address space as used; CUDA and emulated devices reserve much",
      "allow it with `sudo sysctl vm.overcommit_memory=0`, or raise vm.overcommit_ratio");
}

}  // namespace drover::observe
