// tests/support/supervisor.hpp: the process above every test run.
#pragma once

namespace drover::test {

/// Exit statuses of the supervisor beyond those of GoogleTest; a signal that ended the tests is 128 + signal.
inline constexpr int kLeftBehind = 123;  ///< the tests passed, but processes or names were left
inline constexpr int kTimedOut = 124;    ///< the tests did not end in time

/// Runs this program again in the role of the runner and returns the exit status for `main`. The supervisor
/// adopts every orphan of the run, ends the run after DROVER_TEST_TIMEOUT seconds (240) with the stacks of all
/// its processes, and fails it if anything outlives it. A signal to end the supervisor ends the run too. It
/// uses nothing of drover that could hang or fail because of what is under test.
int supervise(char** argv);

}  // namespace drover::test
