"""The docstrings of public names: their examples run as printed, at a prompt."""

from __future__ import annotations

import doctest
import importlib
import os
import subprocess
import sys
import tempfile
from types import FunctionType, ModuleType
from typing import Any

import drover
import pytest

# Where a newcomer starts.
WITH_EXAMPLE = {"Executor", "Lock", "Pool", "Process", "Queue", "Session", "empty", "torch.empty"}
# Modules with public names of their own, and the libraries that they need.
LIBRARIES = {"torch": "torch", "cupy": "cupy", "joblib": "joblib"}
TIMEOUT_S = 120

# Runs one docstring as a prompt would; a name without a module, since functions typed at a prompt have none.
RUNNER = """
import doctest, sys
example = doctest.DocTestParser().get_doctest(sys.stdin.read(), globals(), sys.argv[1], None, 0)
sys.exit(doctest.DocTestRunner(verbose=False).run(example, clear_globs=False).failed)
"""


def members_of(kind: Any) -> dict[str, Any]:
    """Return the public methods and properties that a class has from drover; nothing of a function."""
    bases = [base for base in getattr(kind, "__mro__", ()) if base.__module__.startswith("drover")]
    members = {name: member for base in reversed(bases) for name, member in vars(base).items()}
    kinds = (FunctionType, property)
    return {name: one for name, one in members.items() if isinstance(one, kinds) and not name.startswith("_")}


def documented(owner: ModuleType, prefix: str = "") -> dict[str, str]:
    """Return the docstrings of the public names of a module, and of the public members of their classes."""
    found: dict[str, str] = {}
    for name in owner.__all__:
        thing = getattr(owner, name)
        if (getattr(thing, "__module__", None) or "").startswith("drover"):
            found[prefix + name] = thing.__doc__ or ""
            found |= {f"{prefix}{name}.{part}": one.__doc__ or "" for part, one in members_of(thing).items()}
    return found


def all_documented() -> dict[str, str]:
    """Return the docstrings of the package, and of its modules whose library is installed."""
    found = documented(drover)
    for name in LIBRARIES:
        try:
            found |= documented(importlib.import_module(f"drover.{name}"), f"{name}.")
        except ModuleNotFoundError:
            continue
    return found


DOCSTRINGS = all_documented()
EXAMPLES = sorted(name for name, text in DOCSTRINGS.items() if ">>>" in text)


@pytest.mark.parametrize("name", sorted(WITH_EXAMPLE))
def test_starting_point_has_an_example(name: str) -> None:
    """The classes and functions that a program uses first."""
    library = LIBRARIES.get(name.partition(".")[0])
    if library is not None:
        pytest.importorskip(library)
    assert name in EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_prints_what_it_shows(name: str) -> None:
    """In a fresh interpreter, with a directory for named sessions of its own."""
    if name == "empty":
        pytest.importorskip("numpy")
    with tempfile.TemporaryDirectory(prefix="drover_test_") as folder:
        done = subprocess.run(
            [sys.executable, "-c", RUNNER, name],
            input=DOCSTRINGS[name],
            env={**os.environ, "XDG_RUNTIME_DIR": folder},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_example_that_prints_something_else_is_noticed() -> None:
    """The runner fails, and shows what was expected."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, "wrong"], input=">>> 1 + 1\n3\n", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Expected:\n    3\nGot:\n    2\n" in done.stdout


def test_examples_are_complete() -> None:
    """Each one imports what it uses, and shows a result."""
    for name in EXAMPLES:
        parts = doctest.DocTestParser().get_examples(DOCSTRINGS[name])
        assert parts[0].source.startswith("import drover"), name
        assert any(part.want for part in parts), name


def test_docstrings_begin_with_a_sentence() -> None:
    """One line that ends in a full stop, then an empty line."""
    for name, text in DOCSTRINGS.items():
        first, _, rest = text.partition("\n")
        assert first.strip().endswith((".", ":")), f"{name}: {first}"
        assert not rest or rest.startswith(("\n", "        \n")), f"{name}: {first}"
