"""Errors of pickling say which part of the object cannot be sent, and where it is."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import drover
import pytest
from drover import _objects

LOCK = threading.Lock()


class Holder:
    """Has attributes of both kinds."""

    __slots__ = ("__dict__", "slot")

    def __init__(self, slot: Any = None, **others: Any) -> None:
        """Set them."""
        self.slot = slot
        self.__dict__.update(others)

    def method(self) -> None:
        """Do nothing."""


def numbers() -> Iterator[int]:
    """Yield a number."""
    yield 1


def take(config: Any, scale: int = 1) -> int:
    """Take arguments."""
    return len(str(config)) * scale


def keeping(thing: Any) -> Callable[[], Any]:
    """Return a function that has a variable."""
    return lambda: thing


PLACES: list[tuple[str, Callable[[], Any]]] = [
    ("object['lock']", lambda: {"x": 1, "lock": threading.Lock()}),
    ("object[1]['a'][2]", lambda: [0, {"a": (1, [2], threading.Lock())}]),
    ("object.inner['a'].slot", lambda: Holder(inner={"a": Holder(slot=threading.Lock())})),
    ("object[0].__self__.lock", lambda: [Holder(lock=threading.Lock()).method]),
    ("object.args[1]", lambda: functools.partial(take, 1, threading.Lock())),
    ("object['f'], in its variable thing[0]", lambda: {"f": keeping([threading.Lock()])}),
    ("object['g']", lambda: {"g": numbers()}),
    ("object['m']['r']", lambda: {"m": {"r": threading.RLock()}}),
]


@pytest.mark.parametrize(("place", "made"), PLACES, ids=[place for place, _ in PLACES])
def test_error_names_the_place(place: str, made: Callable[[], Any]) -> None:
    """In queues and pipes, whose objects have no name."""
    thing = made()
    with pytest.raises(TypeError, match=r"^cannot pickle '.*' object; it is ") as raised:
        drover.Queue().put(thing)
    assert str(raised.value).partition("; it is ")[2].partition("\n")[0] == place
    with pytest.raises(TypeError) as again:
        drover.Pipe()[0].send(thing)
    assert str(again.value) == str(raised.value)


def test_remedy_follows_the_place() -> None:
    """On a line of its own."""
    with pytest.raises(TypeError, match=r"object; it is object\['x'\]\n  what to do: send a list"):
        drover.Queue().put({"x": numbers()})
    with pytest.raises(TypeError, match=r"object\n  what to do: send a list"):
        drover.Queue().put(numbers())


def test_error_names_parameters() -> None:
    """Of a target, an initializer, and the function of a task, however it is called."""
    config = {"lock": threading.Lock()}
    with drover.Pool(1) as pool, drover.Executor(1) as executor:
        attempts: list[Callable[[], Any]] = [
            lambda: drover.Process(target=take, args=(config,)).start(),
            lambda: drover.Process(target=take, kwargs={"config": config}).start(),
            lambda: drover.Pool(1, take, (config,)),
            lambda: pool.apply(take, (config,)),
            lambda: pool.apply(take, (), {"config": config}),
            lambda: pool.apply_async(take, (config, 2)),
            lambda: pool.map(take, [{}, config], 1),
            lambda: pool.map(take, [{}, config], 2),
            lambda: pool.starmap(take, [(config, 1)]),
            lambda: pool.starmap(take, [(1, 1), (config, 1)], 2),
            lambda: list(pool.imap(take, [config])),
            lambda: list(pool.imap_unordered(take, [config])),
            lambda: executor.submit(take, config),
            lambda: list(executor.map(take, [config])),
        ]
        for attempt in attempts:
            with pytest.raises(TypeError, match=r"it is config\['lock'\]\n  what to do: use drover.Lock"):
                attempt()
        with pytest.raises(TypeError, match=r"it is scale\n  what to do: use drover"):
            pool.apply(take, (1, threading.Lock()))
        with pytest.raises(TypeError, match=r"it is config\n  what to do: send a list"):
            pool.map(take, [numbers()])
        with pytest.raises(TypeError, match=r"it is args\[1\]\['lock'\]"):
            pool.apply(print, (1, config))
        assert pool.apply(take, ({},)) == 2


def test_result_names_the_place() -> None:
    """In the reason of MaybeEncodingError."""
    with drover.Pool(1) as pool, pytest.raises(drover.pool.MaybeEncodingError, match=r"object\['lock'\]"):
        pool.apply(eval, ("{'lock': __import__('threading').Lock()}",))


def test_tensor_with_a_history_is_named() -> None:
    """By the error of drover, which keeps its remedy."""
    torch = pytest.importorskip("torch")
    tensor = torch.ones(3, requires_grad=True) * 2
    with pytest.raises(drover.InvalidArgument, match=r"it is object\['state'\]\[1\]") as raised:
        drover.Queue().put({"state": [1, tensor]})
    assert raised.value.remedy == "send tensor.detach()"
    assert "object['state'][1]" in raised.value.message


class Refusing:
    """Raises an error of its own."""

    def __reduce__(self) -> Any:
        """Refuse."""
        raise ValueError("not me")


def test_errors_of_the_program_stay_as_they_are() -> None:
    """Only those of pickling are extended."""
    with pytest.raises(ValueError, match=r"^not me$"):
        drover.Queue().put({"x": Refusing()})


def test_path_through_a_structure_that_contains_itself_is_short() -> None:
    """Functions that name themselves, for example."""

    def endless(n: int) -> Any:
        return endless(n - 1) if n else held

    held = iter(numbers())
    with pytest.raises(TypeError, match=r"it is object\[0\], in its variable held\n  what to do: send a list"):
        drover.Queue().put([endless])


def test_search_is_bounded_and_leaves_nothing_behind() -> None:
    """Large structures, and those that contain themselves."""
    endless: list[Any] = [threading.Lock()]
    endless.insert(0, endless)
    wide = {number: {number} for number in range(20_000)}
    wide[20_000] = threading.Lock()  # type: ignore[assignment]
    for thing in (endless, wide):
        with pytest.raises(TypeError, match="cannot pickle"):
            _objects.dumps(thing)
    state = _objects._local.state
    assert (state.maker, state.undo, state.inline) == (None, [], _objects.INLINE)
    deep: Any = threading.Lock()
    for _ in range(sys.getrecursionlimit()):
        deep = [deep]
    with pytest.raises((RecursionError, TypeError)):
        _objects.dumps(deep)
    assert _objects.loads(*_objects.dumps([{1}])) == [{1}]
