"""Programs that end while their threads are inside drover."""

from __future__ import annotations

import pytest
from programs import run

ROUNDS = 4
PROGRAM = """
import contextlib, os, signal, sys, threading, time
import drover

def work(thing):
    return thing

class Slow:
    # Takes long to be pickled.
    def __reduce__(self):
        time.sleep(1000)

def repeat(call):
    while True:
        with contextlib.suppress(Exception):
            call()

def lose_session():
    line.put(1)
    os.kill(drover._session.current().keeper_pid, signal.SIGKILL)

def send_what_takes_long():
    started.set()
    pool.map(work, [Slow()])

if __name__ == "__main__":
    line, started = drover.Queue(), threading.Event()
"""
# What threads do, and what the main thread does before it returns.
ENDINGS = {
    "errors": (
        "[lambda: (line.put({}), line.get(timeout=0))] * 4",
        "time.sleep(0.2); lose_session(); time.sleep(0.01)",
    ),
    "objects": ("[lambda: pool.map(work, [{1}] * 100)] * 3", "time.sleep(0.1)"),
    "iterators": ("[lambda: list(pool.imap(work, ({n} for n in range(100))))] * 3", "time.sleep(0.1)"),
    "callbacks": ("[lambda: pool.apply_async(work, (1,), callback=work).wait()] * 3", "time.sleep(0.1)"),
    "long": ("[send_what_takes_long]", "started.wait(); time.sleep(0.1)"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_program_ends_while_its_threads_are_in_drover(ending: str) -> None:
    """They stand still: Python would end them by unwinding them through C++."""
    calls, before = ENDINGS[ending]
    pool = "    pool = drover.Pool(1)\n" if "pool" in calls + before or ending == "long" else ""
    threads = f"    for call in {calls}: threading.Thread(target=repeat, args=(call,), daemon=True).start()\n"
    for _ in range(ROUNDS):
        printed = run(PROGRAM + pool + threads + f"    {before}\n")
        # Errors of a session that was lost may be written, but nothing that aborts.
        assert not [line for line in printed if "terminate" in line or "Fatal" in line or "Critical" in line]
