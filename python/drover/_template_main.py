"""The template process: imports modules, proves that it is clean, and forks children as they are ordered."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import struct
import sys
from collections.abc import Iterator
from typing import Any

import drover
from drover import _child, _core, _guard, _template_child, _worker  # noqa: F401 (for the children)

__all__ = ["main"]

_ROOM = "DROVER_TEMPLATE_ROOM"
_ENDED = "=cxxxii"  # as in src/process/spawn/remote_status.hpp
_REAP = b"R"
_NOTE = 200  # letters of each


def find_dirt() -> str | None:
    """Tell what this process has that no child may inherit; nothing if it is clean."""
    tasks = os.listdir("/proc/self/task")
    if len(tasks) != 1:
        return f"it started {len(tasks) - 1} threads, and a fork would lose them"
    if _guard.is_cuda_initialised():
        return "it initialised CUDA, which does not survive a fork"
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # that of the folder itself
        if path.startswith("/dev/nvidia"):
            return f"it opened {path}, which no child may inherit"
    return None


def _open_files() -> dict[str, str]:
    """Give where descriptors lead."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the folder itself
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found


def _find_open(before: dict[str, str]) -> str | None:
    """Tell what was opened since then: children close everything, and what has it would use others' descriptors."""
    new = sorted(path for number, path in _open_files().items() if before.get(number) != path)
    return f"it left {new[0]} open, which no child can keep" if new else None


def _import(modules: list[str]) -> Iterator[tuple[str, str, bool]]:
    """Import modules; give those that went wrong: name, why, and whether this process is of use no more."""
    before = _open_files()
    for name in modules:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            yield name, f"its import failed: {type(error).__name__}: {error}".splitlines()[0], False
        if (dirt := find_dirt() or _find_open(before)) is not None:
            yield name, dirt, True


def _preload(told: dict[str, Any], variables: dict[str, str]) -> None:
    """Import what is wanted; begin again without a module that makes this process unclean."""
    own_path = sys.path[:]
    sys.path[:] = told["path"]
    for name, why, is_spoilt in _import(list(told["modules"])):
        told["left_out"].append([name, why])
        if is_spoilt:
            told["modules"].remove(name)
            arguments = [*sys.orig_argv[:-2], json.dumps(told), sys.orig_argv[-1]]
            os.execve(sys.orig_argv[0], arguments, variables)
    sys.path[:] = own_path


class _Template:
    """What is known of the children. Descriptors are plain numbers: no object may close them in a child."""

    def __init__(self) -> None:
        self._server = _core.TemplateServer(_core.template_control)
        self._poll = select.poll()
        self._pid = os.getpid()
        self._running: dict[int, int] = {}  # pidfd -> pid
        self._sockets: dict[int, int] = {}  # socket -> pid
        self._is_open = True
        for number in (_core.template_control, _core.template_application):
            self._poll.register(number, select.POLLIN)

    def serve(self, notes: str) -> _core.TemplateOrder:
        """Serve until the application ends; return in each child, with what it is."""
        self._server.say_ready(notes)
        while self._is_open or self._running or self._sockets:
            for number, _ in self._poll.poll():
                if number == _core.template_application:
                    os._exit(0)
                elif number in self._running:
                    self._tell_end(number)
                elif number in self._sockets:
                    self._hear(number)
                elif (own := self._serve_order()) is not None:
                    return own
        os._exit(0)

    def _serve_order(self) -> _core.TemplateOrder | None:
        """Fork what is ordered; give the order in the child. Here nothing may keep its descriptors open."""
        order = self._take()
        return order if order is not None and self._fork(order) else None

    def _take(self) -> _core.TemplateOrder | None:
        try:
            return self._server.take()
        except drover.PeerLost:  # retired: children that run are still to be told about
            self._is_open = False
            self._poll.unregister(_core.template_control)
        except drover.Error as error:
            sys.stderr.write(f"{error}\n")
        return None

    def _fork(self, order: _core.TemplateOrder) -> bool:
        """Fork it, if that is safe; tell whether this is the child."""
        if (dirt := find_dirt()) is not None:
            order.refuse(f"something that runs in the template made it unclean: {dirt}")
            return False
        try:
            pid = os.fork()
        except OSError as error:
            order.refuse(f"fork: {error}")
            return False
        if pid == 0:
            order.become(self._pid)
            return True
        socket, pidfd = order.take_socket(), os.pidfd_open(pid)
        self._running[pidfd], self._sockets[socket] = pid, pid
        self._poll.register(pidfd, select.POLLIN)
        self._poll.register(socket, select.POLLIN)
        return False

    def _tell_end(self, pidfd: int) -> None:
        """Say how a child ended. It is not reaped yet, so that its id names no other."""
        pid = self._running.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        socket = next((one for one, whose in self._sockets.items() if whose == pid), None)
        if socket is None:
            os.waitpid(pid, 0)
            return
        try:
            os.write(socket, struct.pack(_ENDED, b"E", ended.si_code, ended.si_status))
        except OSError:
            return  # nobody wants to know; the end of the socket is seen next

    def _hear(self, socket: int) -> None:
        """Reap a child, as the application says, or because nobody there knows of it any more."""
        pid = self._sockets.pop(socket)
        try:
            told = os.read(socket, 16)
        except OSError:
            told = b""
        running = next((one for one, whose in self._running.items() if whose == pid), None)
        if running is None or told == _REAP:
            os.waitpid(pid, 0)
            if running is not None:
                self._running.pop(running)
                self._poll.unregister(running)
                os.close(running)
        self._poll.unregister(socket)
        os.close(socket)


def main() -> None:
    """Be the template; in each child, go on as what it is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the application
    variables = dict(os.environ)
    os.environ.pop(_ROOM, None)
    told = json.loads(sys.argv[1])
    if (dirt := find_dirt()) is not None:  # of a sitecustomize, say: no order will be taken
        told["left_out"].append(["the interpreter", dirt])
        told["modules"] = []
    _preload(told, variables)
    _template_child.find_setters()
    gc.collect()
    gc.freeze()  # children would copy what a collection touches
    notes = "\n".join(f"{name}: {ascii(why)[1:-1][:_NOTE]}" for name, why in told["left_out"])
    order = _Template().serve(notes)
    _template_child.run(order, told["starts"][order.start])
