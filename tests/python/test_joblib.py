"""The joblib backend: results, errors, deaths, nesting, generators, and reuse of workers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs import run

pytest.importorskip("joblib", reason="joblib is not installed: `make setup` installs it")

SUITE_LIMIT_S = 900.0  # ends a run that hangs


def test_tests_of_joblib_pass_with_drover_in_place_of_its_process_backends(tmp_path: Path) -> None:
    """All of joblib's test_parallel.py, except for what joblib_on_drover.py names with reasons."""
    options = ("-p", "joblib_on_drover", "-p", "no:cacheprovider", "-q", "--pyargs", "joblib.test.test_parallel")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}{os.pathsep}{Path(__file__).parent}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SUITE_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) >= 300, done.stdout


def test_task_that_cannot_be_sent_raises_the_error_of_joblib() -> None:
    """A PicklingError that was caused by the error of the object."""
    lines = run("""
        import pickle
        import drover.joblib
        import joblib

        class Unsendable:
            def __reduce__(self):
                raise RuntimeError("not this one")

        try:
            joblib.Parallel(n_jobs=2, backend="drover")(joblib.delayed(id)(Unsendable()) for _ in range(3))
        except pickle.PicklingError as error:
            print(error)
            print(repr(error.__cause__))
    """)
    assert lines == [
        "cannot pickle the task to send to a worker: RuntimeError('not this one')",
        "RuntimeError('not this one')",
    ]


def test_kept_workers_are_not_used_with_another_number_of_threads() -> None:
    """The user's variables of numerical libraries apply to the next call."""
    lines = run("""
        import os
        import drover.joblib
        import joblib

        def threads():
            return [joblib.Parallel(n_jobs=2, backend="drover")(
                joblib.delayed(os.environ.get)("OMP_NUM_THREADS") for _ in range(2))]

        os.environ["OMP_NUM_THREADS"] = "3"
        print(threads())
        os.environ["OMP_NUM_THREADS"] = "5"
        print(threads())
    """)
    assert lines == ["[['3', '3']]", "[['5', '5']]"]


@pytest.mark.parametrize("imports", ["joblib, drover", "drover, joblib"])
def test_backend_is_registered_whichever_is_imported_first(imports: str) -> None:
    """Without a call by the program; drover does not import joblib by itself."""
    lines = run(f"""
        import sys
        {"import drover; print('joblib' in sys.modules)" if imports.startswith("drover") else "print(False)"}
        import {imports}

        def square(x):
            return x * x

        with joblib.parallel_config(backend="drover", n_jobs=2):
            print(joblib.Parallel()(joblib.delayed(square)(x) for x in range(5)))
        module = joblib.parallel
        print(module.__spec__.loader is module.__loader__, type(module.__loader__).__name__)
    """)
    assert lines == ["False", "[0, 1, 4, 9, 16]", "True SourceFileLoader"]


def test_joblib_can_be_imported_when_the_backend_cannot() -> None:
    """For example an old joblib: the program goes on, and an explicit import of the backend raises ImportError."""
    lines = run("""
        import sys
        import drover

        sys.modules["drover.joblib"] = None  # an import of it raises ImportError
        import joblib

        print(joblib.Parallel(n_jobs=1)([joblib.delayed(abs)(-1)]), "drover" in joblib.parallel.BACKENDS)
        try:
            import drover.joblib
        except ImportError:
            print("ImportError")
    """)
    assert lines == ["[1] False", "ImportError"]


def test_workers_are_reused() -> None:
    """A second call with the same options runs in the same workers; other options start new ones."""
    lines = run("""
        import os
        import drover
        import joblib

        def who(_):
            return drover.this_worker().name, os.getpid()

        def pids(n_jobs, **options):
            with joblib.parallel_config(backend="drover", **options):
                names = joblib.Parallel(n_jobs=n_jobs, pre_dispatch="all", batch_size=1)(
                    joblib.delayed(who)(x) for x in range(40))
            assert {name for name, _ in names} <= {f"worker-{n}" for n in range(8)}
            return {pid for _, pid in names}

        first = pids(2)
        print(os.getpid() in first, len(first) <= 2, len(first | pids(2)) <= 2)
        print(first & pids(3), first & pids(2, retry=1))
        with joblib.parallel_config(backend="drover"):
            print(joblib.effective_n_jobs(-1) == joblib.cpu_count(), joblib.effective_n_jobs(3))
            with joblib.Parallel(n_jobs=2) as parallel:
                calls = [set(parallel(joblib.delayed(os.getpid)() for _ in range(20))) for _ in range(2)]
        print(len(calls[0] | calls[1]) <= 2)
    """)
    assert lines == ["False True True", "set() set()", "True 3", "True"]


