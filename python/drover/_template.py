"""The template: a process that has modules imported and forks children in milliseconds."""

from __future__ import annotations

import functools
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from multiprocessing import util
from typing import Any

from drover import _ahead, _core, _interpreter
from drover._errors import InvalidArgument

__all__ = [
    "CHILD",
    "SAFE",
    "WORKER",
    "TemplateWarning",
    "await_ready",
    "begin",
    "prepare",
    "set_preload",
    "use_template",
    "warm_up",
]

# The programs of interpreters: a worker of a pool, a process, and the template that forks both.
_CODE = "import sys; sys.path.append({folder!r}); from drover.{module} import main; main()"
_FOLDER = os.path.dirname(os.path.dirname(__file__))
WORKER = _CODE.format(folder=_FOLDER, module="__main__")
CHILD = _CODE.format(folder=_FOLDER, module="_child")
_TEMPLATE = _CODE.format(folder=_FOLDER, module="_template_main")

# Modules that the template imports if the program has: slow to import, and known not to touch a GPU or start threads
# while they are imported. A version that does is left out.
SAFE = ("numpy", "scipy", "pandas", "sklearn", "PIL", "cv2", "numba", "torch", "torchvision", "cupy", "jax")
# Modules that leave a thread when they are imported, which a fork would lose: standbys import them, not the template.
_UNFORKABLE = ("tensorflow", "keras")
_VARIABLE = "DROVER_TEMPLATE"
# OpenBLAS would start its threads on import; children set their own number.
_ENVIRONMENT = [("OPENBLAS_NUM_THREADS", "1")]
# Modules of the standard library whose import has side effects.
_EXCLUDED = frozenset({"antigravity", "idlelib", "site", "test", "this", "tkinter", "turtle", "turtledemo"})


class TemplateWarning(RuntimeWarning):
    """The template left out a module that `set_preload` names."""


class _State:
    """The templates of this process."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.preload: list[str] | None = None  # as set by set_preload; None for the default
        self.is_on = True
        self.current: _core.Template | None = None
        self.key: tuple[object, ...] = ()
        self.names: frozenset[str] = frozenset()
        self.retired: list[_core.Template] = []
        self.early: _core.EarlyTemplate | None = None  # begun before the first process, and not in use yet
        self.early_key: tuple[object, ...] = ()
        self.early_names: list[str] = []  # the modules that it imports
        self.is_begun = False  # whether an import has begun one already: none begins a second


_state = _State()
os.register_at_fork(after_in_child=lambda: setattr(_state, "guard", threading.Lock()))


def set_preload(modules: Iterable[str] | None) -> None:
    """Set the modules that processes have imported when they start; None for the default.

    The default is a list of large modules that are known to be safe, such as numpy and torch, once the program has
    imported them. A module must not touch a GPU or start threads while it is imported; one that does is left out,
    with a TemplateWarning. Modules of the standard library that the program has imported are always included.

    Raises TypeError unless `modules` is an iterable of str.
    """
    if isinstance(modules, str):
        raise TypeError(f"modules must be a list of names, not the str {modules!r}")
    names = None if modules is None else list(modules)
    if names is not None and not all(isinstance(name, str) for name in names):
        raise TypeError(f"names of modules must be str, not {names!r}")
    _state.preload = None if names is None else [name for name in names if name != "__main__"]


def use_template(is_on: bool = True) -> None:
    """Set whether processes are forked from a template or start as new interpreters.

    The template is on by default, unless DROVER_TEMPLATE=0 is set.
    """
    _state.is_on = is_on
    if not _is_on():
        _state.early = None
        _core.Template.use_none()


def warm_up(*modules: str, timeout: float | None = None) -> bool:
    """Start the template and wait until it is ready, so that the first processes start as fast as later ones.

    Names of modules are passed to `set_preload` first. Returns False if the template is off, cannot be started, or
    was not ready within `timeout` seconds; processes then start as new interpreters.
    """
    if modules:
        set_preload(modules)
    prepare()
    template = _state.current
    if template is None or not _is_on() or template.wait_ready(timeout) != _core.Readiness.ready:
        return False
    _warn(template)
    return True


def begin(module: str | None, idle_s: float, may_start: bool) -> None:
    """Begin a template that imports this module and those that the program has, or let the running one follow.

    It ends if no process is started for `idle_s` seconds. Imports begin one at most; the first shared object, for
    which no module is given, begins one unless a process was started before.
    """
    if not _is_on() or not _interpreter.is_certain() or not _state.guard.acquire(blocking=False):
        return
    try:
        names = _modules_so_far(module)
        settings = {"modules": names, "path": _own_path(), "idle_s": idle_s}
        if _state.early is not None and not _state.early.has_ended and _state.early_key == _key_of_process():
            _state.early_names = names
            _state.early.tell(_to_text(settings))
        elif may_start and not (_state.is_begun if module else _state.current):
            _state.early_key, _state.early_names, _state.is_begun = _key_of_process(), names, True
            _state.early = _core.EarlyTemplate(
                executable=_interpreter.path(),
                arguments=[*util._args_from_interpreter_flags(), "-c", _TEMPLATE, _to_text(settings)],
                environment=_ENVIRONMENT,
            )
            _register_end(os.getpid())
    finally:
        _state.guard.release()


def prepare() -> None:
    """Make the template fit the modules and settings of the program. Called before a process is started."""
    if not _is_on() or _interpreter.find() is None:
        _core.Template.use_none()
        return
    with _state.guard:
        _state.retired = [one for one in _state.retired if not one.is_over]
        wanted = frozenset([*_large_modules(), *_modules_aside()])
        key = _key()
        is_right = _state.current is not None and key == _state.key and wanted <= _state.names
        if not is_right or not _state.current.fits:
            _replace(key, wanted)
        assert _state.current is not None
        _state.current.use()
        _state.current.start()
        _warn(_state.current)


def await_ready() -> None:
    """Wait until the prepared template is ready or never will be; Ctrl-C interrupts the wait."""
    if _is_on() and _state.current is not None:
        _state.current.wait_ready(None)


def _is_on() -> bool:
    value = os.environ.get(_VARIABLE, "")
    if value not in ("", "0", "1"):
        raise InvalidArgument(f"{_VARIABLE} is {value!r}, which is neither 0 nor 1", "unset it, or set it to 0 or 1")
    return _state.is_on and value != "0"


def _to_text(settings: dict[str, Any]) -> str:
    import json  # noqa: PLC0415 (imported only if needed)

    return json.dumps(settings)


def _key() -> tuple[object, ...]:
    """Return what a template must match, apart from the modules."""
    preload = None if _state.preload is None else tuple(_state.preload)
    return (preload, *_key_of_process())


def _key_of_process() -> tuple[object, ...]:
    return (os.getpid(), _interpreter.path(), *util._args_from_interpreter_flags())


def _large_modules() -> Iterator[str]:
    names = SAFE if _state.preload is None else _state.preload
    for name in names:
        if _state.preload is not None or getattr(sys.modules.get(name), "__spec__", None) is not None:
            yield name


def _all_modules() -> Iterator[str]:
    """Yield the modules to import, in order: the standard library's, large ones, and their imported submodules."""
    standard = sorted(sys.stdlib_module_names - _EXCLUDED)
    yield from (name for name in standard if not name.startswith("_") and name in sys.modules)
    large = list(_large_modules())
    yield from large
    if _state.preload is None:
        yield from _imported_parts(large)


