"""The template process: imports modules, checks that it is safe to fork, and forks children on request."""

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
from drover import _child, _core, _guard, _template_child, _template_follow, _worker  # noqa: F401 (for the children)

__all__ = ["main"]

_ROOM = "DROVER_TEMPLATE_ROOM"
_ENDED = "=cxxxii"  # as in src/process/spawn/remote_status.hpp
_REAP = b"R"
_NOTE = 200  # longest note, in characters


def find_dirt(threads: int = 1) -> str | None:
    """Return why this process, which should have that many threads, must not be forked; None if it may be."""
    tasks = os.listdir("/proc/self/task")
    if len(tasks) != threads:
        return f"it started {len(tasks) - threads} threads, which a fork would lose"
    if _guard.is_cuda_initialised():
        return "it initialised CUDA, which does not survive a fork"
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # the descriptor of /proc/self/fd itself
        if path.startswith("/dev/nvidia"):
            return f"it opened {path}, which no child may inherit"
    return None


def _open_files() -> dict[str, str]:
    """Return the path of each open descriptor."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of /proc/self/fd itself
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found


def _find_open(before: dict[str, str]) -> str | None:
    """Return a complaint if a descriptor was opened since `before`: children close it, and its number is reused."""
    new = sorted(path for number, path in _open_files().items() if before.get(number) != path)
    return f"it left {new[0]} open, which no child can keep" if new else None


def _import(modules: list[str]) -> Iterator[tuple[str, str, bool]]:
    """Import modules; yield the name of each that failed, why, and whether this process is now unsafe to fork."""
    before = _open_files()
    for name in modules:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            yield name, f"its import failed: {type(error).__name__}: {error}".splitlines()[0], False
        if (dirt := find_dirt() or _find_open(before)) is not None:
            yield name, dirt, True


def _preload(settings: dict[str, Any], variables: dict[str, str]) -> None:
    """Import the modules; restart without a module that makes this process unsafe to fork."""
    own_path = sys.path[:]
    sys.path[:] = settings["path"]
    for name, why, is_unsafe in _import(list(settings["modules"])):
        settings["left_out"].append([name, why])
        if is_unsafe:
            settings["modules"].remove(name)
            _restart(settings, variables)
    sys.path[:] = own_path


def _restart(settings: dict[str, Any], variables: dict[str, str]) -> None:
    """Begin again with these settings."""
    arguments = [*sys.orig_argv[:-2], json.dumps(settings), sys.orig_argv[-1]]
    os.execve(sys.orig_argv[0], arguments, variables)


class _Template:
    """Serves orders and tracks children. Descriptors are plain numbers, so that no object closes them in a child."""

    def __init__(self, server: _core.TemplateServer) -> None:
        self._server = server
        self._poll = select.poll()
        self._pid = os.getpid()
        self._running: dict[int, int] = {}  # pidfd -> pid
        self._sockets: dict[int, int] = {}  # socket -> pid
        self._is_open = True
        for number in (_core.template_control, _core.template_application):
            self._poll.register(number, select.POLLIN)

    def serve(self, notes: str) -> _core.TemplateOrder:
        """Serve orders until the application ends. Returns only in a child, with its order."""
        self._server.say_ready(notes)
        while self._is_open or self._running or self._sockets:
            for number, _ in self._poll.poll():
                if number == _core.template_application:
                    os._exit(0)
                elif number in self._running:
                    self._report_end(number)
                elif number in self._sockets:
                    self._reap(number)
                elif (own := self._serve_order()) is not None:
                    return own
        os._exit(0)

    def _serve_order(self) -> _core.TemplateOrder | None:
        """Serve an order; return it in the child. In the template nothing may keep its descriptors open."""
        order = self._take()
        return order if order is not None and self._fork(order) else None

    def _take(self) -> _core.TemplateOrder | None:
        try:
            return self._server.take()
        except drover.PeerLost:  # retired: only the ends of running children are still to be reported
            self._is_open = False
            self._poll.unregister(_core.template_control)
        except drover.Error as error:
            sys.stderr.write(f"{error}\n")
        return None

    def _fork(self, order: _core.TemplateOrder) -> bool:
        """Fork a child if that is safe; return whether this is the child."""
        if (dirt := find_dirt()) is not None:
            order.refuse(f"the template is no longer safe to fork: {dirt}")
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

    def _report_end(self, pidfd: int) -> None:
        """Report how a child ended. It is not reaped yet, so that its pid is not reused."""
        pid = self._running.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        socket = next((one for one, child in self._sockets.items() if child == pid), None)
        if socket is None:
            os.waitpid(pid, 0)
            return
        try:
            os.write(socket, struct.pack(_ENDED, b"E", ended.si_code, ended.si_status))
        except OSError:
            return  # the application is gone; poll reports the end of the socket next

    def _reap(self, socket: int) -> None:
        """Reap a child when the application asks for it or has dropped its end of the socket."""
        pid = self._sockets.pop(socket)
        try:
            request = os.read(socket, 16)
        except OSError:
            request = b""
        running = next((one for one, child in self._running.items() if child == pid), None)
        if running is None or request == _REAP:
            os.waitpid(pid, 0)
            if running is not None:
                self._running.pop(running)
                self._poll.unregister(running)
                os.close(running)
        self._poll.unregister(socket)
        os.close(socket)


def _begin_early(
    server: _core.TemplateServer, settings: dict[str, Any], variables: dict[str, str]
) -> dict[str, Any]:
    """Import beside the program until it needs this process; return the settings that it then sends."""
    try:
        settings, is_good = _template_follow.follow(server, settings)
    except drover.PeerLost:  # the program no longer wants it
        os._exit(0)
    if not is_good:
        _restart(settings, variables)
    return settings


def main() -> None:
    """Import modules and serve fork requests; each forked child returns here and runs its order."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the application handles Ctrl-C
    gc.disable()  # what modules make while they are imported stays; searching it takes a tenth of the time
    variables = dict(os.environ)
    os.environ.pop(_ROOM, None)
    settings = json.loads(sys.argv[1])
    server = _core.TemplateServer(_core.template_control)
    if "idle_s" in settings:
        settings = _begin_early(server, settings, variables)
    if (dirt := find_dirt()) is not None:  # for example by a sitecustomize: every order will be refused
        settings["left_out"].append(["the interpreter", dirt])
        settings["modules"] = []
    _preload(settings, variables)
    _template_child.find_setters()
    gc.freeze()  # collections in children would otherwise copy the pages of all objects
    gc.enable()
    notes = "\n".join(f"{name}: {ascii(why)[1:-1][:_NOTE]}" for name, why in settings["left_out"])
    order = _Template(server).serve(notes)
    _template_child.run(order, settings["starts"][order.start])
