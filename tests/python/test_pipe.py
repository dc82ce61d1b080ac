"""Pipes: messages of every kind, ends and errors, and waiting."""

from __future__ import annotations

import multiprocessing.connection
import os
import pickle
import queue
import selectors
import socket
import threading
import time

import drover
import pytest
from drover import _core, _descriptors
from drover.connection import PipeConnection

KINDS = [
    None,
    -(2**100),
    "text",
    b"",
    [1, [2, [3]]],
    {"a": {1, 2}},
    "y" * 300_000,
    b"x" * 100_000,
    [b"z" * 20_000] * 3,
]


def test_ends_are_drovers_own() -> None:
    """From the module, the context and `drover.connection`; they are standard connections, too."""
    for make in (drover.Pipe, drover.get_context().Pipe, drover.connection.Pipe):
        for duplex in (True, False):
            for end in make(duplex):
                assert type(end) is PipeConnection
                assert isinstance(end, multiprocessing.connection.Connection)
                end.close()


@pytest.mark.parametrize("duplex", [True, False])
def test_objects_are_received_as_they_were_sent(duplex: bool) -> None:
    """Of every kind, small and large, in order."""
    reader, writer = drover.Pipe(duplex)
    with reader, writer:
        for thing in KINDS:
            writer.send(thing)
        assert [reader.recv() for _ in KINDS] == KINDS
        assert not reader.poll()
    assert reader.closed
    with pytest.raises(OSError, match="closed"):
        reader.poll()


def test_generator_raises_in_send_and_lambda_is_sent_by_value() -> None:
    """The connection stays usable after the error."""
    one, other = drover.Pipe()
    with pytest.raises(TypeError, match="generator"):
        one.send(number for number in range(3))
    one.send(lambda number: number + 1)
    assert other.recv()(1) == 2


@pytest.mark.parametrize("size", [0, 1, 16 * 1024, 16 * 1024 + 1, 1_000_003])
def test_bytes_of_every_size(size: int) -> None:
    """Around the limit of a packet; whole, in parts, and into a buffer."""
    one, other = drover.Pipe()
    whole = os.urandom(size)
    one.send_bytes(whole)
    assert other.recv_bytes(size) == whole
    one.send_bytes(bytearray(whole), size // 3, size // 3)
    assert other.recv_bytes() == whole[size // 3 : size // 3 * 2]
    buffer = bytearray(size + 5)
    one.send_bytes(whole)
    assert other.recv_bytes_into(buffer, 5) == size
    assert buffer[5:] == whole
    one.send_bytes(whole + b"more")
    with pytest.raises(drover.BufferTooShort) as error:
        other.recv_bytes_into(bytearray(size))
    assert error.value.args == (whole + b"more",)


def test_sender_may_change_its_buffer_at_once() -> None:
    """Also a buffer in shared memory: bytes are copied."""
    numpy = pytest.importorskip("numpy")
    one, other = drover.Pipe()
    shared = drover.zeros(100_000, numpy.uint8)
    one.send_bytes(shared)
    shared[:] = 1
    assert not any(other.recv_bytes())


def test_objects_and_bytes_are_the_same_messages() -> None:
    """As in multiprocessing: a message sent as one can be received as the other."""
    numpy = pytest.importorskip("numpy")
    one, other = drover.Pipe()
    for thing in ([1, 2], "z" * 100_000):
        one.send(thing)
        assert pickle.loads(other.recv_bytes()) == thing
        one.send_bytes(pickle.dumps(thing))
        assert other.recv() == thing
    one.send(numpy.arange(10_000))
    assert pickle.loads(other.recv_bytes()).sum() == 49_995_000


def test_message_longer_than_the_limit_raises() -> None:
    """And the connection can no longer be read, as in multiprocessing."""
    one, other = drover.Pipe()
    one.send_bytes(b"12345")
    with pytest.raises(OSError, match="bad message length"):
        other.recv_bytes(4)
    assert not other.readable
    reader, writer = drover.Pipe(duplex=False)
    writer.send_bytes(b"x" * 50_000)
    with pytest.raises(OSError, match="bad message length"):
        reader.recv_bytes(49_999)
    assert reader.closed


def test_invalid_packet_raises() -> None:
    """After a write to the descriptor by hand."""
    one, other = drover.Pipe()
    os.write(one.fileno(), b"abc\1")
    with pytest.raises(OSError, match="invalid packet"):
        other.recv()


def test_eof_comes_after_all_messages() -> None:
    """Also if the closed end had unread messages; sending to a closed pipe raises BrokenPipeError."""
    numpy = pytest.importorskip("numpy")
    one, other = drover.Pipe()
    one.send("never read")
    other.send(1)
    other.send(numpy.ones(50_000))
    other.close()
    assert one.poll(0)
    assert one.recv() == 1
    assert one.recv().sum() == 50_000
    for _ in range(2):
        assert one.poll(None)
        with pytest.raises(EOFError):
            one.recv()
    for thing in (1, numpy.ones(50_000), numpy.ones(50_000)):
        with pytest.raises(BrokenPipeError, match="every process that had the other end"):
            one.send(thing)


def test_send_blocks_until_there_is_room() -> None:
    """With large and small messages, in order."""
    one, other = drover.Pipe()

    def send_all() -> None:
        for number in range(200):
            one.send([number, b"x" * (30_000 if number % 2 else 3_000)])
        one.close()

    sender = threading.Thread(target=send_all)
    sender.start()
    time.sleep(0.3)
    assert sender.is_alive()  # nothing is received, and the messages do not fit
    assert [other.recv()[0] for _ in range(200)] == list(range(200))
    with pytest.raises(EOFError):
        other.recv()
    sender.join()


def test_blocked_send_raises_when_the_reader_is_gone() -> None:
    """Instead of waiting forever."""
    one, other = drover.Pipe()
    errors = []

    def send_all() -> None:
        try:
            while True:
                one.send(b"x" * 30_000)
        except BrokenPipeError:
            errors.append("broken")

    sender = threading.Thread(target=send_all)
    sender.start()
    time.sleep(0.3)
    other.close()
    sender.join(60)
    assert errors == ["broken"]


def test_threads_share_an_end() -> None:
    """Two send and two receive small and large messages: each arrives once, whole."""
    one, other = drover.Pipe()
    came: list[int] = []

    def write(first: int) -> None:
        for number in range(first, 300, 2):
            one.send((number, b"x" * (20_000 if number % 3 else 10)))

    def read() -> None:
        while (got := other.recv()) is not None:
            came.append(got[0])

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 1)]
    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in writers + readers:
        thread.start()
    for thread in writers:
        thread.join()
    for _ in readers:
        one.send(None)
    for thread in readers:
        thread.join()
    assert sorted(came) == list(range(300))


