// tests/support/leftovers.hpp: finds processes, descriptors and names that a test left behind.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace drover::test {

/// The surroundings of a test, recorded before it and compared after it.
struct Surroundings {
  std::map<int, std::string> descriptors;  ///< open file descriptors and their targets
  std::set<pid_t> processes;               ///< children, including zombies, and orphans of the whole run
  std::set<std::string> names;             ///< shared memory names that begin with "drover"
};

/// Records the surroundings. `adopter` is the process that adopts orphans (the supervisor), or 0.
[[nodiscard]] Surroundings look_around(pid_t adopter);

/// One line for everything that exists now but not in `before`, and for each registered check that complains. Removes
/// the processes and names it reports and adds the descriptors to `before`, so that they do not fail the next test,
/// which can reuse `before`. Costs milliseconds, because it reads all of /proc.
[[nodiscard]] std::vector<std::string> clear_leftovers(Surroundings& before, pid_t adopter);

/// Adds a check that runs after each test and returns what was left behind, or an empty text. For resources known to
/// one part only, such as those of a device.
void add_leftover_check(std::string name, std::function<std::string()> check);

/// Ignores descriptors whose target begins with `prefix`, e.g. "/dev/nvidia", which a driver keeps open.
void ignore_descriptors(std::string prefix);

/// The open descriptors of this process and their targets, from /proc/self/fd.
[[nodiscard]] std::map<int, std::string> open_descriptors();

/// The names that begin with "drover" in the shared memory directory: DROVER_TEST_SHM_DIR, or /dev/shm.
[[nodiscard]] std::set<std::string> shared_memory_names();

/// Removes such a name.
void remove_shared_memory_name(const std::string& name);

}  // namespace drover::test
