"""The Python half of a pool's worker: how it becomes what the program needs, and how tasks are run and answered."""

from __future__ import annotations

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
    _core.set_worker_functions(prepare=_prepare, loads=_objects.loads, dumps=_dumps, fail=_fail, known=_known)
    _ignore_interrupts()
    _tell_stacks()
    told, beside, tracker = pickle.loads(payload)
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


def _fail(error: BaseException) -> tuple[bytes, Sequence[_core.Tensor]]:
    """Write an exception so that it is raised as itself, with this process's traceback as its cause."""
    try:
        written = _objects.dumps(ExceptionWithTraceback(error, error.__traceback__))
        _objects.loads(*written)  # what cannot be read here cannot be read there
    except Exception as reason:
        return _objects.dumps(ExceptionWithTraceback(MaybeEncodingError(reason, error), error.__traceback__))
    return written
