"""What another user of the machine can reach of a session: nothing. Run as root, who can become another user."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import drover
import pytest
from drover import _core, _descriptors
from programs import Program, run

_NOBODY = 65534
_PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable


def run_as_nobody(source: str, *arguments: str) -> str:
    """Run a program of the standard library alone as another user; return what it prints."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    done = subprocess.run(
        [_PYTHON, "-I", "-c", source, *arguments],
        user=_NOBODY,
        group=_NOBODY,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# Prints what it can do with a path: list it, connect to it.
_TRY = """
import errno, os, socket, sys
for path in sys.argv[1:]:
    try:
        if os.path.isdir(path):
            print(os.listdir(path))
            continue
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.connect(path)
        print("connected")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""

_KILL = """
import os, sys
try:
    os.kill(int(sys.argv[1]), 9)
except PermissionError:
    print("refused")
"""

_ABSTRACT = """
print([line.split()[-1] for line in open("/proc/net/unix") if "@drover" in line])
"""


@pytest.fixture
def offered() -> Iterator[drover.Queue]:
    """A queue with one end of a pipe in a message, which its receiver must fetch."""
    queue = drover.Queue()
    ours, theirs = drover.Pipe()
    queue.put(theirs)
    theirs.close()
    yield queue
    with queue.get() as end:
        end.send("whole")
    assert ours.recv() == "whole"
    ours.close()


def test_descriptors_are_handed_out_in_a_private_folder(offered: drover.Queue) -> None:
    """Another user finds no socket to connect to, in the abstract namespace or in the file system."""
    del offered
    path = _descriptors._server.path
    folder = os.path.dirname(path)
    facts = os.stat(folder)
    assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (os.geteuid(), 0o700)
    assert "@drover" not in Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    assert run_as_nobody(_ABSTRACT) == "[]"
    assert run_as_nobody(_TRY, folder, path).split() == ["EACCES", "EACCES"]


def test_socket_for_descriptors_is_removed_when_nothing_is_offered() -> None:
    """And those of killed processes by the next server."""
    folder = Path(_core.private_folder())
    with Program("""
        import os
        import drover
        queue = drover.Queue()
        queue.put(drover.Pipe()[0])
        os.kill(os.getpid(), 9)
    """) as program:
        program.wait()
    left = list(folder.glob(f"descriptors-{program.pid}-*"))
    assert len(left) <= 1  # a test that runs beside this one may have removed it
    lines = run("""
        import threading
        from pathlib import Path
        import drover
        from drover import _descriptors

        queue = drover.Queue()
        queue.put(drover.Pipe()[0])
        mine = Path(_descriptors._server.path)
        print(mine.is_socket())
        queue.get().close()
        for thread in threading.enumerate():
            if thread.name == "drover descriptors":
                thread.join(60)
        print(mine.exists())
    """)
    assert lines == ["True", "False"]
    assert not any(path.exists() for path in left)


def test_fetching_waits_for_a_server_with_too_many_clients(tmp_path: Path) -> None:
    """Its backlog is full when the client begins."""
    path = tmp_path / ("long" * 40) / "descriptors-1-0"  # longer than an address may be
    path.parent.mkdir()
    kept, sent = socket.socketpair()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server, kept, sent:
        with _descriptors._address_of(str(path)) as address:
            server.bind(address)
        server.listen(0)
        blockers = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        blockers[0].setblocking(False)
        with _descriptors._address_of(str(path)) as address:
            blockers[0].connect(address)
            blockers[1].setblocking(False)
            with pytest.raises(BlockingIOError):
                blockers[1].connect(address)

        def serve() -> None:
            time.sleep(0.3)
            server.accept()[0].close()
            client, _ = server.accept()
            with client:
                assert client.recv(16) == b"k" * 16
                socket.send_fds(client, [b"\1"], [sent.fileno()])

        thread = threading.Thread(target=serve)
        thread.start()
        os.close(_descriptors.Ticket(str(path), b"k" * 16, os.getpid()).detach())
        thread.join()
        for blocker in blockers:
            blocker.close()


def test_other_user_reaches_nothing_of_a_session(tmp_path: Path) -> None:
    """Neither its socket, nor the memory of its processes, nor the processes themselves."""
    name = f"test-{uuid.uuid4().hex}"
    with Program(
        """
        import os, sys, time
        import drover
        with drover.Session(sys.argv[1]) as session:
            queue = drover.Queue()
            child = drover.Process(target=queue.get)
            child.start()
            print("ready", child.pid)
            while not os.path.exists(sys.argv[2]):
                time.sleep(0.02)
            queue.put(None)
            child.join()
            session.end()
        """,
        name,
        str(tmp_path / "end"),
    ) as program:
        try:
            program.wait_for("ready")
            child = program.output.split()[-1]
            folder = _core.private_folder()
            tried = run_as_nobody(
                _TRY, folder, f"{folder}/{name}.sock", f"/proc/{program.pid}/fd", f"/proc/{child}/fd"
            )
            killed = run_as_nobody(_KILL, child)
        finally:
            (tmp_path / "end").touch()
        assert program.wait() == 0
        assert tried.split() == ["EACCES"] * 4
        assert killed == "refused"


def test_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    """Nor one that others can enter: it raises PermissionError before anything is shared."""
    source = "from drover import _core\nprint(_core.private_folder())"
    for mode, owner in ((0o777, os.geteuid()), (0o700, _NOBODY)):
        if owner != os.geteuid() and os.geteuid() != 0:
            continue
        folder = tmp_path / f"{mode}-{owner}"
        (folder / "drover").mkdir(parents=True)
        os.chmod(folder / "drover", mode)
        os.chown(folder / "drover", owner, -1)
        done = subprocess.run(
            [sys.executable, "-c", source],
            env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 1
        assert "PermissionDenied" in done.stderr
        assert "the directory of sessions" in done.stderr


def test_folder_that_another_user_took_does_not_keep_pipes_from_being_sent(tmp_path: Path) -> None:
    """They go through a new directory, which is removed again."""
    taken, temporary = tmp_path / "drover", tmp_path / "tmp"
    taken.mkdir()
    taken.chmod(0o777)
    temporary.mkdir()
    source = """
        import os, stat, sys
        import drover
        from drover import _descriptors
        queue = drover.Queue()
        ours, theirs = drover.Pipe()
        queue.put(theirs)
        folder = os.path.dirname(_descriptors._server.path)
        print(os.path.dirname(folder) == sys.argv[1], oct(stat.S_IMODE(os.stat(folder).st_mode)))
        with queue.get() as end:
            end.send("whole")
        print(ours.recv())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), str(temporary)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.split() == ["True", "0o700", "whole"]
    assert list(temporary.iterdir()) == []
