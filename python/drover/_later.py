"""What is done when another library is imported, whenever that is."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["call_once_imported"]


def call_once_imported(name: str, call: Callable[[], object]) -> None:
    """Call it now if a module is imported already, else as soon as it is. Imports nothing by itself.

    What it raises is dropped: the program imports that module for its own reasons.
    """
    if name in sys.modules:
        with contextlib.suppress(Exception):
            call()
    else:
        sys.meta_path.insert(0, _Watcher(name, call))


class _Watcher(importlib.abc.MetaPathFinder):
    """Waits for a module, and is gone when it comes."""

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        self._name = name
        self._call = call

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find what all others find, and see when it is loaded."""
        del path, target
        if fullname != self._name:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._call)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads as another does, and calls then."""

    def __init__(self, loader: Any, call: Callable[[], object]) -> None:
        self._loader = loader
        self._call = call

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to the other."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Load it; then let the module look as if nothing had happened, and call."""
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        with contextlib.suppress(Exception):
            self._call()
