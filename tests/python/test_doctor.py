"""`drover doctor --pid` on programs that use the package."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from programs import Program

_LIMIT_S = 120.0


def test_lock_that_is_held_elsewhere_names_its_holder() -> None:
    """Pid and name of the process; and none of drover's own processes is suspicious."""
    with Program("""
        import time
        import drover

        def hold(lock, event):
            with lock:
                event.set()
                time.sleep(1000)

        lock, event = drover.Lock(), drover.Event()
        child = drover.Process(target=hold, args=(lock, event), name="the-holder")
        child.start()
        event.wait()
        print("waits", child.pid)
        lock.acquire()
    """) as program:
        program.wait_for("waits")
        holder = program.output.split()[-1]
        command = [sys.executable, "-m", "drover", "doctor", "--pid", str(program.pid), "--no-stacks", "--json"]
        end = time.monotonic() + _LIMIT_S
        while True:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT_S)
            found = json.loads(done.stdout)["processes"]
            notes = [note["summary"] for note in found[0]["findings"] if note["id"] == "drover-wait"]
            if notes or time.monotonic() > end:
                break
        program.signal(9)
    assert notes, found
    assert f"held by process {holder} (the-holder, sleeping)" in notes[0], found
    assert "waiting for drover's lock lock:" in notes[0]
    severities = {finding["severity"] for process in found for finding in process["findings"]}
    assert severities <= {"note", "ok"}, found
