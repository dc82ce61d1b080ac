"""multiprocessing's resource tracker, started when this process or one of its children first uses it.

It is an interpreter that removes the shared memory and semaphores of multiprocessing which a program leaves behind.
Most programs have none.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from multiprocessing import resource_tracker, spawn, util
from typing import Any

from drover._exit_hooks import call_at_exit

__all__ = ["descriptor"]

_MAIN = "from multiprocessing.resource_tracker import main;main({})"
_PATIENCE_S = 5.0  # to start it takes milliseconds
_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # which the tracker ignores, once it runs


def descriptor() -> int:
    """Return the descriptor by which children reach the tracker of this process; replace one that died."""
    tracker = resource_tracker._resource_tracker
    with tracker._lock:
        if tracker._fd is None:
            tracker.__class__ = _Tracker
            tracker._prepare()
    return tracker._fd if _has_reader(tracker._fd) else resource_tracker.getfd()


def _has_reader(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return not poll.poll(0)


class _Tracker(resource_tracker.ResourceTracker):
    """The tracker of this process, whose messages wait in its pipe until it is started."""

    _owner = 0  # the process that starts it
    _unstarted: list[int] | tuple[()] = ()  # the end that it reads
    _forking = 0  # the thread that has the lock in order to fork

    def _prepare(self) -> None:
        reading, self._fd = os.pipe()
        self._pid = None
        self._owner, self._unstarted = os.getpid(), [reading]
        os.register_at_fork(before=self._prepare_fork, after_in_parent=self._end_fork, after_in_child=self._end_fork)
        try:
            threading.Thread(target=self._start_on_use, args=(None,), name="drover tracker", daemon=True).start()
        except RuntimeError:  # there may be no more threads
            self._start()
        else:
            call_at_exit(self)

    def _start_on_use(self, milliseconds: int | None) -> None:
        """Wait for the first message of any process, and start the tracker."""
        if reading := self._unstarted[:]:
            poll = select.poll()
            poll.register(reading[0], select.POLLIN)
            if poll.poll(milliseconds):
                with self._lock:
                    self._start()

    def _prepare_fork(self) -> None:
        """Start it for the child, which has its pipe but not the thread, and may outlive this process.

        Keeps the lock until the fork is done: a child that inherits it from another thread cannot use the tracker.
        """
        if self._lock.acquire(timeout=_PATIENCE_S):  # a signal handler may fork while this thread has it
            self._forking = threading.get_ident()
            self._start()

    def _end_fork(self) -> None:
        if self._forking == threading.get_ident():
            self._forking = 0
            self._lock.release()

    def _start(self) -> None:
        """Start it, unless it was started; messages in the pipe wait for it. Only its owner does: C code may fork.

        Requires: the lock.
        """
        if not self._unstarted or os.getpid() != self._owner:
            return
        reading = self._unstarted.pop()
        try:
            self._pid = _spawn(reading)
        finally:
            os.close(reading)

    def _check_alive(self) -> bool:
        self._start()
        return super()._check_alive()

    def _stop(self, *args: Any, **options: Any) -> None:
        if not self._unstarted:
            super()._stop(*args, **options)

    def end_at_exit(self) -> None:
        """Start it if children have used it meanwhile: it removes what they left."""
        if os.getpid() == self._owner:
            self._start_on_use(0)


def _spawn(reading: int) -> int:
    """Start a tracker that reads this descriptor, as multiprocessing does; return its pid."""
    executable = spawn.get_executable()
    arguments = [executable, *util._args_from_interpreter_flags(), "-c", _MAIN.format(reading)]
    kept = [reading]
    if sys.__stderr__ is not None and not sys.__stderr__.closed:
        kept.append(sys.__stderr__.fileno())
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        return util.spawnv_passfds(executable, arguments, kept)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
