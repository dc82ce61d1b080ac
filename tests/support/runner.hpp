// tests/support/runner.hpp: the process that runs the tests.
#pragma once

#include <sys/types.h>

namespace drover::test {

/// Environment variable with the supervisor's pid, which makes its child the runner.
inline constexpr const char* kRunnerVariable = "DROVER_TEST_RUNNER_OF";

/// Makes this process die with `parent`: it is killed when the thread that started it ends. Also allows any debugger
/// to attach, to print the stacks of a hang.
void die_with(pid_t parent);

/// Runs the tests with GoogleTest and returns the exit status. A test also fails if it leaves behind a process, an
/// open descriptor, a shared memory name, or anything that a registered check finds. `supervisor` may be 0.
int run_tests(int argc, char** argv, pid_t supervisor);

}  // namespace drover::test
