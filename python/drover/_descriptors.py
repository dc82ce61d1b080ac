"""File descriptors offered to other processes of this user: a thread hands them to holders of a ticket."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from multiprocessing import context
from typing import Any

from drover import _core, _objects
from drover._errors import PeerLost, Unsupported
from drover._exit_hooks import call_at_exit

__all__ = ["Offer", "Standing", "Ticket", "ticket_for"]

_CREDENTIALS = struct.Struct("3i")  # the kernel's struct ucred: process, user, group
_KEY_BYTES = 16
_PREFIX = "descriptors-"  # of the names of sockets in the user's folder; the pid of their server follows
_TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)
_PAUSE = 0.05  # seconds before a retry
_PATIENCE = 10.0  # seconds that one client may take before the next is served


class Ticket:
    """The means to fetch an offered descriptor from any process of the same user."""

    def __init__(self, path: str, key: bytes, owner: int) -> None:
        """Store the path of the server's socket, the key of the offer and the pid of its owner."""
        self._path = path
        self._key = key
        self._owner = owner

    def detach(self) -> int:
        """Fetch the descriptor; the caller owns it."""
        fds: list[int] = []
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.settimeout(2 * _PATIENCE)
            with contextlib.suppress(ConnectionError, TimeoutError, FileNotFoundError):
                _connect(client, self._path)
                if _user_of(client) == os.geteuid():
                    client.send(self._key)
                    _, fds, _, _ = socket.recv_fds(client, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not fds:
            raise PeerLost(
                f"cannot receive a connection from process {self._owner}: the process has ended, or another one "
                "received the connection first",
                "keep the sending process alive until the connection is received, and receive it only once",
            )
        return fds[0]


class Offer:
    """A descriptor that others may fetch, once or any number of times, and the objects it keeps alive until then."""

    def __init__(self, fd: int, is_once: bool, kept: Any = None) -> None:
        """Offer a duplicate of `fd`; the caller may close its own."""
        self.fd = os.dup(fd)
        self.is_once = is_once
        self.kept = kept
        self._key = os.urandom(_KEY_BYTES)
        self.ticket = Ticket(_add(self, self._key), self._key, os.getpid())

    def withdraw(self) -> None:
        """Stop offering the descriptor, and close it."""
        _remove(self._key)
        self.close()

    def close(self, _close: Any = os.close) -> None:
        """Close the descriptor."""
        fd, self.fd, self.kept = self.fd, -1, None
        if fd >= 0:
            _close(fd)

    def __del__(self) -> None:
        """Close the descriptor if it was never fetched."""
        self.close()


class Standing:
    """Keeps an offer open until this object is dropped."""

    def __init__(self, offer: Offer) -> None:
        """Take the offer."""
        self._offer = offer

    def __del__(self) -> None:
        """Withdraw the offer."""
        self._offer.withdraw()


def ticket_for(fd: int, kept: Any = None) -> Any:
    """Return what to pickle for a descriptor in the message, or the process, that this thread is pickling for.

    The descriptor may be closed afterwards. `kept` is kept alive until a message is received.
    """
    starting = context.get_spawning_popen()
    if starting is None:
        offer = Offer(fd, is_once=True, kept=kept)
        _objects.if_discarded(offer.withdraw)
        return offer.ticket
    try:
        return starting.DupFd(starting.duplicate_for_child(fd))
    except Unsupported:  # a pool, which may start workers at any time
        offer = Offer(fd, is_once=False)
        starting.keep_until_joined(Standing(offer))
        return offer.ticket


@contextlib.contextmanager
def _address_of(path: str) -> Iterator[str]:
    """Yield an address for a socket at the path, which may be too long for one, by its directory."""
    folder, name = os.path.split(path)
    at = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{at}/{name}"
    finally:
        os.close(at)


def _connect(client: socket.socket, path: str) -> None:
    """Connect; while the server has too many clients, try again until the socket's timeout."""
    end = time.monotonic() + (client.gettimeout() or 0.0)
    with _address_of(path) as address:
        while True:
            try:
                return client.connect(address)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError(f"the server at {path} accepts no client") from None
                time.sleep(_PAUSE / 10)


@functools.cache
def _remove_leftovers(folder: str) -> None:
    """Remove the sockets of servers that were killed. Once in a process."""
    for name in os.listdir(folder):
        if name.startswith(_PREFIX) and not _is_served(os.path.join(folder, name)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))


def _is_served(path: str) -> bool:
    # Both, since a server does not listen for a moment, and one in another container has a pid unknown here.
    if os.path.exists(f"/proc/{os.path.basename(path).split('-')[1]}"):
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client, contextlib.suppress(BlockingIOError):
        client.setblocking(False)
        try:
            with _address_of(path) as address:
                client.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    return True


class _Server:
    """A socket in the user's private folder and the thread that serves it; it exists while anything is offered."""

    def __init__(self) -> None:
        self.offers: dict[bytes, Offer] = {}
        folder = _core.private_folder()
        _remove_leftovers(folder)
        self.path = os.path.join(folder, f"{_PREFIX}{os.getpid()}-{os.urandom(8).hex()}")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.setblocking(True)  # overrides socket.setdefaulttimeout
        with _address_of(self.path) as address:
            self._listener.bind(address)
        self._listener.listen(128)
        self._thread = threading.Thread(target=self._serve, name="drover descriptors", daemon=True)
        self._thread.start()
        call_at_exit(self)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError as error:
                if error.errno in _TRANSIENT:
                    time.sleep(_PAUSE)
                    continue
                self._listener.close()  # nothing is offered any more
                with contextlib.suppress(OSError):
                    os.unlink(self.path)
                return
            with client:
                _answer(client, self.offers)

    def forget(self) -> None:
        """Close a forked child's copies, so that no client waits for a process that never answers."""
        self._listener.close()
        for offer in self.offers.values():
            offer.close()

    def stop(self) -> None:
        """Make the thread close the listener and end, unless it already has."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def end_at_exit(self) -> None:
        if self._thread.is_alive():
            self.stop()
            self._thread.join()


def _user_of(peer: socket.socket) -> int:
    """Return the user id of the process at the other end."""
    return _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]


def _answer(client: socket.socket, offers: dict[bytes, Offer]) -> None:
    """Send the requested descriptor. Other users, and clients with an unknown key, only see the connection end."""
    if _user_of(client) != os.geteuid():
        return
    client.settimeout(_PATIENCE)
    try:
        offer = offers.get(client.recv(_KEY_BYTES))
        if offer is not None:
            socket.send_fds(client, [b"\1"], [offer.fd])
    except OSError:  # the client is gone, or the offer was withdrawn meanwhile
        return
    if offer is not None and offer.is_once:
        offer.withdraw()


_guard = threading.RLock()  # reentrant: garbage collection inside _add may withdraw another offer
_server: _Server | None = None


def _add(offer: Offer, key: bytes) -> str:
    global _server  # noqa: PLW0603 (one for the process)
    with _guard:
        server = _server or _Server()
        server.offers[key] = offer
        _server = server
        return server.path


def _remove(key: bytes) -> None:
    global _server
    with _guard:
        if _server is None or _server.offers.pop(key, None) is None or _server.offers:
            return
        _server, last = None, _server
    last.stop()


def _forget() -> None:
    """Reset this module in a forked child: offers stay with the parent."""
    global _guard, _server  # noqa: PLW0603
    _guard = threading.RLock()
    if _server is not None:
        _server.forget()
    _server = None


os.register_at_fork(after_in_child=_forget)
