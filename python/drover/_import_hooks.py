"""Hooks that run when another library is imported."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["call_once_imported"]


def call_once_imported(name: str, call: Callable[[], object]) -> None:
    """Call `call` once the module is imported: now if it already is. Imports nothing itself.

    An import that fails, or a program that only looks for the module, does not count.

    Exceptions are dropped: the program that imports the module did not ask for the hook.
    """
    if name in sys.modules:
        with contextlib.suppress(Exception):
            call()
    else:
        sys.meta_path.insert(0, _Watcher(name, call))


class _Watcher:
    """An import hook that does nothing any more once its module has been imported.

    It stays in the list: while one is removed, another thread that goes through the list misses the next finder, and
    finds no module such as `_symtable`.
    """

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        self._name = name
        self._calls = [call]  # empty once it was called

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the module as the finders behind this one do, and wrap its loader."""
        if fullname != self._name or not self._calls:
            return None
        finders = list(sys.meta_path)
        behind = finders[finders.index(self) + 1 :] if self in finders else []
        specs = (finder.find_spec(fullname, path, target) for finder in behind if hasattr(finder, "find_spec"))
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]
        return spec

    def finish(self) -> None:
        """Run the hook, unless it was run before."""
        with contextlib.suppress(Exception):
            self._calls.pop()()


class _Loader:
    """Loads a module with another loader, then runs the hook."""

    def __init__(self, loader: Any, watcher: _Watcher) -> None:
        self._loader = loader
        self._watcher = watcher

    def __getattr__(self, name: str) -> Any:
        """Look up what programs ask of loaders, such as the source, in the original one."""
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module with the original loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Restore the original loader on the module, load it, and run the hook unless that fails."""
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._watcher.finish()
