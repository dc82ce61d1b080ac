"""One exception for each kind of failure; all are `drover.Error`, and what Python has a name for is that too."""

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


# What the C++ library says to do, where Python has other words for it. The beginning is enough to know it.
_IN_PYTHON = {
    "if the task may be run twice, give it TaskOptions": (
        "if the task may be run twice, use Pool(retry=n), or pool.options(retry=n) for some of them"
    ),
    "it may be submitted again; with Retry::if_not_started": (
        "it may be submitted again; the pool does so unless retry is -1"
    ),
    "give it more time by TaskOptions::timeout": (
        "give it more time by pool.options(timeout=seconds); a task that looks at "
        "drover.this_worker().is_interrupted can stop by itself"
    ),
}


def _in_python(remedy: str) -> str:
    return next((words for begin, words in _IN_PYTHON.items() if remedy.startswith(begin)), remedy)


class Error(RuntimeError):
    """What stopped an operation: what failed, and what can be done about it."""

    code = "internal"

    def __init__(self, message: str, remedy: str = "") -> None:
        """Take what failed, without a final stop, and what to do about it."""
        remedy = _in_python(remedy)
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        """Give both, in two lines."""
        return f"{self.message}\n  what to do: {self.remedy}" if self.remedy else self.message


class InvalidArgument(Error, ValueError):  # noqa: N818 (the words of the C++ library)
    """The caller's mistake."""

    code = "invalid_argument"


class OutOfMemory(Error, MemoryError):  # noqa: N818
    """The host has no more memory to give."""

    code = "out_of_memory"


class DeviceMemory(Error, MemoryError):  # noqa: N818
    """A device has no more memory to give."""

    code = "device_memory"


class LimitReached(Error):  # noqa: N818
    """A limit of the system, or one that was set, is reached."""

    code = "limit_reached"


class PermissionDenied(Error, PermissionError):  # noqa: N818
    """This user may not do it."""

    code = "permission_denied"


class NotFound(Error, LookupError):  # noqa: N818
    """There is no such thing, or not any more."""

    code = "not_found"


class Busy(Error):  # noqa: N818
    """Somebody else has it."""

    code = "busy"


class Unsupported(Error, NotImplementedError):  # noqa: N818
    """It cannot be done here."""

    code = "unsupported"


class DriverMissing(Error):  # noqa: N818
    """The driver of the devices is not installed."""

    code = "driver_missing"


class DriverMismatch(Error):  # noqa: N818
    """The driver is too old, or its parts do not fit each other."""

    code = "driver_mismatch"


class Forked(Error):  # noqa: N818
    """A forked child used what belongs to its parent."""

    code = "forked"


class DeviceLost(Error):  # noqa: N818
    """A device does not answer any more."""

    code = "device_lost"


class DeviceFault(Error):  # noqa: N818
    """A kernel did something illegal; the context is unusable from now on."""

    code = "device_fault"


class TimedOut(Error, TimeoutError):  # noqa: N818
    """A deadline passed where an answer was required."""

    code = "timed_out"


class PeerLost(Error, ConnectionError):  # noqa: N818
    """The process at the other end is gone."""

    code = "peer_lost"


class TaskFailed(Error):  # noqa: N818
    """A task threw what cannot be thrown here, or killed too many workers."""

    code = "task_failed"


class Cancelled(Error):  # noqa: N818
    """It was given up before it was done."""

    code = "cancelled"


class Corrupt(Error):  # noqa: N818
    """Data from outside does not have the form it must have."""

    code = "corrupt"


class SystemFailed(Error, OSError):  # noqa: N818
    """A system call failed for a reason with no code of its own."""

    code = "system"


class Internal(Error):  # noqa: N818
    """A bug in drover; please report it."""

    code = "internal"


def _subclasses() -> dict[str, type[Error]]:
    return {kind.code: kind for kind in Error.__subclasses__()}


_core.set_error_types(_subclasses())
