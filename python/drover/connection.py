"""What programs take from `multiprocessing.connection`: drover's pipes, and the standard sockets and `wait`."""

from __future__ import annotations

from multiprocessing import connection
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any

from drover._connection import Pipe, PipeConnection

__all__ = ["Client", "Connection", "Listener", "Pipe", "PipeConnection", "wait"]


def __getattr__(name: str) -> Any:
    """Give what else the standard module has."""
    return getattr(connection, name)
