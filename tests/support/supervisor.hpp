// tests/support/supervisor.hpp: the process that supervises a test run.
#pragma once

namespace drover::test {

/// Exit statuses of the supervisor beyond those of GoogleTest; a signal that ended the tests is 128 + signal.
inline constexpr int kLeftBehind = 123;  ///< the tests passed, but left processes or names behind
inline constexpr int kTimedOut = 124;    ///< the tests did not end in time

/// Runs this program again in the role of the runner and returns the exit status for `main`. The supervisor adopts
/// every orphan of the run, ends the run after DROVER_TEST_TIMEOUT seconds (240) with the stacks of all its
/// processes, and fails it if anything outlives it. A signal that ends the supervisor ends the run too. It avoids the
/// parts of drover under test, which could hang or fail.
int supervise(char** argv);

}  // namespace drover::test
