"""Actors: objects that live in a worker of a pool, and are called from here."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from drover import _core, _functions
from drover._errors import InvalidArgument, PeerLost
from drover._executor import Future

if TYPE_CHECKING:
    from drover._pool import Pool

__all__ = ["Actor"]

_MAKE, _END = "", "end"  # in place of a method's name; no method is called so, being preceded by a point
_numbers = itertools.count()


class Recipe:
    """What an actor is made from, and in its worker the actor itself.

    Workers keep one of these for all tasks that name it. So it is pickled once for each process of a worker, and
    whoever has it without its object knows that the object was in a process that has ended.
    """

    def __init__(self, kind: Callable[..., Any], args: Any, kwargs: Any, restart: bool) -> None:
        self.__qualname__ = _functions.title_of(kind)  # by which `drover ps` shows its calls
        self._made_of = (kind, args, kwargs)
        self._restart = restart
        self._name = f"{os.getpid()}.{next(_numbers)}"  # no two are pickled alike
        self._object: Any = None
        self._failure: BaseException | None = None
        self._is_ended = False

    def __call__(self, method: str, args: Any, kwargs: Any) -> Any:
        """Make the object, end it, or call a method of it."""
        if method == _END:
            self._object = self._made_of = None
            self._is_ended = True
            return None
        if self._object is None and not self._is_ended:
            self._make(is_new=method == _MAKE)
        if method == _MAKE:
            return None
        return getattr(self._object, method[1:])(*args, **kwargs)

    def must_be_kept(self) -> bool:
        """Tell whether a worker must not forget it: it has the object."""
        return not self._is_ended

    def _make(self, is_new: bool) -> None:
        if self._failure is not None:
            raise self._failure
        if not is_new and not self._restart:
            raise PeerLost(
                f"the actor {self.__qualname__} is gone with the process in which it was; {_where()} has none",
                "make another with pool.actor(...), or let it be made anew by pool.actor(..., restart=True); do not "
                "use actors with maxtasksperchild or idle_limit, which end workers",
            )
        kind, args, kwargs = self._made_of
        try:
            self._object = kind(*args, **kwargs)
        except BaseException as error:
            self._failure = error
            raise


def _where() -> str:
    return f"{_core.this_worker().name}, process {os.getpid()},"


class Actor:
    """An object in a worker. Each method gives a future; calls are run in order, one after another.

    `with pool.actor(...) as it` ends it with the block; else it ends when nobody refers to it any more.
    """

    def __init__(self, pool: Pool, worker: int, recipe: Recipe, options: dict[str, Any]) -> None:
        """Made by `Pool.actor`."""
        encoded = _functions.encode(recipe, _functions.APPLIED)
        told = _core.TaskOptions(**options, worker=worker)
        self._worker = worker
        self._kind = recipe.__qualname__
        self._start = _Start(pool._core, encoded, told)
        self._start(self._kind, _MAKE)
        self._end = weakref.finalize(self, _end, self._start, self._kind)
        self._end.atexit = False

    @property
    def worker(self) -> int:
        """The number of its worker."""
        return self._worker

    def __getattr__(self, name: str) -> Callable[..., Future]:
        """Give a method, by its name; whether there is one is known in the worker."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._call(name, args, kwargs)

    def _call(self, name: str, args: Any, kwargs: Any) -> Future:
        if not self._end.alive:
            raise InvalidArgument(
                f"the actor {self._kind} was called after its end", "make another with pool.actor()"
            )
        return self._start(f"{self._kind}.{name}", f".{name}", args, kwargs)

    def __enter__(self) -> Actor:
        """Use it for a block of statements, and end it then."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it, after what was called before."""
        self._end()

    def __reduce__(self) -> Any:
        """Refuse: it belongs to the process that made it."""
        raise TypeError(f"the actor {self._kind} cannot be sent: only the process that has its pool can call it")

    def __repr__(self) -> str:
        """Show what it is and where."""
        return f"<drover actor {self._kind} in worker {self._worker}>"


class _Start:
    """Begins calls of an actor, and keeps their futures until they are done."""

    def __init__(self, core: _core.Pool, encoded: Any, options: _core.TaskOptions) -> None:
        self._core = core
        self._encoded = encoded
        self._options = options
        self._under_way: set[Future] = set()

    def __call__(self, title: str, method: str, args: Any = (), kwargs: Any = None) -> Future:
        future = Future()
        calls = self._core.calls(title, *self._encoded, self._options)
        future._calls = calls
        future._executor = self
        self._under_way.add(future)
        try:
            calls.submit(((method, args, kwargs or {}), {}))
        except BaseException:
            self._forget(future)
            raise
        calls.close(future._finish)
        return future

    def _forget(self, future: Future) -> None:
        self._under_way.discard(future)

    def _broken_by(self, error: PeerLost) -> None:
        """Raise it as it is: this is no executor of concurrent.futures."""


def _end(start: _Start, kind: str) -> None:
    try:
        start(kind, _END)
    except Exception:  # the pool has ended, and the object with it
        return
