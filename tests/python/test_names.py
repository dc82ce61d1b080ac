"""The package has the names of multiprocessing."""

from __future__ import annotations

import importlib
import multiprocessing

import drover
import pytest

SUBMODULES = [
    "connection",
    "context",
    "dummy",
    "managers",
    "pool",
    "process",
    "queues",
    "reduction",
    "shared_memory",
    "sharedctypes",
    "synchronize",
    "util",
]


def test_every_public_name_of_multiprocessing_exists() -> None:
    """In the module, in `__all__`, and in the context."""
    names = set(multiprocessing.__all__)
    assert sorted(name for name in names if not hasattr(drover, name)) == []
    assert sorted(names - set(drover.__all__)) == []
    standard, ours = multiprocessing.get_context(), drover.get_context()
    assert sorted(name for name in names if hasattr(standard, name) and not hasattr(ours, name)) == []


@pytest.mark.parametrize("name", drover.__all__)
def test_listed_name_exists(name: str) -> None:
    """So that `from drover import *` works."""
    assert getattr(drover, name) is not None


@pytest.mark.parametrize("name", SUBMODULES)
def test_module_is_an_attribute_and_can_be_imported(name: str) -> None:
    """And has the public names of the standard module."""
    module = importlib.import_module(f"drover.{name}")
    assert getattr(drover, name) is module
    standard = importlib.import_module(f"multiprocessing.{name}")
    assert [public for public in getattr(standard, "__all__", []) if not hasattr(module, public)] == []


def test_multiprocessing_finds_the_context_by_name() -> None:
    """So that code that takes the name of a start method takes ours."""
    assert multiprocessing.get_context("drover") is drover.get_context()
    assert "drover" in multiprocessing.get_all_start_methods()
    assert isinstance(drover.get_context(), multiprocessing.context.BaseContext)


def test_context_and_package_create_the_same_classes() -> None:
    """Locks, queues, barriers and processes."""
    context = drover.get_context()
    for name in ("Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition", "Event"):
        assert type(getattr(context, name)()) is getattr(drover, name)
    for name in ("Queue", "JoinableQueue", "SimpleQueue"):
        assert type(getattr(context, name)()) is getattr(drover, name)
    assert type(context.Barrier(2)) is drover.Barrier
    assert context.Process is drover.Process


def test_start_method_is_remembered() -> None:
    """So that programs that set one need no change."""
    context = drover.DroverContext()
    assert context.get_start_method() == "drover"
    assert context.get_start_method(allow_none=True) is None
    context.set_start_method("spawn")
    assert context.get_start_method() == "spawn"
    with pytest.raises(RuntimeError, match="already"):
        context.set_start_method("fork")
    context.set_start_method("fork", force=True)
    assert context.get_start_method() == "fork"
    with pytest.raises(ValueError, match="cannot find context"):
        context.set_start_method("no such method", force=True)
