// tests/support/runner.hpp: the process that runs the tests.
#pragma once

#include <sys/types.h>

namespace drover::test {

/// Environment variable by which the supervisor makes its child the runner: the supervisor's pid.
inline constexpr const char* kRunnerVariable = "DROVER_TEST_RUNNER_OF";

/// Ties this process to the life of `parent`: it is killed when the thread that started it ends. Also lets any
/// debugger attach, so that the stacks of a hang can be had.
void die_with(pid_t parent);

/// Runs the tests with GoogleTest and returns the exit status. Each test also fails if it leaves a process, an
/// open descriptor, a name of shared memory, or what a registered check finds. `supervisor` is 0 without one.
int run_tests(int argc, char** argv, pid_t supervisor);

}  // namespace drover::test
