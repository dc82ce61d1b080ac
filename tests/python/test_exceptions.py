"""Exceptions of tasks arrive as themselves, whatever their constructors take."""

from __future__ import annotations

import builtins
import json
import pickle
import weakref
from collections.abc import Iterator
from multiprocessing.pool import MaybeEncodingError
from typing import Any

import drover
import pytest
from drover import _exceptions


class KeywordOnlyError(Exception):
    """Has an argument that `args` does not contain."""

    def __init__(self, code: int, *, detail: str) -> None:
        """Make a message."""
        super().__init__(f"code {code}")
        self.code, self.detail = code, detail


class JoinedError(Exception):
    """Takes two arguments and passes on one."""

    def __init__(self, one: str, other: str) -> None:
        """Join them."""
        super().__init__(one + other)
        self.parts = [one, other]


class PrefixedError(Exception):
    """Would have its prefix twice if its constructor was called with its message."""

    def __init__(self, number: int) -> None:
        """Add the prefix."""
        super().__init__(f"number {number}")


class FailedError(OSError):
    """Has attributes in members of its base."""

    def __init__(self, path: str, *, attempts: int) -> None:
        """Describe the file."""
        super().__init__(5, "failed", path)
        self.attempts = attempts


class SlottedError(ValueError):
    """Has no dict of its own class, and an empty slot."""

    __slots__ = ("empty", "position")

    def __init__(self, position: int, *, unit: str) -> None:
        """Describe the place."""
        super().__init__(f"{position} {unit}")
        self.position = position


class StrictError(Exception):
    """Has a `__new__` that checks its arguments."""

    def __new__(cls, *args: Any, key: str = "") -> StrictError:
        """Require the key."""
        if not key:
            raise TypeError("no key")
        return super().__new__(cls, *args)

    def __init__(self, text: str, *, key: str) -> None:
        """Keep the key."""
        super().__init__(text)
        self.key = key


class LockedError(Exception):
    """Cannot be sent."""


def throw(kind: str) -> None:
    """Raise an exception."""
    raise make(kind)


def make(kind: str) -> BaseException:
    """Return an exception."""
    if kind == "locked":
        error = LockedError("x")
        error.items = (item for item in [])  # type: ignore[attr-defined]
        return error
    if kind == "group":
        group = builtins.ExceptionGroup
        return group(
            "many", [KeywordOnlyError(1, detail="d"), group("inner", [JoinedError("a", "b")]), ValueError(3)]
        )
    try:
        json.loads("{")
    except ValueError as error:
        decoding = error
    noted = ValueError("noted")
    noted.__notes__ = ["a note"]  # type: ignore[attr-defined]
    return {
        "keyword": KeywordOnlyError(3, detail="d"),
        "joined": JoinedError("a", "b"),
        "prefixed": PrefixedError(4),
        "failed": FailedError("/a", attempts=2),
        "slotted": SlottedError(7, unit="mm"),
        "strict": StrictError("text", key="k"),
        "plain": KeyError("missing"),
        "decoding": decoding,
        "unicode": UnicodeDecodeError("utf8", b"x", 0, 1, "reason"),
        "noted": noted,
    }[kind]


class OwnWayError(Exception):
    """Says itself how it is pickled."""

    def __reduce__(self) -> Any:
        """Become another exception."""
        return KeyError, ("another",)


def test_own_way_of_pickling_is_kept() -> None:
    """Also in a group."""
    error = OwnWayError("x")
    assert _exceptions.portable(error) is error
    if hasattr(builtins, "ExceptionGroup"):
        group = builtins.ExceptionGroup("g", [error, JoinedError("a", "b")])
        back = pickle.loads(pickle.dumps(_exceptions.portable(group)))
        assert isinstance(back.exceptions[0], KeyError)
        assert back.exceptions[1].parts == ["a", "b"]


def test_exception_that_is_observed_is_portable() -> None:
    """Weak references to it, and its traceback, stay here."""
    error = KeywordOnlyError(3, detail="d")
    observer = weakref.ref(error)
    back = pickle.loads(pickle.dumps(_exceptions.portable(error)))
    assert (type(back), back.code, back.detail, str(back)) == (KeywordOnlyError, 3, "d", "code 3")
    assert observer() is error


@pytest.fixture(scope="module")
def pool() -> Iterator[Any]:
    """A pool with one worker."""
    with drover.Pool(1) as made:
        yield made


KINDS = ["keyword", "joined", "prefixed", "failed", "slotted", "strict", "plain", "decoding", "unicode", "noted"]
ATTRIBUTES = [
    "errno",
    "strerror",
    "filename",
    "position",
    "code",
    "detail",
    "parts",
    "key",
    "pos",
    "start",
    "attempts",
]


@pytest.mark.parametrize("kind", KINDS)
def test_exception_arrives_as_itself(pool: Any, kind: str) -> None:
    """With its message, its arguments and its attributes."""
    error = make(kind)
    with pytest.raises(type(error)) as raised:
        pool.apply(throw, (kind,))
    back = raised.value
    assert type(back) is type(error)
    assert (str(back), back.args) == (str(error), error.args)
    assert back.__dict__ == error.__dict__
    for name in ATTRIBUTES:
        assert getattr(back, name, None) == getattr(error, name, None)
    assert "in throw" in str(back.__cause__), "the traceback of the worker"


def test_group_arrives_with_its_parts(pool: Any) -> None:
    """Nested ones too."""
    if not hasattr(builtins, "ExceptionGroup"):
        pytest.skip("this Python has no exception groups")
    with pytest.raises(builtins.ExceptionGroup) as raised:
        pool.apply(throw, ("group",))
    first, inner, last = raised.value.exceptions
    assert (type(first), first.detail) == (KeywordOnlyError, "d")
    assert inner.exceptions[0].parts == ["a", "b"]
    assert last.args == (3,)


def test_executor_raises_it_too() -> None:
    """As concurrent.futures would if it could."""
    with drover.Executor(1) as executor, pytest.raises(KeywordOnlyError, match="code 3") as raised:
        executor.submit(throw, "keyword").result()
    assert raised.value.detail == "d"


def test_exception_that_cannot_be_sent_is_described(pool: Any) -> None:
    """The worker goes on."""
    with pytest.raises(MaybeEncodingError, match=r"LockedError\('x'\)"):
        pool.apply(throw, ("locked",))
    assert pool.apply(abs, (-1,)) == 1
