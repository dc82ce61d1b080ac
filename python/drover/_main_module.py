"""Decides whether children import the main module, as in multiprocessing, or receive what it defines by value."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drover import _main_source

__all__ = ["are_known_to_children", "is_imported_by_children", "is_known_to_children", "own_id"]

_own: tuple[int, str] = (0, "")


def own_id() -> str:
    """Return an identifier of this process, by which those that it starts recognise its messages."""
    global _own  # noqa: PLW0603 (one for the process, and another for its forks)
    if _own[0] != os.getpid():
        _own = (os.getpid(), os.urandom(8).hex())
    return _own[1]


def is_imported_by_children() -> bool:
    """Return whether children import the main module: a file or module with a main guard.

    A program without `if __name__ == "__main__":` would run again in each child; a notebook or prompt has no file to
    import; and `python -m package`, a directory and an archive have a `__main__.py`, which has no other name. Their
    functions and classes are sent by value.
    """
    source = _source()
    return source is not None and source.has_guard


def are_known_to_children(pickled: bytes) -> bool:
    """Return whether children have everything of the main module to which a pickle refers by name."""
    source = _source()
    return source is not None and source.has_guard and not (source.pattern and source.pattern.search(pickled))


def is_known_to_children(thing: Any) -> bool:
    """Return whether children have this function or class of the main module under its name."""
    source = _source()
    if source is None or not source.has_guard:
        return False
    name = str(thing.__qualname__)
    if name.partition(".")[0] in source.missing:
        return False
    found: Any = sys.modules["__main__"]
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is thing


def _reader() -> Any:
    from drover import _main_source  # noqa: PLC0415 (imported only if needed)

    return _main_source


def _nothing_is_missing() -> _main_source.MainSource:
    return _reader().MainSource(True, frozenset(), None)


def _source() -> _main_source.MainSource | None:
    main = sys.modules.get("__main__")
    if main is None:
        return _nothing_is_missing()
    if (spec := getattr(main, "__spec__", None)) is not None:
        return None if spec.name.rpartition(".")[2] == "__main__" else _source_of_module(spec)
    path = getattr(main, "__file__", None)
    return None if path is None or hasattr(sys, "ps1") else _source_of_file(str(path))


@functools.lru_cache(maxsize=8)
def _source_of_file(path: str) -> _main_source.MainSource | None:
    try:
        with open(path, "rb") as file:
            return _reader().read(file.read(), path)
    except OSError:
        return None


_sources_of_modules: dict[str, _main_source.MainSource | None] = {}


def _source_of_module(spec: Any) -> _main_source.MainSource | None:
    """Return the source of a module that was run with `python -m`; one without a source is imported."""
    if spec.name not in _sources_of_modules:
        try:
            text = spec.loader.get_source(spec.name)
        except (AttributeError, ImportError, OSError):
            text = None
        read = _nothing_is_missing() if text is None else _reader().read(text, spec.origin or spec.name)
        _sources_of_modules[spec.name] = read
    return _sources_of_modules[spec.name]
