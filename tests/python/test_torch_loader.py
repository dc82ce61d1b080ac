"""torch's DataLoader on drover's context, and SIGCHLD, by which it notices the end of its workers."""

from __future__ import annotations

import pytest
from programs import run


@pytest.mark.parametrize("template", [True, False], ids=["template", "fresh interpreters"])
@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "is killed by signal: Killed."),
        ("os._exit(3)", "exited unexpectedly with exit code 3."),
    ],
    ids=["killed", "exits"],
)
def test_loader_notices_the_end_of_a_worker_by_its_signal(end: str, expected: str, template: bool) -> None:
    """Not when it looks at its workers every five seconds: the cause is the error of torch's signal handler."""
    pytest.importorskip("torch")
    workers = 2 if template else 1  # each fresh interpreter imports torch, which takes a second
    lines = run(f"""
        import os
        import signal
        import drover
        import torch
        from torch.utils.data import DataLoader, Dataset

        drover.use_template({template})

        class Ending(Dataset):
            def __len__(self):
                return 64

            def __getitem__(self, index):
                if index == 13:
                    {end}
                return torch.full((8,), float(index))

        if __name__ == "__main__":
            context = drover.get_context()
            fit = DataLoader(range(8), batch_size=4, num_workers={workers}, multiprocessing_context=context)
            print([batch.sum().item() for batch in fit])
            try:
                list(DataLoader(Ending(), batch_size=8, num_workers=2, multiprocessing_context=context))
            except RuntimeError as error:
                print("=", type(error.__cause__).__name__, error.__cause__)
    """)
    assert "[6, 22]" in lines, lines
    found = next(line for line in lines if line.startswith("="))
    assert found.startswith("= RuntimeError DataLoader worker (pid "), found
    assert expected in found, found


@pytest.mark.parametrize("template", [True, False], ids=["template", "fresh interpreters"])
def test_end_of_a_process_sends_the_signal_that_programs_know(template: bool) -> None:
    """When it comes, the exit code is known. A pool's workers send it, too."""
    lines = run(f"""
        import os
        import signal
        import sys
        import time
        import drover

        codes = []
        children = []

        def note(*_):
            codes.append([child.exitcode for child in children])

        drover.use_template({template})
        signal.signal(signal.SIGCHLD, note)
        children.append(drover.Process(target=sys.exit, args=(7,)))
        children[0].start()
        while [7] not in codes:
            time.sleep(0.01)
        pool = drover.Pool(1)
        pid = pool.apply(os.getpid)
        del codes[:]
        os.kill(pid, signal.SIGKILL)
        while not codes:
            time.sleep(0.01)
        print("noticed")
    """)
    assert "noticed" in lines, lines
