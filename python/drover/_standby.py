"""Standbys: processes forked from the template in advance, which import what the template itself must not.

A library that leaves a thread, as TensorFlow does, cannot be in a template. A standby is a fork that has imported it,
and becomes the next child instead of being forked again.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import select
import signal
import socket
import sys
import threading
import time
from typing import Any

import drover
from drover import _core, _template_child
from drover._fork_checks import find_dirt, find_gpu, find_open, open_files

__all__ = ["Standbys"]

_READY = b"ready"
_PAUSE_S = 1.0  # without orders before a standby is made, so that it does not compete with a pool that starts
_MOST_FAILURES = 2
_LONGEST_LOAD_S = 120.0
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class Standby:
    """A process in advance. Descriptors are plain numbers, as in the template."""

    def __init__(self, pid: int, since: float) -> None:
        """Note a process that was made at this moment."""
        self.pid = pid
        self.since = since  # it was made, or became ready
        self.is_ready = False

    def end(self, idle_s: float) -> float:
        """Return when it has waited, or imported, for too long."""
        return self.since + (idle_s if self.is_ready else _LONGEST_LOAD_S)


class Standbys:
    """The standbys of a template: as many as the last pool had processes, made one after the other."""

    def __init__(self, settings: dict[str, Any], poll: select.poll) -> None:
        self._poll = poll
        self._settings = settings
        self._idle_s: float = settings["standby_s"]
        self._most = settings["standbys"] if settings["aside"] else 0
        self._of: dict[int, Standby] = {}  # by socket
        self._burst = 0  # orders in a row, without a pause between them
        self._last_order = -_PAUSE_S
        self._failures = 0  # in a row

    def __contains__(self, number: int) -> bool:
        """Return whether a descriptor is the socket of a standby."""
        return number in self._of

    def note_order(self) -> None:
        """Note that a process was ordered, and a pool may be starting."""
        now = time.monotonic()
        self._burst = self._burst + 1 if now - self._last_order < _PAUSE_S else 1
        self._last_order = now

    def hand_over(self, order: _core.TemplateOrder) -> int:
        """Let a standby become the ordered child; return its pid, or 0 if none is ready."""
        for number in [one for one, standby in self._of.items() if standby.is_ready]:
            if order.forward(number):
                return self._drop(number).pid
            self.end(number)
        return 0

    def milliseconds(self) -> int | None:
        """Return when `tend` has something to do; None for never."""
        moments = [standby.end(self._idle_s) for standby in self._of.values()]
        if self._is_wanted():
            moments.append(self._last_order + _PAUSE_S)
        return max(0, int((min(moments) - time.monotonic()) * 1e3) + 1) if moments else None

    def tend(self) -> _core.TemplateOrder | None:
        """End standbys that nobody needed, and make one. Returns an order in a standby that got it."""
        now = time.monotonic()
        for number in [one for one, standby in self._of.items() if now >= standby.end(self._idle_s)]:
            self.end(number)
            self._burst = 0  # make no others until the next order
        return self._make() if self._is_wanted() and now >= self._last_order + _PAUSE_S else None

    def hear(self, number: int) -> None:
        """Learn that a standby is ready, or that it has failed."""
        try:
            is_ready = os.read(number, len(_READY)) == _READY
        except OSError:
            is_ready = False
        if is_ready:
            self._failures = 0
            self._of[number].is_ready, self._of[number].since = True, time.monotonic()
        else:
            self._failures += not self._of[number].is_ready
            self.end(number)

    def end(self, number: int) -> None:
        """End a standby."""
        pid = self._drop(number).pid
        os.kill(pid, signal.SIGKILL)  # not reaped yet
        os.waitpid(pid, 0)

    def end_all(self) -> None:
        """End all, and make no others."""
        self._most = 0
        for number in list(self._of):
            self.end(number)

    def _is_wanted(self) -> bool:
        if self._failures >= _MOST_FAILURES or any(not standby.is_ready for standby in self._of.values()):
            return False
        return len(self._of) < min(self._most, self._burst)

    def _drop(self, number: int) -> Standby:
        standby = self._of.pop(number)
        self._poll.unregister(number)
        os.close(number)
        return standby

    def _make(self) -> _core.TemplateOrder | None:
        if find_dirt() is not None:
            self._most = 0
            return None
        template = os.getpid()
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours, theirs:
                if (pid := os.fork()) == 0:
                    os.close(ours.detach())  # or it would close another descriptor that gets its number
                    return _serve_one(theirs.detach(), template, self._settings)
                number = ours.detach()
        except OSError:
            self._failures += 1
            return None
        self._of[number] = Standby(pid, since=time.monotonic())
        self._poll.register(number, select.POLLIN)
        return None


def _serve_one(control: int, template: int, settings: dict[str, Any]) -> _core.TemplateOrder:
    """In a standby: import the modules, and wait for an order. Ends the process if there will be none."""
    try:
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != template:
            os._exit(0)
        os.closerange(3, control)
        os.closerange(control + 1, os.sysconf("SC_OPEN_MAX"))
        _silence()
        before = open_files()
        policy = _lower_priority()
        own_path = sys.path[:]
        sys.path[:] = settings["path"]
        for name in settings["aside"]:
            importlib.import_module(name)
        sys.path[:] = own_path
        if find_gpu() or find_open(before):
            os._exit(1)
        _template_child.find_setters()
        _restore_priority(policy)
        os.write(control, _READY)
        return _await_order(control, template)
    except BaseException:
        os._exit(1)


def _silence() -> None:
    """Discard what modules print; an order brings other streams."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.close(null)


def _lower_priority() -> int:
    """Lower the priority of this thread, and of those that modules start, as far as it can be undone."""
    policy = os.SCHED_IDLE if _may_leave_idle() else os.SCHED_BATCH
    os.sched_setscheduler(0, policy, os.sched_param(0))
    return policy


def _restore_priority(policy: int) -> None:
    for task in _tasks():
        with contextlib.suppress(OSError):  # it ended, or chose another policy
            if os.sched_getscheduler(task) == policy:
                os.sched_setscheduler(task, os.SCHED_OTHER, os.sched_param(0))


def _may_leave_idle() -> bool:
    """Return whether the kernel would let this process leave idle priority, by a thread that tries."""
    results = []

    def attempt() -> None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            results.append(True)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return bool(results)


def _tasks() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/task")]


def _place_threads() -> None:
    """Give the threads of libraries the CPUs and niceness that the order gave this one."""
    cpus, niceness = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    for task in _tasks():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(task, cpus)
            os.setpriority(os.PRIO_PROCESS, task, niceness)


def _await_order(control: int, template: int) -> _core.TemplateOrder:
    server = _core.TemplateServer(control)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        poll.poll()
        try:
            order = server.take()
        except drover.PeerLost:
            os._exit(0)
        if order is not None:
            order.become(template)
            _place_threads()
            return order
