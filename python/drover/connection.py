"""The module `multiprocessing.connection` under drover's name, with drover's pipes."""

from __future__ import annotations

from multiprocessing import connection
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any

from drover._connection import Pipe, PipeConnection

__all__ = ["Client", "Connection", "Listener", "Pipe", "PipeConnection", "wait"]


def __getattr__(name: str) -> Any:
    """Return any other name from the standard module."""
    return getattr(connection, name)
