"""Notebooks: functions of cells, Ctrl-C, and a restarted kernel that finds its arrays."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install ipykernel jupyter_client")
jupyter_client = pytest.importorskip("jupyter_client", reason="jupyter_client is not installed")

LIMIT_S = 90.0
MORE_CELLS = (
    "for _ in pool.imap_unordered(slow, range(2000), 2): pass",
    "list(pool.imap(slow, range(1000), progress=lambda *_: None))",
    "drover.Queue().get()",
)


class Notebook:
    """A real kernel that runs cells."""

    def __init__(self) -> None:
        """Start the kernel."""
        self._manager = jupyter_client.KernelManager()
        self._manager.kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self._manager.start_kernel()
        self._connect()

    def _connect(self) -> None:
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=LIMIT_S)

    def begin(self, cell: str) -> str:
        """Start a cell without waiting for it."""
        return self._client.execute(cell)

    def run(self, cell: str) -> str:
        """Run a cell; return its output and the exception that it raised."""
        return self.end(self.begin(cell))

    def end(self, cell: str, until: str | None = None) -> str:
        """Wait until a cell has ended, or has written a text; return its output."""
        text = ""
        while until is None or until not in text:
            message = self._client.get_iopub_msg(timeout=LIMIT_S)
            if message["parent_header"].get("msg_id") != cell:
                continue
            content: dict[str, Any] = message["content"]
            if message["msg_type"] == "stream" and content["name"] == "stdout":
                text += content["text"]
            elif message["msg_type"] == "error":
                text += f"{content['ename']}: {content['evalue']}"
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                break
        return text.strip()

    def interrupt(self) -> None:
        """Interrupt the kernel, as the stop button does."""
        self._manager.interrupt_kernel()

    def restart(self) -> None:
        """Kill the kernel and start another, as the restart button does."""
        self._client.stop_channels()
        self._manager.restart_kernel(now=True)
        self._connect()

    def close(self) -> None:
        """Shut the kernel down."""
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    """Return a notebook, and close it after the test."""
    made = Notebook()
    yield made
    made.close()


def test_functions_of_cells_run_and_are_interrupted(notebook: Notebook) -> None:
    """Lambdas, functions and classes of cells run in the pool; interrupting a cell leaves the pool usable."""
    notebook.run("import drover, time, os\nfactor = 3\ndef scale(x):\n    return x * factor")
    notebook.run("pool = drover.Pool(2)")
    assert notebook.run("print(pool.map(scale, range(5)), pool.map(lambda x: x + factor, range(3)))") == (
        "[0, 3, 6, 9, 12] [3, 4, 5]"
    )
    notebook.run("factor = 5\ndef slow(x):\n    time.sleep(0.5)\n    return x")
    assert notebook.run("print(pool.map(scale, range(3)))") == "[0, 5, 10]"
    for cell in ("pool.map(slow, range(1000), 1)", "list(pool.imap(slow, range(1000)))", *MORE_CELLS):
        running = notebook.begin(f"print('begun', flush=True)\n{cell}")
        begun = notebook.end(running, until="begun")
        assert begun.startswith("begun")
        time.sleep(0.2)  # lets it get into a wait, though an earlier interrupt would work, too
        notebook.interrupt()
        assert "KeyboardInterrupt" in notebook.end(running), cell
        assert notebook.run("print(pool.map(scale, range(3)))") == "[0, 5, 10]", cell
    notebook.run("class Model:\n    def twice(self, x):\n        return 2 * x\nmodel = pool.actor(Model)")
    assert notebook.run("print(model.twice(4).result())") == "8"
    cell = "queue = drover.Queue()\nqueue.put(7)\nprint(await queue.get_async())"
    assert notebook.run(cell) == "7"
    notebook.run("pool.terminate()")


def test_globals_of_an_initializer_are_seen_by_later_cells(notebook: Notebook) -> None:
    """Until a cell changes them."""
    notebook.run("import drover\nstate, offset = {}, 1\ndef prepare(value):\n    state['value'] = value")
    notebook.run("pool = drover.Pool(1, prepare, (40,))\ndef task(x):\n    return state['value'] + offset + x")
    assert "[41, 42]" in notebook.run("print(pool.map(task, range(2)))")
    assert "[42, 43]" in notebook.run("offset = 2\nprint(pool.map(lambda x: task(x), range(2)))")
    assert "[0, 1]" in notebook.run("state['value'] = -2\nprint(pool.map(task, range(2)))\npool.terminate()")


def test_restarted_kernel_finds_its_arrays(notebook: Notebook) -> None:
    """The named session outlives the killed kernel and its pool, with the memory of the arrays."""
    name = f"notebook-{uuid.uuid4().hex[:8]}"
    notebook.run(f"import drover, numpy, os\nsession = drover.Session({name!r})")
    notebook.run("weights = session.keep('weights', {'w': numpy.arange(100_000.0)})\nweights['w'][0] = 42\n")
    pid, workers = notebook.run(
        "pool = drover.Pool(2)\npool.wait_ready()\nprint(os.getpid(), [w['pid'] for w in pool.workers()])"
    ).split(" ", 1)
    notebook.restart()
    notebook.run(f"import drover, numpy, os, time\nsession = drover.Session({name!r})")
    notebook.run("w = session.recall('weights')['w']")
    assert notebook.run(f"print(os.getpid() != {pid}, w[0], w[1:].sum() == sum(range(100_000)))") == "True 42.0 True"
    notebook.run(f"def left():\n    return [pid for pid in {workers} if os.path.exists(f'/proc/{{pid}}')]")
    notebook.run("end = time.monotonic() + 60\nwhile left() and time.monotonic() < end: time.sleep(0.05)")
    assert notebook.run("print(left())") == "[]"
    assert notebook.run(
        "with drover.Pool(2) as pool:\n    print(pool.map(lambda part: part[0], [w[:9], w[5:]]))"
    ) in (
        "[42.0, 5.0]",
        "[np.float64(42.0), np.float64(5.0)]",
    )
    notebook.run("session.end()")
