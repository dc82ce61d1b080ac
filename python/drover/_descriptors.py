"""Descriptors for other processes of this user: a thread hands them to whoever has the ticket."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import struct
import threading
import time
from typing import Any

from drover._errors import PeerLost
from drover._last_calls import call_at_exit

__all__ = ["Offer", "Ticket"]

_CREDENTIALS = struct.Struct("3i")  # of a peer, as the kernel has them: process, user, group
_KEY_BYTES = 16
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)
_PAUSE = 0.05  # seconds until it is tried again
_PATIENCE = 10.0  # seconds that one who asks may take before the next has its turn


class Ticket:
    """By this an offered descriptor is fetched, in any process of the same user."""

    def __init__(self, address: bytes, key: bytes, maker: int) -> None:
        """Name the place, what to ask for, and whom the descriptor is from."""
        self._address = address
        self._key = key
        self._maker = maker

    def detach(self) -> int:
        """Fetch it; it is the caller's then."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.settimeout(2 * _PATIENCE)
            try:
                asking.connect(self._address)
                # Another user may have taken the name of a maker that has ended, and would give us what it likes.
                if _user_of(asking) == os.getuid():
                    asking.send(self._key)
                    _, fds, _, _ = socket.recv_fds(asking, 1, 1, socket.MSG_CMSG_CLOEXEC)
                else:
                    fds = []
            except (ConnectionError, TimeoutError):
                fds = []
        if not fds:
            raise PeerLost(
                f"process {self._maker} sent a connection and has ended, or has given it to another, before it was "
                "received here",
                "let the process that sends a connection wait until it was received, and receive it once",
            )
        return fds[0]


class Offer:
    """A descriptor that others may fetch, and what must live until then; once, or as long as this object lives."""

    def __init__(self, fd: int, is_once: bool, kept: Any = None) -> None:
        """Offer a duplicate, so that the caller may close its own."""
        self.fd = os.dup(fd)
        self.is_once = is_once
        self.kept = kept
        self._key = secrets.token_bytes(_KEY_BYTES)
        self.ticket = Ticket(_add(self, self._key), self._key, os.getpid())

    def withdraw(self) -> None:
        """Hand it out no more."""
        _remove(self._key)
        self.close()

    def close(self, _close: Any = os.close) -> None:
        """Let go of the descriptor."""
        fd, self.fd, self.kept = self.fd, -1, None
        if fd >= 0:
            _close(fd)

    def __del__(self) -> None:
        """Let go of it, if it was never fetched."""
        self.close()


class Standing:
    """An offer that stands until this is dropped."""

    def __init__(self, offer: Offer) -> None:
        """Hold it."""
        self._offer = offer

    def __del__(self) -> None:
        """Withdraw it."""
        self._offer.withdraw()


class _Server:
    """A socket without a name in any folder, and the thread behind it; there while anything is offered."""

    def __init__(self) -> None:
        self.offers: dict[bytes, Offer] = {}
        self.address = b"\0drover-" + secrets.token_hex(_KEY_BYTES).encode()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.setblocking(True)  # whatever the default timeout of sockets is
        self._listener.bind(self.address)
        self._listener.listen(128)
        self._thread = threading.Thread(target=self._serve, name="drover descriptors", daemon=True)
        self._thread.start()
        call_at_exit(self)

    def _serve(self) -> None:
        while True:
            try:
                asked, _ = self._listener.accept()
            except OSError as error:
                if error.errno in _PASSING:
                    time.sleep(_PAUSE)
                    continue
                self._listener.close()  # nothing is offered any more
                return
            with asked:
                _answer(asked, self.offers)

    def forget(self) -> None:
        """Let go of what a forked child has of it: who asks must not wait for a process that will never answer."""
        self._listener.close()
        for offer in self.offers.values():
            offer.close()

    def stop(self) -> None:
        """Let the thread end, which then closes the listener; perhaps it has already."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def end_at_exit(self) -> None:
        if self._thread.is_alive():
            self.stop()
            self._thread.join()


def _user_of(peer: socket.socket) -> int:
    """Tell whose process is at the other end."""
    return _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1]


def _answer(asked: socket.socket, offers: dict[bytes, Offer]) -> None:
    """Hand out what is asked for. Who may not have it, or asks for nothing that is there, sees the end."""
    if _user_of(asked) != os.getuid():
        return
    asked.settimeout(_PATIENCE)
    try:
        offer = offers.get(asked.recv(_KEY_BYTES))
        if offer is not None:
            socket.send_fds(asked, [b"\1"], [offer.fd])
    except OSError:  # it is gone, and so is what it would have had; or the offer was withdrawn
        return
    if offer is not None and offer.is_once:
        offer.withdraw()


_guard = threading.RLock()  # one that is dropped while another is made is withdrawn by the same thread
_server: _Server | None = None


def _add(offer: Offer, key: bytes) -> bytes:
    global _server  # noqa: PLW0603 (one for the process)
    with _guard:
        server = _server or _Server()
        server.offers[key] = offer
        _server = server
        return server.address


def _remove(key: bytes) -> None:
    global _server
    with _guard:
        if _server is None or _server.offers.pop(key, None) is None or _server.offers:
            return
        _server, last = None, _server
    last.stop()


def _forget() -> None:
    """Leave to the parent of a forked child what is the parent's."""
    global _guard, _server  # noqa: PLW0603
    _guard = threading.RLock()
    if _server is not None:
        _server.forget()
    _server = None


os.register_at_fork(after_in_child=_forget)
