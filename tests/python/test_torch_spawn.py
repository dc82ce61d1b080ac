"""torch.multiprocessing.spawn on drover's processes."""

from __future__ import annotations

import signal

import pytest
from programs import Program, run

pytest.importorskip("torch")

PROGRAM = """
    import os, signal, sys, time
    import torch
    import drover, drover.torch

    def add(index, tensor, *more):
        tensor[index] = index + 1

    def fail(index, failing, pids):
        pids[index] = os.getpid()
        if index == failing:
            raise ValueError("this one fails")
        time.sleep(60)

    def die(index, how):
        if index == 1:
            how()
        time.sleep(60)

    def kill():
        os.kill(os.getpid(), signal.SIGKILL)

    def leave():
        sys.exit(3)

    def wait(index, pids):
        pids[index] = os.getpid()
        time.sleep(60)

    def is_alive(pid):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
"""


def test_all_processes_run() -> None:
    """One or several, with their index; nothing is returned."""
    text = run(
        PROGRAM
        + """
    if __name__ == "__main__":
        for count in (1, 3):
            tensor = drover.torch.zeros(count)
            assert drover.torch.spawn(add, (tensor, "more"), nprocs=count, daemon=count == 3) is None
            print(tensor.tolist())
    """
    )
    assert text == ["[1.0]", "[1.0, 2.0, 3.0]"]


def test_context_is_that_of_torch() -> None:
    """With join=False: its processes, their pids, a join with a timeout."""
    text = run(
        PROGRAM
        + """
    if __name__ == "__main__":
        tensor = drover.torch.zeros(2)
        context = drover.torch.spawn(add, (tensor,), nprocs=2, join=False)
        assert isinstance(context, torch.multiprocessing.ProcessContext)
        assert context.pids() == [process.pid for process in context.processes]
        while not context.join(timeout=30):
            pass
        print(tensor.tolist(), context.join())
        pids = drover.torch.zeros(1, dtype=torch.int64)
        context = drover.torch.spawn(wait, (pids,), join=False)
        print(context.join(timeout=0.01))
        context.processes[0].kill()
        try:
            context.join()
        except torch.multiprocessing.ProcessExitedException as error:
            print(error)
    """
    )
    assert text == ["[1.0, 2.0] True", "False", "process 0 terminated with signal SIGKILL"]


def test_exception_ends_the_others() -> None:
    """It is torch's, with the traceback, and nothing is left behind."""
    text = run(
        PROGRAM
        + """
    if __name__ == "__main__":
        import tempfile
        before = {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("pytorch-errorfile")}
        pids = drover.torch.zeros(3, dtype=torch.int64)
        try:
            drover.torch.spawn(fail, (1, pids), nprocs=3)
        except torch.multiprocessing.ProcessRaisedException as error:
            print("ValueError: this one fails" in str(error), "in fail" in str(error), error.error_index)
            print(error.error_pid == pids[1].item())
        print([pid for pid in pids.tolist() if pid and is_alive(pid)])
        after = {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("pytorch-errorfile")}
        print(after <= before)
    """
    )
    assert [line for line in text if "Terminating process" not in line] == ["True True 1", "True", "[]", "True"]


@pytest.mark.parametrize(
    ("how", "message"), [("kill", "terminated with signal SIGKILL"), ("leave", "terminated with exit code 3")]
)
def test_exit_of_one_ends_the_others(how: str, message: str) -> None:
    """Killed, or by sys.exit."""
    text = run(
        PROGRAM
        + f"""
    if __name__ == "__main__":
        try:
            drover.torch.spawn(die, ({how},), nprocs=3)
        except torch.multiprocessing.ProcessExitedException as error:
            print(error, error.exit_code)
    """
    )
    assert f"process 1 {message}" in text[-1]


def test_interrupt_ends_all() -> None:
    """The parent alone gets the signal, and raises KeyboardInterrupt when the others have ended."""
    with Program(
        PROGRAM
        + """
    if __name__ == "__main__":
        pids = drover.torch.zeros(2, dtype=torch.int64)
        import threading
        def report():
            while not pids.all():
                time.sleep(0.01)
            print("running")
        threading.Thread(target=report, daemon=True).start()
        try:
            drover.torch.spawn(wait, (pids,), nprocs=2)
        except KeyboardInterrupt:
            print("interrupted", [pid for pid in pids.tolist() if is_alive(pid)])
    """
    ) as program:
        program.wait_for("running")
        program.signal(signal.SIGINT)
        assert program.wait() == 0
        assert program.lines()[-1] == "interrupted []"


def test_processes_end_with_the_one_that_spawned_them() -> None:
    """Even if it is killed while the session goes on."""
    text = run(
        PROGRAM
        + """
    def nest(pids):
        context = drover.torch.spawn(wait, (pids,), nprocs=2, join=False)
        while not pids.all():
            time.sleep(0.01)
        kill()

    if __name__ == "__main__":
        pids = drover.torch.zeros(2, dtype=torch.int64)
        parent = drover.Process(target=nest, args=(pids,))
        parent.start()
        parent.join()
        until = time.monotonic() + 30.0
        while any(is_alive(pid) for pid in pids.tolist()) and time.monotonic() < until:
            time.sleep(0.05)
        print(parent.exitcode, [pid for pid in pids.tolist() if is_alive(pid)])
    """
    )
    assert text == ["-9 []"]
