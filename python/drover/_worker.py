"""The Python half of a pool's worker: prepares the process, and reads and answers tasks."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from multiprocessing import process, resource_tracker, spawn
from multiprocessing.pool import ExceptionWithTraceback, MaybeEncodingError
from typing import Any

from drover import _core, _crashes, _exceptions, _functions, _namespaces, _nesting, _objects, _session

__all__ = ["start"]

_MOST_FUNCTIONS = 256

# faulthandler's signal, which is never sent: C++ calls its handler when a worker is asked for stacks by another
# signal.
_STACKS = signal.SIGRTMIN + 4

_functions_by_bytes: dict[bytes, tuple[Callable[[Any], Any], int, str]] = {}
_is_pinned: dict[bytes, Callable[[], bool]] = {}  # whether a function must not be evicted


def start(payload: bytes, tensors: Sequence[_core.Tensor]) -> None:
    """Prepare this process before its first task, and run the initializer."""
    worker = _core.this_worker()
    _session._current = worker.session
    os.environ.pop(_session.session_variable, None)  # not for programs that this process starts
    _ignore_interrupts()
    _register_stacks()
    _crashes.show()
    preparation, initializer_call, tracker, is_executors = pickle.loads(payload)
    dumps, fail = (_executors_dumps, _executors_fail) if is_executors else (_dumps, _fail)
    _core.set_worker_functions(
        prepare=_prepare, loads=_objects.loads, dumps=dumps, fail=fail, prepared=_functions_by_bytes
    )
    _become_child(worker, *tracker)
    preparation["name"] = worker.name
    _nesting.adopt(preparation)
    own = process.current_process()
    own._inheriting = True
    try:
        spawn.prepare(preparation)
        _namespaces.follow(preparation)
        initializer, initargs = _objects.loads(initializer_call, tensors)
    finally:
        del own._inheriting
    if initializer is not None:
        for thing in (initializer, *initargs):  # an executor's initializer is an argument of ours
            _namespaces.note(thing)
        initializer(*initargs)


def _ignore_interrupts() -> None:
    """Leave SIGINT to the program; in a worker it would hit an arbitrary task.

    SIG_IGN would not do: programs that a task starts would inherit it.
    """
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.siginterrupt(signal.SIGINT, False)


def _register_stacks() -> None:
    """Let the worker report the stacks of its threads, even while a task holds the GIL."""
    faulthandler.register(_STACKS, _core.stack_text_file(), all_threads=True)
    _core.write_stacks_by(_STACKS)


def _become_child(worker: _core.Worker, parent: int, name: str, tracker: int) -> None:
    """Set the attributes by which multiprocessing knows a child and its parent."""
    own = process.current_process()
    own._identity = (worker.index + 1,)
    process._parent_process = process._ParentProcess(name, parent, os.pidfd_open(parent))
    try:
        resource_tracker._resource_tracker._fd = os.open(f"/proc/{parent}/fd/{tracker}", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return  # a tracker of its own will do, except for memory registered here and used in the parent


def _prepare(function: bytes, tensors: Sequence[_core.Tensor]) -> tuple[Callable[[Any], Any], int, str]:
    prepared, is_pinned = _functions.decode(function, tensors)
    if is_pinned is None:
        return prepared
    if len(_functions_by_bytes) >= _MOST_FUNCTIONS:
        for key in [key for key, must_stay in _is_pinned.items() if not must_stay()][:1]:
            del _functions_by_bytes[key], _is_pinned[key]
    _functions_by_bytes[function] = prepared
    _is_pinned[function] = is_pinned
    return prepared


def _dumps(result: Any) -> tuple[bytes, Sequence[_core.Tensor]]:
    try:
        return _objects.dumps(result)
    except Exception as error:
        raise MaybeEncodingError(error, result) from None


def _executors_dumps(result: Any) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Pickle a result; as in concurrent.futures, an error of that is the error of the call."""
    try:
        return _objects.dumps(result)
    except Exception as error:
        _note(error, f"cannot send the result of a call, of type {type(result).__qualname__}")
        raise


def _fail(error: BaseException) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Pickle an exception so that it is raised as itself, with the traceback in this process as its cause."""
    try:
        return _dumps_error(error)
    except BaseException as reason:  # also SystemExit and KeyboardInterrupt of a method that pickles
        return _dumps_error(MaybeEncodingError(reason, error), error.__traceback__)


def _executors_fail(error: BaseException) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Pickle an exception; if that fails, the error of pickling, with the exception as its cause."""
    try:
        return _dumps_error(error)
    except BaseException as reason:
        reason.__cause__ = error
        _note(reason, f"cannot send the exception of a call, of type {type(error).__qualname__}")
        return _fail(reason)


def _dumps_error(error: BaseException, traceback: Any = None) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Pickle an exception; fails here if it would fail at the receiver."""
    wrapped = ExceptionWithTraceback(error, traceback or error.__traceback__)
    error = wrapped.exc
    with contextlib.suppress(BaseException):
        pickled = _objects.dumps(wrapped)
        if _exceptions.is_same(_objects.loads(*pickled), error):
            return pickled
    wrapped.exc = _exceptions.portable(error)
    pickled = _objects.dumps(wrapped)
    _objects.loads(*pickled)
    return pickled


def _note(error: BaseException, what: str) -> None:
    """Add a note to an error whose traceback shows no user code. Python 3.10 has no notes."""
    with contextlib.suppress(AttributeError, TypeError):  # also if the exception has an unusual add_note
        worker = _core.this_worker()
        error.add_note(f"{what} from {worker.name} (pid {os.getpid()}); return objects that can be pickled")
