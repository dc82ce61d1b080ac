// process/spawn/thread_place.hpp: what a child inherits from the thread that starts it.
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

namespace drover::process {

/// CPU affinity and niceness of a thread.
struct ThreadPlace {
  std::vector<int> cpus;
  int niceness = 0;
};

/// The place of the calling thread.
[[nodiscard]] inline ThreadPlace place_of_this_thread() {
  constexpr std::size_t kWidth = 8 * sizeof(unsigned long);
  std::vector<unsigned long> bits(1024);  // more CPUs than any kernel supports
  ThreadPlace place{.cpus = {}, .niceness = ::getpriority(PRIO_PROCESS, 0)};
  const auto bytes = ::syscall(SYS_sched_getaffinity, 0, bits.size() * sizeof(unsigned long), bits.data());
  for (std::size_t cpu = 0; bytes > 0 && cpu < 8 * static_cast<std::size_t>(bytes); ++cpu) {
    if ((bits[cpu / kWidth] >> (cpu % kWidth) & 1U) != 0) place.cpus.push_back(static_cast<int>(cpu));
  }
  return place;
}

}  // namespace drover::process
