"""The Python half of a pool's worker: how it becomes what the program needs, and how tasks are run and answered."""

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

from drover import _core, _functions, _objects, _session

__all__ = ["start"]

_MOST_FUNCTIONS = 256

# Signals of a worker: by the first it is asked for its stack (in C++), the second is faulthandler's, and not sent.
_STACKS = signal.SIGRTMIN + 4

_known: dict[bytes, tuple[Callable[[Any], Any], int, str]] = {}
_lasting: dict[bytes, Callable[[], bool]] = {}  # whether one of them must stay, however many there are


def start(payload: bytes, tensors: Sequence[_core.Tensor]) -> None:
    """Prepare this process before its first task, and run the initializer."""
    worker = _core.this_worker()
    _session._current = worker.session
    os.environ.pop(_session.session_variable, None)  # what this process starts is not in the session by itself
    _ignore_interrupts()
    _tell_stacks()
    told, beside, tracker, is_executors = pickle.loads(payload)
    dumps, fail = (_executors_dumps, _executors_fail) if is_executors else (_dumps, _fail)
    _core.set_worker_functions(prepare=_prepare, loads=_objects.loads, dumps=dumps, fail=fail, known=_known)
    _become_child(worker, *tracker)
    told["name"] = worker.name
    own = process.current_process()
    own._inheriting = True
    try:
        spawn.prepare(told)
        initializer, initargs = _objects.loads(beside, tensors)
    finally:
        del own._inheriting
    if initializer is not None:
        initializer(*initargs)


def _ignore_interrupts() -> None:
    """Leave SIGINT to the program; here it would hit whichever task comes next.

    Not by SIG_IGN, which programs that a task starts would inherit.
    """
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.siginterrupt(signal.SIGINT, False)


def _tell_stacks() -> None:
    """Say where each thread is when somebody asks, whoever has the interpreter's lock."""
    faulthandler.register(_STACKS, _core.stack_text_file(), all_threads=True)
    _core.tell_stacks_by(_STACKS)


def _become_child(worker: _core.Worker, parent: int, name: str, tracker: int) -> None:
    """Be what children of multiprocessing are, to those who ask it."""
    own = process.current_process()
    own._identity = (worker.index + 1,)
    process._parent_process = process._ParentProcess(name, parent, os.pidfd_open(parent))
    try:
        resource_tracker._resource_tracker._fd = os.open(f"/proc/{parent}/fd/{tracker}", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return  # one of its own will do, but for memory that is registered here and used there


def _prepare(function: bytes, tensors: Sequence[_core.Tensor]) -> tuple[Callable[[Any], Any], int, str]:
    made, lasting = _functions.decode(function, tensors)
    if lasting is None:
        return made
    if len(_known) >= _MOST_FUNCTIONS:
        for key in [key for key, is_needed in _lasting.items() if not is_needed()][:1]:
            del _known[key], _lasting[key]
    _known[function] = made
    _lasting[function] = lasting
    return made


def _dumps(result: Any) -> tuple[bytes, Sequence[_core.Tensor]]:
    try:
        return _objects.dumps(result)
    except Exception as error:
        raise MaybeEncodingError(error, result) from None


def _executors_dumps(result: Any) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Let the error of sending a result be that of its call, as concurrent.futures does."""
    try:
        return _objects.dumps(result)
    except Exception as error:
        _note(error, f"the result of a call, of type {type(result).__qualname__}, cannot be sent")
        raise


def _fail(error: BaseException) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Write an exception so that it is raised as itself, with this process's traceback as its cause."""
    try:
        return _write(error)
    except Exception as reason:
        return _write(MaybeEncodingError(reason, error), error.__traceback__)


def _executors_fail(error: BaseException) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Write an exception that cannot be sent as the error of sending it, with its own traceback before that one's."""
    try:
        return _write(error)
    except Exception as reason:
        reason.__cause__ = error
        _note(reason, f"the error of a call, of type {type(error).__qualname__}, cannot be sent")
        return _fail(reason)


def _write(error: BaseException, traceback: Any = None) -> tuple[bytes, Sequence[_core.Tensor]]:
    written = _objects.dumps(ExceptionWithTraceback(error, traceback or error.__traceback__))
    _objects.loads(*written)  # what cannot be read here cannot be read there
    return written


def _note(error: Exception, what: str) -> None:
    """Say where an error was raised, which is not in the code that the user reads. Python 3.10 has no notes."""
    with contextlib.suppress(AttributeError, TypeError):  # of strange exceptions, too
        worker = _core.this_worker()
        error.add_note(f"{what} by {worker.name} (pid {os.getpid()}); let calls give what can be pickled")
