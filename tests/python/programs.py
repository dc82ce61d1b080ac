"""Runs the programs of tests: in processes of their own, with a time limit, and with a check for leftovers."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from pathlib import Path
from typing import Any

__all__ = ["Program", "passed_tests", "run", "run_tests_of_cpython"]

_MARK = "DROVER_TEST_PROGRAM"
# Ends a run that hangs; not a bound on how long a test may take.
_LIMIT_S = 300.0
_SUITE_LIMIT_S = 600.0


class Program:
    """A running Python program with its descendants. At the end of the `with` block, none of them may be left."""

    def __init__(
        self, source: str, *arguments: str, from_stdin: bool = False, start: tuple[str, ...] = (), cwd: Any = None
    ) -> None:
        """Start the program from a file, from standard input, or as arguments of the interpreter say."""
        self._folder = tempfile.TemporaryDirectory(prefix="drover_test_")
        self._mark = uuid.uuid4().hex
        path = Path(self._folder.name, "program.py")
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        self._out = path.with_name("out").open("w+b")
        with path.open("rb") if from_stdin else contextlib.nullcontext(subprocess.DEVNULL) as stdin:
            self._process = subprocess.Popen(
                [sys.executable, *(start or ("-" if from_stdin else str(path),)), *arguments],
                cwd=cwd,
                stdin=stdin,
                stdout=self._out,
                stderr=subprocess.STDOUT,
                env={**os.environ, _MARK: self._mark, "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"},
            )
        self.pid = self._process.pid

    def __enter__(self) -> Program:
        """Return the program."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until all processes have ended; kill those that stay, and raise."""
        left = self._end_all()
        text = self.output
        self._out.close()
        self._folder.cleanup()
        if kind is None:
            assert not left, f"the program left processes behind: {left}\n{text}"

    @property
    def output(self) -> str:
        """The output of the program and its descendants."""
        return Path(self._out.name).read_text(encoding="utf-8", errors="replace")

    def lines(self) -> list[str]:
        """Return the lines of the output."""
        return self.output.splitlines()

    def wait_for(self, text: str) -> None:
        """Wait until the program has written the text."""
        end = time.monotonic() + _LIMIT_S
        while text not in self.output:
            assert self._process.poll() is None, f"the program ended without writing {text!r}:\n{self.output}"
            if time.monotonic() > end:
                self._fail(f"the program did not write {text!r}")
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        """Send a signal to the program."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for the program; return its exit status."""
        try:
            return self._process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._fail("the program did not end")

    def wait_for_all(self, *others: int) -> None:
        """Wait until the descendants of the program have ended, too, but for the processes `others`."""
        end = time.monotonic() + _LIMIT_S
        while left := {pid: line for pid, line in self._members().items() if pid not in others}:
            if time.monotonic() > end:
                self._fail(f"processes did not end: {left}")
            time.sleep(0.05)

    def _members(self) -> dict[int, str]:
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"{_MARK}={self._mark}".encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        return found

    def _fail(self, what: str) -> None:
        for pid in self._members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT)  # faulthandler writes the stacks
        time.sleep(1.0)
        raise AssertionError(f"{what}:\n{self.output}")

    def _end_all(self) -> dict[int, str]:
        end = time.monotonic() + 30.0  # a process may be busy importing torch; an idle template ends after 60 s
        while (left := self._members()) and time.monotonic() < end:
            time.sleep(0.02)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        return left


def run(source: str, *arguments: str, status: int = 0, **options: Any) -> list[str]:
    """Run a program, check its exit status, and return the lines that it wrote; the options are those of Program."""
    with Program(source, *arguments, **options) as program:
        found = program.wait()
        assert found == status, f"exit status {found}:\n{program.output}"
        return program.lines()


def passed_tests(text: str) -> int:
    """Return how many tests of CPython have passed, as their runner has printed."""
    found = re.search(r"^passed (\d+)$", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1])


def run_tests_of_cpython(runner: str, folder: Path, *names: str) -> tuple[int, str]:
    """Run classes of CPython's tests in a directory where they may leave files; return exit status and output."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name(runner)), *names],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            text, _ = process.communicate(timeout=_SUITE_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # faulthandler writes the stacks
            text, _ = process.communicate()
            raise AssertionError(f"the tests hang:\n{text}") from None
    return process.returncode, text
