"""Programs that tests run: in processes of their own, with a limit of time, and with nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from pathlib import Path

__all__ = ["Program", "run", "run_tests_of_cpython"]

_MARK = "DROVER_TEST_PROGRAM"
# Ends a run that has gone wrong; says nothing of how fast it must be.
_LIMIT_S = 300.0
_SUITE_LIMIT_S = 600.0


class Program:
    """A Python program that runs, with what it starts. At the end of the `with` nothing of it may be left."""

    def __init__(self, source: str, *arguments: str, from_stdin: bool = False) -> None:
        """Start it, from a file or, if so asked, from standard input."""
        self._folder = tempfile.TemporaryDirectory(prefix="drover_test_")
        self._mark = uuid.uuid4().hex
        path = Path(self._folder.name, "program.py")
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        self._out = path.with_name("out").open("w+b")
        with path.open("rb") if from_stdin else contextlib.nullcontext(subprocess.DEVNULL) as given:
            self._process = subprocess.Popen(
                [sys.executable, "-" if from_stdin else str(path), *arguments],
                stdin=given,
                stdout=self._out,
                stderr=subprocess.STDOUT,
                env={**os.environ, _MARK: self._mark, "PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"},
            )
        self.pid = self._process.pid

    def __enter__(self) -> Program:
        """Use it."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until nothing of it is left, then raise if something stayed."""
        left = self._end_all()
        text = self.output
        self._out.close()
        self._folder.cleanup()
        if kind is None:
            assert not left, f"the program left processes behind: {left}\n{text}"

    @property
    def output(self) -> str:
        """What it, and all it started, have written."""
        return Path(self._out.name).read_text(encoding="utf-8", errors="replace")

    def lines(self) -> list[str]:
        """Give the lines of the output."""
        return self.output.splitlines()

    def wait_for(self, text: str) -> None:
        """Wait until it has written the text."""
        end = time.monotonic() + _LIMIT_S
        while text not in self.output:
            assert self._process.poll() is None, f"it ended without {text!r}:\n{self.output}"
            if time.monotonic() > end:
                self._fail(f"it did not write {text!r}")
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait until it has ended; give its exit status."""
        try:
            return self._process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._fail("it did not end")

    def wait_for_all(self) -> None:
        """Wait until whatever it started has ended too."""
        end = time.monotonic() + _LIMIT_S
        while left := self._members():
            if time.monotonic() > end:
                self._fail(f"these did not end: {left}")
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
                os.kill(pid, signal.SIGABRT)  # each writes its stacks
        time.sleep(1.0)
        raise AssertionError(f"{what}:\n{self.output}")

    def _end_all(self) -> dict[int, str]:
        end = time.monotonic() + 10.0
        while (left := self._members()) and time.monotonic() < end:
            time.sleep(0.02)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        return left


def run(source: str, *arguments: str, from_stdin: bool = False, status: int = 0) -> list[str]:
    """Run a program to its end, which must be of that status; give the lines that it wrote."""
    with Program(source, *arguments, from_stdin=from_stdin) as program:
        ended = program.wait()
        assert ended == status, f"status {ended}:\n{program.output}"
        return program.lines()


def run_tests_of_cpython(runner: str, folder: Path, *names: str) -> tuple[int, str]:
    """Run classes of CPython's tests in a folder where they may leave files; give the status and what was written."""
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
            process.send_signal(signal.SIGABRT)  # it writes the stacks of its threads
            text, _ = process.communicate()
            raise AssertionError(f"it hangs:\n{text}") from None
    return process.returncode, text
