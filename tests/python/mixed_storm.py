"""Kills, stops and continues processes of a program that uses everything at once, for some time.

    python tests/python/mixed_storm.py [--minutes 60] [--seed N] [--limit 10] [--longest-life 30]

Each life of the program (mixed_load.py) is disturbed at random: workers, children, templates and managers are killed,
any process is stopped for up to a second. At its end the keeper, the program, or both at once are killed, or it is
asked to finish. Meanwhile each kind of work must complete a round every `limit` seconds, with right results; after
each life no process may be left.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

MARK = "DROVER_STORM"
LOST = 4  # the exit status of a program whose session was lost
KINDS = ("map", "futures", "messages", "locked", "processes", "managed")
ENDINGS = ("keeper", "program", "both", "finish")
# How often a process of each role is the one to be killed, relative to the others.
WEIGHTS = {"worker": 6, "child": 6, "template": 1}
LONGEST_STOP_S = 1.0
STOPS = 0.2  # the share of stops among the disturbances
PAUSE_S = 0.4  # the longest time between two disturbances


class Program:
    """One life of the program, with its descendants."""

    def __init__(self, seed: int, folder: Path) -> None:
        """Start it; it has as long as a round may take until its first round is complete."""
        self.errors = folder / "errors"
        self._mark = uuid.uuid4().hex
        self._beats = dict.fromkeys(KINDS, time.monotonic())
        self.rounds: collections.Counter[str] = collections.Counter()
        self.last_line = ""
        with self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("mixed_load.py")), str(seed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, MARK: self._mark, "PYTHONFAULTHANDLER": "1"},
                text=True,
            )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            word, _, kind = line.strip().partition(" ")
            if word == "beat":
                self._beats[kind] = time.monotonic()
                self.rounds[kind] += 1
            else:
                self.last_line = line.strip()

    def members(self) -> dict[int, str]:
        """Return all processes of the program, with the role of each."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"{MARK}={self._mark}".encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = self._role(int(folder.name), (folder / "cmdline").read_text())
        return found

    def _role(self, pid: int, command: str) -> str:
        if pid == self.pid:
            return "program"
        roles = {
            "--drover-role=keeper": "keeper",
            "--drover-role=worker": "worker",
            "_template_main": "template",
            "resource_tracker": "tracker",  # multiprocessing's own
        }
        return next((role for text, role in roles.items() if text in command), "child")

    def delay(self, since: float) -> tuple[float, str]:
        """Return the longest time without a round, and its kind; waits before `since` do not count."""
        kind = min(self._beats, key=lambda one: self._beats[one])
        return time.monotonic() - max(since, self._beats[kind]), kind

    def wait_for_round(self, limit: float) -> None:
        """Wait until some round is complete, or the program has ended."""
        end = time.monotonic() + limit
        while not self.rounds and self.status is None:
            assert time.monotonic() < end, f"no round of any kind was completed within {limit:.3g} s"
            time.sleep(0.01)

    def finish(self) -> None:
        """Ask the program to complete its rounds and end."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    def wait(self, limit: float) -> int:
        """Wait until all processes have ended; return the exit status."""
        end = time.monotonic() + limit
        while (left := self.members()) or self.status is None:
            if time.monotonic() > end:
                raise AssertionError(f"{limit:.0f} s after the end of the program, processes are left: {left}")
            time.sleep(0.05)
        self._reader.join()
        return self._process.wait()

    def destroy(self) -> str:
        """Let all processes write their stacks and end; return what they wrote."""
        for number in (signal.SIGCONT, signal.SIGABRT, signal.SIGKILL):
            for pid in self.members():
                send(pid, number)
            time.sleep(1.0)
        self._process.wait()
        return self.errors.read_text(encoding="utf-8", errors="replace")


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Storm:
    """Disturbs one program after the other."""

    def __init__(self, seed: int, limit: float, longest_life: float) -> None:
        """Take the seed of all that is random, and how long a round and a life may take."""
        self.numbers = random.Random(seed)
        self.limit = limit
        self.longest_life = longest_life
        self.counts: collections.Counter[str] = collections.Counter()
        self.rounds: collections.Counter[str] = collections.Counter()
        self.longest_delay = 0.0

    def live(self, ending: str) -> None:
        """Run a program, disturb it for a while, and end it."""
        with tempfile.TemporaryDirectory(prefix="drover_storm_") as folder:
            program = Program(self.numbers.randrange(1 << 31), Path(folder))
            try:
                self._disturb(program)
                self._end(program, ending)
            except BaseException:
                print(program.destroy(), file=sys.stderr)
                raise
            self.rounds += program.rounds
            self.counts[f"ended by {ending}"] += 1

    def _disturb(self, program: Program) -> None:
        program.wait_for_round(self.limit)  # before, a process may be about to become the keeper
        end = time.monotonic() + self.numbers.uniform(0.0, self.longest_life)
        undisturbed = 0.0
        while time.monotonic() < end:
            time.sleep(self.numbers.uniform(0.0, PAUSE_S))
            assert program.status is None, f"the program ended by itself, with status {program.status}"
            if self.numbers.random() < STOPS:
                self._stop(program)
                undisturbed = time.monotonic()
            else:
                self._kill(program)
            delay, kind = program.delay(undisturbed)
            self.longest_delay = max(self.longest_delay, delay)
            assert delay < self.limit, f"no round of {kind!r} was completed within {delay:.1f} s"

    def _stop(self, program: Program) -> None:
        pid, role = self.numbers.choice(sorted(program.members().items()))
        send(pid, signal.SIGSTOP)
        time.sleep(self.numbers.uniform(0.0, LONGEST_STOP_S))
        send(pid, signal.SIGCONT)
        self.counts[f"{role} stopped"] += 1

    def _kill(self, program: Program) -> None:
        victims = [(pid, role) for pid, role in sorted(program.members().items()) if role in WEIGHTS]
        if victims:
            pid, role = self.numbers.choices(victims, [WEIGHTS[role] for _, role in victims])[0]
            send(pid, signal.SIGKILL)
            self.counts[f"{role} killed"] += 1

    def _end(self, program: Program, ending: str) -> None:
        if ending == "finish":
            program.finish()
            victims = []
        else:
            roles = {"both": ("keeper", "program")}.get(ending, (ending,))
            victims = [pid for pid, role in program.members().items() if role in roles]
        for pid in victims:
            send(pid, signal.SIGKILL)
        status = program.wait(3 * self.limit if ending == "finish" else self.limit)
        expected = {"finish": 0, "keeper": LOST}.get(ending, -signal.SIGKILL)
        assert status == expected, f"after {ending!r}: status {status}, last line {program.last_line!r}"

    def __str__(self) -> str:
        """Return what was done, and the longest time that a round took."""
        done = {name: self.counts[name] for name in sorted(self.counts)}
        return f"{done}; rounds {dict(self.rounds)}; longest delay {self.longest_delay:.1f} s"


def main() -> None:
    """Run lives of programs until the time is over, each ending at least once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="0: a new one")
    parser.add_argument("--limit", type=float, default=10.0, help="seconds within which each round must be complete")
    parser.add_argument("--longest-life", type=float, default=30.0, help="seconds that a program is disturbed")
    parser.add_argument("--endings", nargs="+", choices=ENDINGS, default=ENDINGS, help="how programs end, in turn")
    options = parser.parse_args()
    seed = options.seed or random.SystemRandom().randrange(1, 1 << 31)
    storm = Storm(seed, options.limit, options.longest_life)
    print(f"mixed storm with seed {seed}", flush=True)
    end = time.monotonic() + 60.0 * options.minutes
    number = 0
    while time.monotonic() < end or number < len(options.endings):
        storm.live(options.endings[number % len(options.endings)])
        number += 1
        if number % len(options.endings) == 0:
            print(storm, flush=True)


if __name__ == "__main__":
    main()
