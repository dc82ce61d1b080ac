"""The template process: imports modules, checks that it is safe to fork, and forks children on request."""

from __future__ import annotations

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
from drover import _child, _core, _standby, _template_child, _template_follow, _worker  # noqa: F401 (for the children)
from drover._fork_checks import THREADS, find_dirt, find_open, open_files

__all__ = ["main"]

_ROOM = "DROVER_TEMPLATE_ROOM"
_ENDED = "=cxxxii"  # as in src/process/spawn/remote_status.hpp
_REAP = b"R"
_NOTE = 200  # longest note, in characters


def _import(modules: list[str]) -> Iterator[tuple[str, str, bool]]:
    """Import modules; yield the name of each that failed, why, and whether this process is now unsafe to fork."""
    before = open_files()
    for name in modules:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            yield name, f"its import failed: {type(error).__name__}: {error}".splitlines()[0], False
        if (dirt := find_dirt() or find_open(before)) is not None:
            yield name, dirt, True


def _preload(settings: dict[str, Any], variables: dict[str, str]) -> None:
    """Import the modules; restart without a module that makes this process unsafe to fork."""
    own_path = sys.path[:]
    sys.path[:] = settings["path"]
    for name, why, is_unsafe in _import(list(settings["modules"])):
        settings["left_out"].append([name, why])
        if is_unsafe:
            settings["modules"].remove(name)
            if why.startswith(THREADS):
                settings["aside"].append(name)
            _restart(settings, variables)
    sys.path[:] = own_path


def _restart(settings: dict[str, Any], variables: dict[str, str]) -> None:
    """Begin again with these settings."""
    arguments = [*sys.orig_argv[:-2], json.dumps(settings), sys.orig_argv[-1]]
    os.execve(sys.orig_argv[0], arguments, variables)


class _Template:
    """Serves orders and tracks children. Descriptors are plain numbers, so that no object closes them in a child."""

    def __init__(self, server: _core.TemplateServer, settings: dict[str, Any]) -> None:
        self._server = server
        self._poll = select.poll()
        self._standbys = _standby.Standbys(settings, self._poll)
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
            for number in self._await_news():
                if number == _core.template_application:
                    os._exit(0)
                elif number in self._running:
                    self._report_end(number)
                elif number in self._sockets:
                    self._reap(number)
                elif number in self._standbys:
                    self._standbys.hear(number)
                elif (own := self._serve_order()) is not None:
                    return own
            if (own := self._standbys.tend()) is not None:
                return own
        os._exit(0)

    def _await_news(self) -> list[int]:
        """Wait; return descriptors. Orders come last: a new child may get the number of a descriptor before it."""
        news = [number for number, _ in self._poll.poll(self._standbys.milliseconds())]
        return sorted(news, key=lambda number: number == _core.template_control)

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
            self._standbys.end_all()
        except drover.Error as error:
            sys.stderr.write(f"{error}\n")
        return None

    def _fork(self, order: _core.TemplateOrder) -> bool:
        """Let a standby become the child, or fork one if that is safe; return whether this is the child."""
        self._standbys.note_order()
        if (pid := self._standbys.hand_over(order)) != 0:
            self._watch(order, pid)
            return False
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
        self._watch(order, pid)
        return False

    def _watch(self, order: _core.TemplateOrder, pid: int) -> None:
        socket, pidfd = order.take_socket(), os.pidfd_open(pid)
        self._running[pidfd], self._sockets[socket] = pid, pid
        self._poll.register(pidfd, select.POLLIN)
        self._poll.register(socket, select.POLLIN)

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
            # The signal that the parent of a process gets, for programs with a handler.
            signal.pidfd_send_signal(_core.template_application, signal.SIGCHLD)
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


def _begin_early(server: _core.TemplateServer, settings: dict[str, Any], variables: dict[str, str]) -> dict[str, Any]:
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
    order = _Template(server, settings).serve(notes)
    _template_child.run(order, settings["starts"][order.start])