def test_exceptions_and_deaths_end_the_call() -> None:
    """With the exception of the call, or PeerLost for a killed worker; the next call works."""
    lines = run("""
        import os, signal
        import drover
        import joblib

        def fails(x):
            if x == 7:
                raise KeyError("seven")
            return x

        def dies(x):
            if x == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return x

        def dies_once(x, path):
            if x == 3 and not os.path.exists(path):
                open(path, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            return x

        for way in ({}, {"return_as": "generator"}):
            with joblib.parallel_config(backend="drover", n_jobs=2):
                for function in (fails, dies, fails):
                    try:
                        list(joblib.Parallel(**way)(joblib.delayed(function)(x) for x in range(20)))
                    except KeyError as error:
                        print(error, "fails" in str(error.__cause__))
                    except drover.PeerLost as error:
                        print("SIGKILL" in str(error), "'dies'" in str(error))
                print(sum(joblib.Parallel()(joblib.delayed(abs)(x) for x in range(10))))
        path = __file__ + ".died"
        with joblib.parallel_config(backend="drover", n_jobs=2, retry=2):
            print(sum(joblib.Parallel()(joblib.delayed(dies_once)(x, path) for x in range(10))), os.path.exists(path))
    """)
    printed = [line for line in lines if "drover[" not in line]
    assert printed == ["'seven' True", "True True", "'seven' True", "45"] * 2 + ["45 True"]


def test_generators_yield_results_as_they_come() -> None:
    """In order, or unordered; a dropped generator ends its call."""
    lines = run("""
        import time
        import drover
        import joblib

        def slow_first(x):
            time.sleep(0.5 if x == 0 else 0.0)
            return x

        with joblib.parallel_config(backend="drover", n_jobs=2):
            calls = [joblib.delayed(slow_first)(x) for x in range(10)]
            ordered = joblib.Parallel(return_as="generator", batch_size=1)(calls)
            print(next(ordered), list(ordered))
            unordered = list(joblib.Parallel(return_as="generator_unordered", batch_size=1)(calls))
            print(unordered[0] != 0, sorted(unordered))
            dropped = joblib.Parallel(return_as="generator", batch_size=1)(calls)
            print(next(dropped))
            del dropped
            try:
                joblib.Parallel(timeout=0.2)([joblib.delayed(time.sleep)(30)] * 2)
            except drover.TimeoutError:
                print("too late")
            print(joblib.Parallel()(calls) == list(range(10)))
    """)
    wanted = ["0 [1, 2, 3, 4, 5, 6, 7, 8, 9]", "True [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", "0", "too late", "True"]
    assert [line for line in lines if "drover[" not in line and "Warning" not in line and line[:1] != " "] == wanted


def test_nested_calls_start_no_processes() -> None:
    """They use threads by default, and run sequentially with the drover backend."""
    lines = run("""
        import os, threading
        import drover
        import joblib
        import numpy

        def inner(x):
            return os.getpid(), x

        def outer(x, **options):
            got = joblib.Parallel(n_jobs=2, **options)(joblib.delayed(inner)(y) for y in range(3))
            return {pid for pid, _ in got} == {os.getpid()} and [y for _, y in got] == [0, 1, 2]

        with joblib.parallel_config(backend="drover", n_jobs=2):
            print(joblib.Parallel()(joblib.delayed(outer)(x) for x in range(4)))
            print(joblib.Parallel()(joblib.delayed(outer)(x, backend="drover") for x in range(4)))
            large = numpy.arange(1_000_000)
            print(joblib.Parallel()(joblib.delayed(numpy.sum)(part) for part in numpy.split(large, 4)) ==
                  [part.sum() for part in numpy.split(large, 4)])
            print(joblib.Parallel(n_jobs=1)(joblib.delayed(os.getpid)() for _ in range(2)) == [os.getpid()] * 2)
    """)
    assert lines == ["[True, True, True, True]"] * 2 + ["True", "True"]
