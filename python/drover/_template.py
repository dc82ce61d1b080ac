"""The template: a process with modules imported, from which children are forked in milliseconds."""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from multiprocessing import spawn, util
from pathlib import Path

from drover import _core
from drover._errors import InvalidArgument

__all__ = ["CHILD", "WORKER", "TemplateWarning", "await_ready", "prepare", "set_preload", "use_template", "warm_up"]

# What interpreters are told to run: a worker of a pool, a process, and the template that stands for both.
_CODE = "import sys; sys.path.append({folder!r}); from drover.{module} import main; main()"
_FOLDER = str(Path(__file__).parent.parent)
WORKER = _CODE.format(folder=_FOLDER, module="__main__")
CHILD = _CODE.format(folder=_FOLDER, module="_child")
_TEMPLATE = _CODE.format(folder=_FOLDER, module="_template_main")

# Imported into the template if the program has imported them: slow to import, and known neither to touch a GPU nor to
# start threads by that. One that does so all the same is left out.
_KNOWN = ("numpy", "scipy", "pandas", "sklearn", "PIL", "cv2", "numba", "torch", "torchvision", "cupy", "jax")
_VARIABLE = "DROVER_TEMPLATE"
_LONGEST_LOAD = 120.0  # seconds; then it is given up
# OpenBLAS would start its threads when it is loaded; children set their own number.
_ENVIRONMENT = [("OPENBLAS_NUM_THREADS", "1")]
# Modules of the standard library that do more than to be there.
_ODD = frozenset({"antigravity", "idlelib", "site", "test", "this", "tkinter", "turtle", "turtledemo"})


class TemplateWarning(RuntimeWarning):
    """A module that was to be imported into the template was left out."""


class _State:
    """What this process has of templates."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.asked: list[str] | None = None
        self.is_on = True
        self.current: _core.Template | None = None
        self.key: tuple[object, ...] = ()
        self.names: frozenset[str] = frozenset()
        self.retired: list[_core.Template] = []


_state = _State()
os.register_at_fork(after_in_child=lambda: setattr(_state, "guard", threading.Lock()))


def set_preload(modules: Iterable[str] | None) -> None:
    """Say which modules processes find imported when they start; None: those that the program has imported.

    By default these are some large ones that are known to be safe, such as numpy and torch, as soon as the program
    has imported them. What is imported must neither touch a GPU nor start threads; a module that does is left out,
    with a warning. Modules of the standard library that the program has imported come in any case.
    """
    if isinstance(modules, str):
        raise TypeError("a list of names of modules is expected, not one text")
    names = None if modules is None else list(modules)
    if names is not None and not all(isinstance(name, str) for name in names):
        raise TypeError("names of modules are texts")
    _state.asked = None if names is None else [name for name in names if name != "__main__"]


def use_template(is_on: bool = True) -> None:
    """Say whether processes are forked from a template, as they are unless DROVER_TEMPLATE=0, or are started anew."""
    _state.is_on = is_on
    if not _is_on():
        _core.Template.use_none()


def warm_up(*modules: str, timeout: float | None = None) -> bool:
    """Start the template and wait until it is ready, so that the first processes start as fast as all others.

    With modules, `set_preload` is called first. False means that processes will be started anew: the template is
    switched off, cannot be started, or was not ready in time.
    """
    if modules:
        set_preload(modules)
    prepare()
    template = _state.current
    if template is None or not _is_on() or not template.wait_ready(timeout):
        return False
    _warn(template)
    return True


def prepare() -> None:
    """Let processes be forked from a template that has what the program has; to be called before one is started."""
    if not _is_on() or "/" not in os.fsdecode(spawn.get_executable()):
        _core.Template.use_none()
        return
    with _state.guard:
        _state.retired = [one for one in _state.retired if not one.is_over]
        wanted = frozenset(_large_modules())
        key = _key()
        is_right = _state.current is not None and key == _state.key and wanted <= _state.names
        if not is_right or not _state.current.fits:
            _replace(key, wanted)
        assert _state.current is not None
        _state.current.use()
        _state.current.start()
        _warn(_state.current)


def await_ready() -> None:
    """Wait until the template that was prepared is ready, or is not to be had; Ctrl-C ends that."""
    if _is_on() and _state.current is not None:
        _state.current.wait_ready(_LONGEST_LOAD)


def _is_on() -> bool:
    told = os.environ.get(_VARIABLE, "")
    if told not in ("", "0", "1"):
        raise InvalidArgument(f"{_VARIABLE} is {told!r}, which is neither 0 nor 1", "unset it, or set it to 0 or 1")
    return _state.is_on and told != "0"


def _key() -> tuple[object, ...]:
    """Give what two templates differ by, apart from the modules."""
    asked = None if _state.asked is None else tuple(_state.asked)
    return (os.getpid(), os.fsdecode(spawn.get_executable()), asked, *util._args_from_interpreter_flags())


def _large_modules() -> Iterator[str]:
    names = _KNOWN if _state.asked is None else _state.asked
    for name in names:
        if _state.asked is not None or getattr(sys.modules.get(name), "__spec__", None) is not None:
            yield name


def _all_modules() -> Iterator[str]:
    """Give what is imported, in order: the standard library's, the large ones, parts of them that are in use."""
    standard = sorted(sys.stdlib_module_names - _ODD)
    yield from (name for name in standard if not name.startswith("_") and name in sys.modules)
    large = list(_large_modules())
    yield from large
    if _state.asked is None:
        for name in sorted(sys.modules):
            package, _, part = name.partition(".")
            if package in large and part and "." not in part and not part.startswith("_"):
                yield name


def _replace(key: tuple[object, ...], wanted: frozenset[str]) -> None:
    flags = util._args_from_interpreter_flags()
    starts = [[*flags, "-c", WORKER], [*flags, "-c", CHILD]]
    told = {
        "modules": list(_all_modules()),
        "path": [folder for folder in sys.path if isinstance(folder, str)],
        "starts": starts,
        "left_out": [],
    }
    if _state.current is not None and _state.key[:1] == key[:1]:
        _state.current.retire()
        _state.retired.append(_state.current)
    _state.current = _core.Template(
        executable=os.fsdecode(spawn.get_executable()),
        arguments=[*flags, "-c", _TEMPLATE, json.dumps(told)],
        environment=_ENVIRONMENT,
        starts=starts,
    )
    _state.key, _state.names = key, wanted
    _register_end(os.getpid())


@functools.lru_cache(maxsize=1)
def _register_end(process: int) -> None:
    del process  # a forked child has its own
    # Once children are joined: who asks for the status of one needs the template.
    util.Finalize(None, _end, exitpriority=-900)


def _end() -> None:
    for one in [_state.current, *_state.retired]:
        if one is not None:
            one.end()


def _warn(template: _core.Template) -> None:
    """Tell what was left out, if the program asked for it; what is only a default is not missed."""
    for line in template.notes.splitlines():
        name, _, why = line.partition(": ")
        if _state.asked is not None and name in _state.asked:
            _warn_once(name, why)


@functools.cache
def _warn_once(name: str, why: str) -> None:
    warnings.warn(
        f"{name} is not imported into the template from which processes are forked, but by each process for itself: "
        f"{why}.\n  what to do: leave it out of drover.set_preload(), or correct what is wrong with its import",
        TemplateWarning,
        stacklevel=4,
    )
