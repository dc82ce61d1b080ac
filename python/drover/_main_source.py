"""What the source of a main module says about its children, which import it with another name and skip the guard."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["MainSource", "read"]

_MAIN = "__main__"
_Functions = (ast.FunctionDef, ast.AsyncFunctionDef)
_Comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class MainSource(NamedTuple):
    """Facts about the source of a main module."""

    has_guard: bool
    missing: frozenset[str]  # names that children lack, or have with another value; and those that depend on them
    pattern: re.Pattern[bytes] | None  # finds a missing name in a pickle that refers to it


def read(text: str | bytes, path: str) -> MainSource | None:
    """Read a source; return None if it is not valid Python."""
    try:
        tree = ast.parse(text)
        table = symtable.symtable(text, path, "exec")
    except (SyntaxError, ValueError):
        return None
    if not any(_is_guard(node) for node in ast.walk(tree)):
        return MainSource(False, frozenset(), None)
    missing = _set_under_guard(tree)
    missing = frozenset(_dependents(missing, _uses(tree, table)) if missing else ())
    return MainSource(True, missing, _pattern(missing) if missing else None)


def _pattern(names: Iterable[str]) -> re.Pattern[bytes]:
    """Return a pattern for short strings of a pickle, of which a reference to a name is one."""
    either = b"|".join(re.escape(name.encode()) for name in sorted(names))
    return re.compile(rb"\x8c[\x00-\xff](?:" + either + rb")(?![0-9A-Za-z_])", re.DOTALL)


def _is_comparison(node: ast.AST, kind: type[ast.cmpop]) -> bool:
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], kind):
        return False
    parts = [node.left, *node.comparators]
    has_name = any(isinstance(part, ast.Name) and part.id == "__name__" for part in parts)
    return has_name and any(isinstance(part, ast.Constant) and part.value == _MAIN for part in parts)


def _is_guard(node: ast.AST) -> bool:
    """Return whether the program runs statements that its children skip; not if it only refuses to be imported."""
    if not isinstance(node, ast.If):
        return False
    parts = list(ast.walk(node.test))
    is_inverted = any(_is_comparison(part, ast.NotEq) for part in parts)
    return any(_is_comparison(part, ast.cmpop) for part in parts) and bool(node.orelse or not is_inverted)


def _guarded(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements at the module's level that only the program itself runs."""
    for node in body:
        if _is_guard(node):
            assert isinstance(node, ast.If)
            is_inverted = any(_is_comparison(part, ast.NotEq) for part in ast.walk(node.test))
            yield from node.orelse if is_inverted else node.body
        else:
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(node, name, [])
                if isinstance(inner, list) and not isinstance(node, (*_Functions, ast.ClassDef)):
                    yield from _guarded(inner)


class _Bound(ast.NodeVisitor):
    """Collects the names that statements bind in their own scope, and the functions that they call."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.called: set[str] = set()
        self.declared: set[str] = set()  # by `global`

    def visit_Name(self, node: ast.Name) -> None:
        """Note a name that is assigned or deleted."""
        if not isinstance(node.ctx, ast.Load):
            self.names.add(node.id)

    def visit_Call(self, node: ast.Call) -> None:
        """Note a function that is called by its name."""
        if isinstance(node.func, ast.Name):
            self.called.add(node.func.id)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        """Note names of the module."""
        self.declared.update(node.names)

    def visit_alias(self, node: ast.alias) -> None:
        """Note an imported name."""
        self.names.add(node.asname or node.name.partition(".")[0])

    def generic_visit(self, node: ast.AST) -> None:
        """Note what other nodes bind; do not enter other scopes."""
        if isinstance(node, (*_Functions, ast.ClassDef)):
            self.names.add(node.name)
        elif isinstance(node, _Comprehensions):
            self._visit_comprehension(node)
        elif not isinstance(node, ast.Lambda):
            for field in ("name", "rest"):  # of an exception handler or a pattern
                if isinstance(name := getattr(node, field, None), str):
                    self.names.add(name)
            super().generic_visit(node)

    def _visit_comprehension(self, node: ast.AST) -> None:
        """Its variables are its own, except for those that `:=` assigns."""
        inner = _Bound()
        for child in ast.iter_child_nodes(node):
            inner.visit(child)
        walrus = (part.target for part in ast.walk(node) if isinstance(part, ast.NamedExpr))
        self.names.update(target.id for target in walrus)
        self.called |= inner.called


def _set_under_guard(tree: ast.Module) -> set[str]:
    """Return the names that are set under the guard, or by functions and classes that are called from there."""
    seen = _Bound()
    for statement in _guarded(tree.body):
        seen.visit(statement)
    definitions = {node.name: node for node in tree.body if isinstance(node, (*_Functions, ast.ClassDef))}
    names, waiting, done = set(seen.names), set(seen.called), set[str]()
    while waiting:
        done.add(name := waiting.pop())
        for function in ast.walk(definitions.get(name, ast.Module([], []))):
            if isinstance(function, _Functions):
                inner = _Bound()
                for statement in function.body:
                    inner.visit(statement)
                names |= inner.declared & inner.names
                waiting |= inner.called - done
    return names


def _uses(tree: ast.Module, table: symtable.SymbolTable) -> dict[str, set[str]]:
    """Return, for each name of the module, the other names of the module that its definition uses."""
    uses: dict[str, set[str]] = {}
    names = set(table.get_identifiers())
    for child in table.get_children():
        if child.get_name() in names:  # and not a lambda or a comprehension
            uses.setdefault(child.get_name(), set()).update(_globals_of(child))
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            used = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in (part for one in targets for part in ast.walk(one)):
                if isinstance(target, ast.Name):
                    uses.setdefault(target.id, set()).update(used)
        elif isinstance(node, (*_Functions, ast.ClassDef)):
            outside = [*node.decorator_list, *getattr(node, "bases", ())]
            used = {part.id for one in outside for part in ast.walk(one) if isinstance(part, ast.Name)}
            uses.setdefault(node.name, set()).update(used)
    return uses


def _globals_of(table: symtable.SymbolTable) -> Iterator[str]:
    yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
    for child in table.get_children():
        yield from _globals_of(child)


def _dependents(names: set[str], uses: dict[str, set[str]]) -> set[str]:
    """Return the names and all that use them, directly or not."""
    found = set(names)
    while more := {name for name, used in uses.items() if name not in found and not used.isdisjoint(found)}:
        found |= more
    return found
