"""The classes of CPython's own multiprocessing tests that run, and the tests left out; see cpython_suite.py."""

from __future__ import annotations

import sys
import unittest

__all__ = ["CLASSES", "LEFT_OUT", "NOT_RUN", "NO_TESTS", "run_suite"]

# The runner's exit status if the interpreter has no test package.
NO_TESTS = 77

# As install_tests_in_module_dict of the test package names them.
CLASSES = (
    "WithProcessesTestProcess",
    "WithProcessesTestSubclassingProcess",
    "WithProcessesTestQueue",
    "WithProcessesTestLock",
    "WithProcessesTestSemaphore",
    "WithProcessesTestCondition",
    "WithProcessesTestEvent",
    "WithProcessesTestBarrier",
    "WithProcessesTestValue",
    "WithProcessesTestArray",
    "WithProcessesTestSharedCTypes",
    "WithProcessesTestPool",
    "WithProcessesTestPoolWorkerErrors",
    "WithProcessesTestPoolWorkerLifetime",
    "WithProcessesTestConnection",
    "WithProcessesTestListener",
    "WithProcessesTestListenerClient",
    "WithProcessesTestPoll",
    "WithProcessesTestPicklingConnections",
    "WithProcessesTestPollEintr",
    "WithProcessesTestSharedMemory",
    "WithProcessesTestManagerRestart",
    "WithProcessesTestLogging",
    "WithManagerTestBarrier",
    "WithManagerTestCondition",
    "WithManagerTestContainers",
    "WithManagerTestEvent",
    "WithManagerTestLock",
    "WithManagerTestManagerRestart",
    "WithManagerTestMyManager",
    "WithManagerTestPool",
    "WithManagerTestQueue",
    "WithManagerTestRemoteManager",
    "WithManagerTestSemaphore",
    "TestSyncManagerTypes",
    "TestCloseFds",
    "TestIgnoreEINTR",
    "MiscTestCase",
    "OtherTest",
    "TestInitializers",
    "TestInvalidFamily",
    "TestInvalidHandle",
    "TestSimpleQueue",
    "TestStdinBadfiledescriptor",
    "TestTimeouts",
    "TestWait",
    *(("TestManagerExceptions", "WithProcessesTestAtExit") if sys.version_info >= (3, 13) else ()),
)

# The other classes, and why they do not run; those of threads, WithThreads..., test a module that drover passes on.
_STANDARD = "tests private parts of the standard library, which drover does not have or uses unchanged"
NOT_RUN = {
    "ChallengeResponseTest": _STANDARD,
    "SemLockTests": _STANDARD,
    "TestFlags": "its programs import multiprocessing themselves",
    "TestForkAwareThreadLock": _STANDARD,
    "TestInternalDecorators": "tests the test package",
    "TestNamedResource": "its program imports multiprocessing itself",
    "TestNoForkBomb": "cpython_main_handling.py runs its program, which succeeds here",
    "TestPoolNotLeakOnFailure": "replaces the private class of a pool's workers",
    "TestResourceTracker": _STANDARD,
    "TestStartMethod": "expects the standard contexts; test_start_methods.py and test_contexts.py have ours",
    "WithProcessesTestFinalize": _STANDARD,
    "WithProcessesTestHeap": _STANDARD,
    "_TestImportStar": "compares names of modules with those of multiprocessing; ours has more",
}

# Tests that are left out, and why.
_RAISES_AT_PUT = "an object that cannot be sent raises in put, in the caller, not later in a thread"
LEFT_OUT = {
    "MiscTestCase.test__all__": "compares the list of names with that of multiprocessing; ours has more",
    "WithProcessesTestQueue.test_queue_feeder_donot_stop_onexc": _RAISES_AT_PUT,
    "WithProcessesTestQueue.test_queue_feeder_on_queue_feeder_error": _RAISES_AT_PUT,
    "WithProcessesTestPoolWorkerErrors.test_unpickleable_result": "its result is a lambda, which can be sent here",
    "WithProcessesTestPoolWorkerLifetime.test_pool_worker_lifetime": "calls a private method that starts workers",
}


class _Counted(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 (unittest's name)
        super().addSuccess(test)
        self.passed += 1


def run_suite(tests: unittest.TestSuite) -> int:
    """Run tests and print how many passed; return the exit status.

    Whether unittest's own number has the skipped tests differs between versions of Python.
    """
    result = unittest.TextTestRunner(verbosity=2, resultclass=_Counted).run(tests)
    print(f"passed {result.passed}", flush=True)
    return 0 if result.wasSuccessful() else 1
