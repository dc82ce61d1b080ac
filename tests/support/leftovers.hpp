// tests/support/leftovers.hpp: what a test may not leave behind.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace drover::test {

/// What surrounds a test: taken before it, compared after it.
struct Surroundings {
  std::map<int, std::string> descriptors;  ///< open file descriptors and what they are open on
  std::set<pid_t> processes;               ///< children, zombies included, and orphans of the whole run
  std::set<std::string> names;             ///< names of shared memory that begin with "drover"
};

/// Looks at this process. `adopter` is the process to which orphans fall (the supervisor), or 0.
[[nodiscard]] Surroundings look_around(pid_t adopter);

/// One line for each thing that is here now and was not `before`, and for each registered check that
/// complains. Processes and names it reports are removed and descriptors are added to `before`, so that the next test
/// is not blamed for them and needs no look of its own. A look costs milliseconds: all of /proc is read.
[[nodiscard]] std::vector<std::string> clear_leftovers(Surroundings& before, pid_t adopter);

/// Adds a check that runs after each test: it returns what was left, or an empty text. For resources that only
/// a part knows, such as those of a device.
void add_leftover_check(std::string name, std::function<std::string()> check);

/// Lets descriptors stay open whose target begins with `prefix`, e.g. "/dev/nvidia", which a driver keeps for
/// the life of the process.
void ignore_descriptors(std::string prefix);

/// This process's open descriptors and what they are open on, as /proc/self/fd shows them.
[[nodiscard]] std::map<int, std::string> open_descriptors();

/// The names that begin with "drover" in the folder of shared memory: what DROVER_TEST_SHM_DIR says, else /dev/shm.
[[nodiscard]] std::set<std::string> shared_memory_names();

/// Removes such a name.
void remove_shared_memory_name(const std::string& name);

}  // namespace drover::test
