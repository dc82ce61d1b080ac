"""Decides whether children import the main module, as in multiprocessing, or receive its functions by value."""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path

__all__ = ["is_imported_by_children"]


def _names_main(node: ast.expr) -> bool:
    if not isinstance(node, ast.Compare):
        return False
    parts = [node.left, *node.comparators]
    has_name = any(isinstance(part, ast.Name) and part.id == "__name__" for part in parts)
    return has_name and any(isinstance(part, ast.Constant) and part.value == "__main__" for part in parts)


@functools.lru_cache(maxsize=8)
def _has_guard(path: str) -> bool:
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    tests = (node.test for node in ast.walk(tree) if isinstance(node, ast.If))
    return any(_names_main(part) for test in tests for part in ast.walk(test) if isinstance(part, ast.expr))


def is_imported_by_children() -> bool:
    """Return whether children import the main module: it has a main guard, or was run with `python -m`.

    A program without `if __name__ == "__main__":` would run again in each child, and a notebook or prompt has no file
    to import. Their functions and classes are sent by value.
    """
    main = sys.modules.get("__main__")
    if main is None or getattr(main, "__spec__", None) is not None:
        return True
    path = getattr(main, "__file__", None)
    return path is not None and not hasattr(sys, "ps1") and _has_guard(str(path))
