"""Processes that behave like multiprocessing's: fresh interpreters that join the session of their parent."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from multiprocessing import context, popen_spawn_posix, process, spawn, util
from typing import Any

from drover import (
    _core,
    _interpreter,
    _main_module,
    _nesting,
    _objects,
    _session,
    _start_methods,
    _template,
    _torch_loader,
    _tracker,
)

__all__ = ["Popen", "Process", "preparation_of"]


class Popen:
    """The child behind a `Process`, with the interface that multiprocessing expects. It ends with the session."""

    method = "drover"
    DupFd = popen_spawn_posix._DupFd  # the pickled form of a descriptor

    def __init__(self, process_obj: process.BaseProcess) -> None:
        """Start the child."""
        util._flush_std_streams()
        self.returncode: int | None = None
        self._kept: list[Any] = []
        self._fds: list[int] = []
        self._launch(process_obj)

    def duplicate_for_child(self, fd: int) -> int:
        """Let the child inherit a descriptor, under the same number."""
        self._fds.append(fd)
        return fd

    def keep_until_joined(self, shared: Any) -> None:
        """Keep a shared object until the child, which only has its name, has ended."""
        self._kept.append(shared)

    def _launch(self, process_obj: process.BaseProcess) -> None:
        session = _session.current()
        preparation = {**preparation_of(process_obj._name), "drover_method": _method()}
        mailbox = _core.Queue(session, 2, 1 << 20)
        context.set_spawning_popen(self)
        try:
            for part in (preparation, process_obj):
                mailbox.put(*_objects.dumps(part, by_reference=True), None)
        finally:
            context.set_spawning_popen(None)
        self._kept.append(mailbox)
        self._start(session, process_obj._name, mailbox.handle)

    def _start(self, session: _core.Session, name: str, mailbox: str) -> None:
        executable = _interpreter.path()
        tracker = _tracker.descriptor()
        _torch_loader.install()
        _template.prepare()
        _template.await_ready()
        with ExitStack() as at_end:
            invitation = session.invite(_display_name(name))
            at_end.callback(os.close, invitation)
            parent = os.pidfd_open(os.getpid())
            at_end.callback(os.close, parent)
            self._child = _core.Child(
                executable=executable,
                arguments=[
                    *util._args_from_interpreter_flags(),
                    "-c",
                    _template.CHILD,
                    "--multiprocessing-fork",
                    mailbox,
                    str(tracker),
                    str(parent),
                ],
                environment=[(_session.session_variable, str(invitation))],
                inherit=list({tracker, invitation, parent, *self._fds}),
            )
        self.pid = self._child.pid
        self.sentinel = self._child.pidfd

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Return the exit code, or None if the child is running."""
        return self.wait(0.0 if flag == os.WNOHANG else None)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the child; return its exit code, negative for a signal, or None at the timeout."""
        if self.returncode is None:
            self.returncode = self._child.wait(timeout)
            if self.returncode is not None:
                self._kept.clear()
        return self.returncode

    def _signal(self, number: int) -> None:
        if self.returncode is None:
            self._child.kill(number)

    def interrupt(self) -> None:
        """Send SIGINT."""
        self._signal(signal.SIGINT)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """Release the child."""
        self._child = None


def _method() -> str | None:
    from drover._context import default  # noqa: PLC0415 (imports this module)

    return default.get_start_method(allow_none=True)


def preparation_of(name: str) -> dict[str, Any]:
    """Return multiprocessing's preparation data for a child, without a main module that it must not import."""
    standard = context._default_context
    chosen = standard.get_start_method(allow_none=True)
    preparation = _start_methods.without_foreign_method(spawn.get_preparation_data(name))
    if chosen == _start_methods.NAME:
        preparation["start_method"] = chosen  # which our processes know
    elif chosen is None:
        # Reading the standard library's start method has fixed it, and the program may still want to set it.
        standard._actual_context = None
        preparation.pop("start_method", None)
    if not _main_module.is_imported_by_children():
        preparation.pop("init_main_from_path", None)
        preparation.pop("init_main_from_name", None)
    _nesting.add_to(preparation)
    preparation["drover_parent"] = _main_module.own_id()
    return preparation


def _display_name(name: object) -> str:
    letters = (letter if letter.isprintable() and letter.isascii() else "?" for letter in str(name))
    return "".join(letters)[:60] or "process"


class Process(process.BaseProcess):
    """A process that runs a function; the same as `multiprocessing.Process`.

    The child is a fresh interpreter, never a fork of this process, so it can use CUDA. `target`, `args` and `kwargs`
    are pickled by `start`; arrays in shared memory are not copied.

    >>> import drover
    >>> def work(numbers, results):
    ...     results.put(sum(numbers))
    >>> results = drover.Queue()
    >>> process = drover.Process(target=work, args=([1, 2, 3], results))
    >>> process.start()
    >>> results.get()
    6
    >>> process.join()
    >>> process.exitcode
    0
    """

    _start_method = "drover"

    @staticmethod
    def _Popen(process_obj: process.BaseProcess) -> Popen:  # noqa: N802 (multiprocessing's name)
        return Popen(process_obj)

    @staticmethod
    def _after_fork() -> None:
        """Do nothing: no process was forked."""
