"""One exception type per error code. All derive from `drover.Error`, and from Python's own type where one fits."""

from __future__ import annotations

from drover import _core

__all__ = [
    "Busy",
    "Cancelled",
    "Corrupt",
    "DeviceFault",
    "DeviceLost",
    "DeviceMemory",
    "DriverMismatch",
    "DriverMissing",
    "Error",
    "Forked",
    "Internal",
    "InvalidArgument",
    "LimitReached",
    "NotFound",
    "OutOfMemory",
    "PeerLost",
    "PermissionDenied",
    "SystemFailed",
    "TaskFailed",
    "TimedOut",
    "Unsupported",
]


# Remedies of the C++ library that name its own API, by that name, and the same in terms of the Python API.
_IN_PYTHON = {
    "Retry::times": "if the task may be run twice, use Pool(retry=n), or pool.options(retry=n) for single calls",
    "Retry::if_not_started": "submit it again; the pool does so by itself unless retry is -1",
    "TaskOptions::timeout": (
        "give it more time with pool.options(timeout=seconds); a task can stop by itself if it checks "
        "drover.this_worker().is_interrupted"
    ),
}


def _in_python(remedy: str) -> str:
    return next((text for name, text in _IN_PYTHON.items() if name in remedy), remedy)


class Error(RuntimeError):
    """An operation failed. `message` says what failed, `remedy` what to do about it, and `code` is its error code."""

    code = "internal"

    def __init__(self, message: str, remedy: str = "") -> None:
        """Store what failed, without a full stop, and what to do about it."""
        remedy = _in_python(remedy)
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        """Return the message and the remedy, on lines of their own."""
        return f"{self.message}\n  what to do: {self.remedy}" if self.remedy else self.message


class InvalidArgument(Error, ValueError):  # noqa: N818 (named as in the C++ library)
    """The caller made a mistake, such as passing an invalid value."""

    code = "invalid_argument"


class OutOfMemory(Error, MemoryError):  # noqa: N818
    """The host is out of memory."""

    code = "out_of_memory"


class DeviceMemory(Error, MemoryError):  # noqa: N818
    """A device is out of memory."""

    code = "device_memory"


class LimitReached(Error):  # noqa: N818
    """A limit of the system, or a configured one, is reached."""

    code = "limit_reached"


class PermissionDenied(Error, PermissionError):  # noqa: N818
    """The user lacks permission for the operation."""

    code = "permission_denied"


class NotFound(Error, LookupError):  # noqa: N818
    """The named object does not exist, or no longer exists."""

    code = "not_found"


class Busy(Error):  # noqa: N818
    """The resource is in use."""

    code = "busy"


class Unsupported(Error, NotImplementedError):  # noqa: N818
    """The operation is not available on this system or with these libraries."""

    code = "unsupported"


class DriverMissing(Error):  # noqa: N818
    """The device driver is not installed."""

    code = "driver_missing"


class DriverMismatch(Error):  # noqa: N818
    """The device driver is too old, or its parts have different versions."""

    code = "driver_mismatch"


class Forked(Error):  # noqa: N818
    """A forked child used an object that belongs to its parent."""

    code = "forked"


class DeviceLost(Error):  # noqa: N818
    """A device no longer responds."""

    code = "device_lost"


class DeviceFault(Error):  # noqa: N818
    """A kernel faulted; the device context of this process is unusable from now on."""

    code = "device_fault"


class TimedOut(Error, TimeoutError):  # noqa: N818
    """The deadline passed before the operation was done."""

    code = "timed_out"


class PeerLost(Error, ConnectionError):  # noqa: N818
    """The process at the other end has ended."""

    code = "peer_lost"


# What a pool raises when its workers cannot be started: the cause, or PeerLost if they just ended.
CANNOT_START = (
    PeerLost,
    OutOfMemory,
    DeviceMemory,
    LimitReached,
    PermissionDenied,
    Unsupported,
    DriverMissing,
    DriverMismatch,
    DeviceLost,
)


class TaskFailed(Error):  # noqa: N818
    """A task raised an exception that cannot be reproduced here, or killed too many workers."""

    code = "task_failed"


class Cancelled(Error):  # noqa: N818
    """The operation was cancelled before it was done."""

    code = "cancelled"


class Corrupt(Error):  # noqa: N818
    """Data from outside is malformed."""

    code = "corrupt"


class SystemFailed(Error, OSError):  # noqa: N818
    """A system call failed with an error that has no code of its own."""

    code = "system"


class Internal(Error):  # noqa: N818
    """A bug in drover; please report it."""

    code = "internal"


def _subclasses() -> dict[str, type[Error]]:
    return {kind.code: kind for kind in Error.__subclasses__()}


_core.set_error_types(_subclasses())
