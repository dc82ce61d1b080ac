"""Actors: objects that live in a worker of a pool and are called from the process that owns the pool."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from drover import _core, _functions
from drover._errors import Error, InvalidArgument, PeerLost
from drover._executor import Future

if TYPE_CHECKING:
    from drover._pool import Pool

__all__ = ["Actor"]

_MAKE, _END = "", "end"  # sent in place of a method name; real names are sent with a leading dot
_numbers = itertools.count()


class Recipe:
    """The class and arguments of an actor; in its worker, also the object.

    A worker process caches one recipe for all tasks that name it, so the recipe is unpickled once per process. A
    recipe without its object therefore means that the process which held the object has ended.
    """

    def __init__(self, kind: Callable[..., Any], args: Any, kwargs: Any, restart: bool) -> None:
        self.__qualname__ = _functions.title_of(kind)  # shown by `drover ps`
        self._made_of = (kind, args, kwargs)
        self._restart = restart
        self._name = f"{os.getpid()}.{next(_numbers)}"  # makes the pickle of each recipe unique
        self._object: Any = None
        self._failure: BaseException | None = None
        self._is_ended = False

    def __call__(self, method: str, args: Any, kwargs: Any) -> Any:
        """Create the object, drop it, or call one of its methods."""
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
        """Return whether the worker must not evict this recipe from its cache, because it holds the object."""
        return not self._is_ended

    def _make(self, is_new: bool) -> None:
        if self._failure is not None:
            raise self._failure
        if not is_new and not self._restart:
            raise PeerLost(
                f"the process that held the actor {self.__qualname__} has ended; its replacement, {_where()}, does "
                "not have it",
                "create another one with pool.actor(...), or use pool.actor(..., restart=True) to have it recreated; "
                "do not combine actors with maxtasksperchild or idle_limit, which end workers",
            )
        kind, args, kwargs = self._made_of
        try:
            self._object = kind(*args, **kwargs)
        except BaseException as error:
            self._failure = error
            raise


def _where() -> str:
    return f"{_core.this_worker().name} (pid {os.getpid()})"


class Actor:
    """An object in a worker. Each method call returns a `Future`; calls run one at a time, in order.

    The object is dropped at the end of `with pool.actor(...) as actor:`, otherwise when the last reference to this
    actor goes away.
    """

    def __init__(self, pool: Pool, worker: int, recipe: Recipe, options: dict[str, Any]) -> None:
        """Create the object; called by `Pool.actor`."""
        encoded = _functions.encode(recipe, _functions.METHOD, by_reference=True)
        task_options = _core.TaskOptions(**options, worker=worker)
        self._worker = worker
        self._kind = recipe.__qualname__
        self._start = _Start(pool._core, encoded, task_options)
        self._start(self._kind, _MAKE)
        self._end = weakref.finalize(self, _end, self._start, self._kind)
        self._end.atexit = False

    @property
    def worker(self) -> int:
        """The index of the worker that holds the object."""
        return self._worker

    def __getattr__(self, name: str) -> Callable[..., Future[Any]]:
        """Return a callable for a method. Whether the method exists is only known in the worker."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._call(name, args, kwargs)

    def _call(self, name: str, args: Any, kwargs: Any) -> Future[Any]:
        if not self._end.alive:
            raise InvalidArgument(
                f"the actor {self._kind} was called after it ended", "create another one with pool.actor()"
            )
        return self._start(f"{self._kind}.{name}", f".{name}", args, kwargs)

    def __enter__(self) -> Actor:
        """Return this actor."""
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the object once the calls made so far are done."""
        self._end()

    def __reduce__(self) -> Any:
        """Refuse to be pickled: an actor belongs to the process that created it."""
        raise TypeError(f"cannot send the actor {self._kind}: only the process that owns its pool can call it")

    def __repr__(self) -> str:
        """Show the class and the worker."""
        return f"<drover actor {self._kind} in worker {self._worker}>"


class _Start:
    """Starts calls of an actor and keeps their futures alive until they are done."""

    def __init__(self, core: _core.Pool, encoded: Any, options: _core.TaskOptions) -> None:
        self._core = core
        self._encoded = encoded
        self._options = options
        self._in_flight: set[Future] = set()

    def __call__(self, title: str, method: str, args: Any = (), kwargs: Any = None) -> Future[Any]:
        future = Future()
        calls = self._core.calls(title, *self._encoded, self._options)
        future._calls = calls
        future._executor = self
        self._in_flight.add(future)
        try:
            calls.submit((method, args, kwargs or {}))
        except BaseException:
            self._forget(future)
            raise
        calls.close(future._finish)
        return future

    def _forget(self, future: Future) -> None:
        self._in_flight.discard(future)

    def _broken_by(self, error: Error) -> None:
        """Return None, so that the error is raised unchanged: an actor is not a concurrent.futures executor."""


def _end(start: _Start, kind: str) -> None:
    try:
        start(kind, _END)
    except Exception:  # the pool has ended and taken the object with it
        return