def test_default_timeout_of_sockets_does_not_matter() -> None:
    """Neither for messages nor for ends that are being sent."""
    socket.setdefaulttimeout(0.05)
    try:
        one, other = drover.Pipe()
        ticket = other.__reduce__()[1][2]
        threading.Timer(0.3, other.send, (1,)).start()
        assert one.recv() == 1
        os.close(ticket.detach())
    finally:
        socket.setdefaulttimeout(None)


def test_wait_and_selectors_accept_pipes() -> None:
    """Together with sockets; a pipe is readable exactly when there is a message."""
    one, other = drover.Pipe()
    left, right = socket.socketpair()
    with left, right, selectors.DefaultSelector() as selector:
        for wait in (drover.connection.wait, multiprocessing.connection.wait):
            assert wait([one, left], 0) == []
            other.send(b"x" * 100_000)
            assert wait([one, left], 60) == [one]
            right.send(b"1")
            assert set(wait([one, left], 60)) == {one, left}
            left.recv(1)
            one.recv()
        selector.register(one, selectors.EVENT_READ)
        assert selector.select(0) == []
        other.close()
        assert [key.fileobj for key, _ in selector.select(60)] == [one]


def test_message_that_was_put_but_not_announced_is_skipped() -> None:
    """A sender that is killed or interrupted in between leaves one."""
    one, other = drover.Pipe()
    queue, _ = one._outgoing.parts()
    message = pickle.dumps("never announced") + one._outgoing.stamp()
    assert queue.put(message, (), 0.0) is _core.PutResult.put
    one.send(["announced", b"x" * 50_000])
    assert other.recv()[0] == "announced"
    assert queue.size() == 0


def join_servers() -> None:
    """Wait for the threads that handed out descriptors; they close their sockets when nothing is offered."""
    for thread in threading.enumerate():
        if thread.name == "drover descriptors":
            thread.join(60)


def test_ticket_of_an_end_can_be_used_once() -> None:
    """The second use raises PeerLost, and no descriptor stays open."""
    one, other = drover.Pipe()
    before = len(os.listdir("/proc/self/fd"))
    _, arguments = other.__reduce__()
    with drover.connection.PipeConnection(arguments[2].detach(), None, None, True, True) as same:
        same.send(1)
        assert one.recv() == 1
    with pytest.raises(drover.PeerLost, match=f"a connection from process {os.getpid()}"):
        arguments[2].detach()
    join_servers()
    assert len(os.listdir("/proc/self/fd")) == before


def test_end_in_a_message_that_failed_is_not_kept_open() -> None:
    """So that the other end gets EOFError when the program closes it."""
    one, other = drover.Pipe()
    with pytest.raises(TypeError, match="generator"):
        drover.Queue().put((other, (number for number in range(3))))
    other.close()
    with pytest.raises(EOFError):
        one.recv()


def test_ticket_works_for_the_same_user_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel identifies the client; a refused attempt does not use up the ticket."""
    one, other = drover.Pipe()
    ticket = other.__reduce__()[1][2]
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(drover.PeerLost):
        ticket.detach()
    monkeypatch.undo()
    os.close(ticket.detach())
    one.close()


def test_forked_child_leaves_offers_to_its_parent() -> None:
    """An end sent before the fork is received after it, although the child withdrew its copies."""
    one, other = drover.Pipe()
    queue = drover.Queue()
    queue.put(other)
    offers = list(_descriptors._server.offers.values())
    child = os.fork()
    if child == 0:
        for offer in offers:
            offer.withdraw()
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    with queue.get() as same:
        same.send(1)
        assert one.recv() == 1


def test_connection_that_was_not_sent_leaves_nothing_open() -> None:
    """When a queue is full or a pipe is broken, the offer of the connection is withdrawn."""
    full = drover.Queue(1)
    full.put(0)
    ours, theirs = drover.Pipe()
    closed, other = drover.Pipe()
    other.close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(queue.Full):
            full.put(ours, timeout=0.01)
        with pytest.raises(BrokenPipeError):
            closed.send([theirs])
    join_servers()
    assert len(os.listdir("/proc/self/fd")) <= before
