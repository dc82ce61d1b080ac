"""Hooks that run when another library is imported."""

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
    """Call `call` once the module is imported: now if it already is. Imports nothing itself.

    Exceptions are dropped: the program that imports the module did not ask for the hook.
    """
    if name in sys.modules:
        with contextlib.suppress(Exception):
            call()
    else:
        sys.meta_path.insert(0, _Watcher(name, call))


class _Watcher(importlib.abc.MetaPathFinder):
    """An import hook that removes itself when its module is imported."""

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        self._name = name
        self._call = call

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the module as the other finders do, and wrap its loader."""
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
    """Loads a module with another loader, then runs the hook."""

    def __init__(self, loader: Any, call: Callable[[], object]) -> None:
        self._loader = loader
        self._call = call

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module with the original loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Restore the original loader on the module, load it, and run the hook."""
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        with contextlib.suppress(Exception):
            self._call()
