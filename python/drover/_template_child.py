"""Turns a child of the template into what a newly started interpreter would be."""

from __future__ import annotations

import ctypes
import faulthandler
import importlib.machinery
import io
import os
import signal
import sys
import time
import types
from multiprocessing import util
from pathlib import Path
from typing import Any, NamedTuple

from drover import _core, _session

__all__ = ["find_setters", "run"]

# Libraries that fix their number of threads when they are loaded, as happened in the template: a part of the file
# name, the functions that set the number, and the variables that contain it (the first that is set counts).
_OPENBLAS = tuple(
    f"{prefix}openblas_set_num_threads{suffix}" for prefix in ("", "scipy_") for suffix in ("", "64_", "_64_")
)
_SETTERS = (
    ("openblas", _OPENBLAS, ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")),
    ("libmkl_rt", ("MKL_Set_Num_Threads",), ("MKL_NUM_THREADS", "OMP_NUM_THREADS")),
    ("libgomp", ("omp_set_num_threads",), ("OMP_NUM_THREADS",)),
    ("libomp", ("omp_set_num_threads",), ("OMP_NUM_THREADS",)),
    ("libiomp", ("omp_set_num_threads",), ("OMP_NUM_THREADS",)),
)

_STOPPED_S = 1.0  # by then a thread that has ended is no longer listed


class _Setter(NamedTuple):
    """How to set the number of threads of a library."""

    function: Any
    variables: tuple[str, ...]
    count: Any  # where OpenBLAS has the number, if it may be changed there, up to the present one


_found: list[_Setter] = []


def run(order: _core.TemplateOrder, start: list[str]) -> None:
    """Set up the child and run its program."""
    _set_variables(order.variables)
    sys.argv = ["-c", *order.arguments]
    sys.orig_argv = [sys.orig_argv[0], *start, *order.arguments]
    _set_main()
    _open_streams()
    _set_signals()
    _forget_finalizers()
    _seed()
    _limit_threads()
    role = importlib.import_module("drover.__main__" if order.start == 0 else "drover._child")
    del order
    role.main()


def _set_variables(entries: list[bytes]) -> None:
    os.environ.clear()
    for entry in entries:
        name, _, value = entry.partition(b"=")
        if name:
            os.environb[name] = value


def _set_main() -> None:
    """Install a fresh main module, as for a program given by -c."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], __loader__=importlib.machinery.BuiltinImporter)
    sys.modules["__main__"] = main


def _open_streams() -> None:
    """Recreate the standard streams: their buffering depends on what the descriptors refer to."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, f"__{name}__")
        encoding, errors = (old.encoding, old.errors) if old is not None else ("utf-8", "backslashreplace")
        new = _stream(number, encoding, errors, getattr(old, "write_through", False))
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _stream(number: int, encoding: str, errors: str, is_unbuffered: bool) -> Any:
    is_input = number == 0
    raw: Any = io.FileIO(number, "rb" if is_input else "wb", closefd=False)
    raw.name = ("<stdin>", "<stdout>", "<stderr>")[number]
    is_terminal = raw.isatty()
    if not is_unbuffered:
        raw = io.BufferedReader(raw) if is_input else io.BufferedWriter(raw)
    stream = io.TextIOWrapper(
        raw,
        encoding,
        errors,
        newline=None if is_input else "\n",
        line_buffering=not is_unbuffered and (is_terminal or number == 2),
        write_through=is_unbuffered,
    )
    stream.mode = "r" if is_input else "w"
    return stream


def _set_signals() -> None:
    """Install the handlers of a new interpreter and of imported modules; the fork has reset all signals."""
    for one in signal.valid_signals() - {signal.SIGINT, signal.SIGKILL, signal.SIGSTOP}:
        if callable(handler := signal.getsignal(one)) or handler == signal.SIG_IGN:
            signal.signal(one, handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if faulthandler.is_enabled():
        faulthandler.disable()
        faulthandler.enable()


def _forget_finalizers() -> None:
    """Drop the finalizers of the template, and register those of a new process."""
    util._finalizer_registry.clear()
    _session.initialise()


def _seed() -> None:
    """Reseed numpy and torch, so that processes differ. `random` does this by itself."""
    if (numpy := sys.modules.get("numpy.random")) is not None:
        numpy.seed()
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.seed()


def find_setters() -> None:
    """Find, before there is an order, the loaded libraries whose number of threads the child must set."""
    _found.clear()
    loaded = _loaded_libraries()
    for part, functions, variables in _SETTERS:
        for path in (one for one in loaded if part in Path(one).name):
            if (function := _first_of(path, functions)) is not None:
                count = _make_lazy(path, function) if functions is _OPENBLAS else None
                _found.append(_Setter(function, variables, count))


def _make_lazy(path: str, function: Any) -> Any:
    """Let OpenBLAS start threads once it needs them, as after a fork. It would start them at once, and they spin."""
    library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
    try:
        stop, count = library.blas_thread_shutdown_, ctypes.c_int.in_dll(library, "blas_cpu_number")
    except (AttributeError, ValueError):
        return None
    before = len(os.listdir("/proc/self/task"))
    function(ctypes.c_int(len(os.sched_getaffinity(0))))
    stop()
    end = time.monotonic() + _STOPPED_S
    while len(os.listdir("/proc/self/task")) > before and time.monotonic() < end:
        time.sleep(0.001)
    return count


def _limit_threads() -> None:
    for function, variables, count in _found:
        wanted = next((os.environ[name] for name in variables if os.environ.get(name)), "")
        number = max(1, int(wanted) if wanted.isdecimal() else len(os.sched_getaffinity(0)))
        if count is not None and number <= count.value:
            count.value = number
        else:
            function(ctypes.c_int(number))
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if (torch := sys.modules.get("torch")) is not None and threads.isdecimal() and int(threads) > 0:
        torch.set_num_threads(int(threads))


def _loaded_libraries() -> set[str]:
    with Path("/proc/self/maps").open(encoding="utf-8", errors="surrogateescape") as maps:
        return {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if " /" in line and ".so" in line}


def _first_of(path: str, functions: tuple[str, ...]) -> Any:
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
    except OSError:
        return None
    return next((getattr(library, name) for name in functions if hasattr(library, name)), None)