def _modules_so_far(module: str | None) -> list[str]:
    """Return the safe ones of the large modules that the program has imported or is about to, after small ones."""
    allowed = SAFE if _state.preload is None else _state.preload
    names = [name for name in SAFE if name in allowed and (name in sys.modules or name == module)]
    standard = sorted(sys.stdlib_module_names - _EXCLUDED)
    return [*(name for name in standard if not name.startswith("_") and name in sys.modules), *names]


def _modules_aside() -> list[str]:
    """Return what standbys import: the unforkable modules of the program, and their imported submodules."""
    if _state.preload is not None:
        return []  # the template finds out which of them are unforkable
    large = [name for name in _UNFORKABLE if getattr(sys.modules.get(name), "__spec__", None) is not None]
    return [*large, *_imported_parts(large)]


def _most_standbys() -> int:
    """Return how many standbys there may be: none if that would slow down the program."""
    cores = _ahead.cores()
    return int(min(cores, os.cpu_count() or 1)) if cores >= 2 and _ahead.idle_seconds() > 0 else 0


def _imported_parts(packages: list[str]) -> Iterator[str]:
    """Yield the imported public submodules of packages, those at their first level."""
    for name in sorted(sys.modules):
        package, _, part = name.partition(".")
        if package in packages and part and "." not in part and not part.startswith("_"):
            yield name


def _own_path() -> list[str]:
    return [folder for folder in sys.path if isinstance(folder, str)]


def _replace(key: tuple[object, ...], wanted: frozenset[str]) -> None:
    flags = util._args_from_interpreter_flags()
    starts = [[*flags, "-c", WORKER], [*flags, "-c", CHILD]]
    settings = {
        "modules": list(_all_modules()),
        "path": _own_path(),
        "starts": starts,
        "left_out": [],
        "aside": _modules_aside(),
        "standby_s": _ahead.idle_seconds(),
        "standbys": _most_standbys(),
    }
    if _state.current is not None and _state.key[1] == key[1]:  # made by this process
        _state.current.retire()
        _state.retired.append(_state.current)
    _state.current = _core.Template(
        executable=_interpreter.path(),
        arguments=[*flags, "-c", _TEMPLATE, _to_text(settings)],
        environment=_ENVIRONMENT,
        starts=starts,
    )
    if (early := _take_early(settings)) is not None:
        _state.current.adopt(early)
    _state.key, _state.names = key, wanted
    _register_end(os.getpid())


def _take_early(settings: dict[str, Any]) -> _core.EarlyTemplate | None:
    """Take the early template and let it finish with these settings; None if there is none that fits them."""
    early, _state.early = _state.early, None
    if early is None or _state.early_key != _key_of_process() or not early.fits:
        return None
    return early if set(_state.early_names) <= set(settings["modules"]) and early.tell(_to_text(settings)) else None


@functools.lru_cache(maxsize=1)
def _register_end(process: int) -> None:
    del process  # the key of the cache: a forked child registers again
    # After children are joined: the template reports how they ended.
    util.Finalize(None, _end, exitpriority=-900)


def _end() -> None:
    _state.early = None  # which kills it
    for one in [_state.current, *_state.retired]:
        if one is not None:
            one.end()


def _warn(template: _core.Template) -> None:
    """Warn about modules that were left out, if they are named by `set_preload`; defaults are not missed."""
    for line in template.notes.splitlines():
        name, _, why = line.partition(": ")
        if _state.preload is not None and name in _state.preload:
            _warn_once(name, why)


@functools.cache
def _warn_once(name: str, why: str) -> None:
    warnings.warn(
        f"the template left out {name}, so each process imports it for itself: {why}.\n"
        "  what to do: remove it from drover.set_preload(), or fix its import",
        TemplateWarning,
        stacklevel=4,
    )
