"""Pipes: what goes through them, how they end, and who may wait for them."""

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
from drover import _descriptors
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
    """From the module, the context and `drover.connection`; and what accepts the standard ones takes them."""
    for make in (drover.Pipe, drover.get_context().Pipe, drover.connection.Pipe):
        for duplex in (True, False):
            for end in make(duplex):
                assert type(end) is PipeConnection
                assert isinstance(end, multiprocessing.connection.Connection)
                end.close()


@pytest.mark.parametrize("duplex", [True, False])
def test_objects_come_out_as_they_went_in(duplex: bool) -> None:
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


def test_what_cannot_be_sent_raises_at_send_and_what_pickle_cannot_name_is_sent() -> None:
    """The connection is as before."""
    one, other = drover.Pipe()
    with pytest.raises(TypeError, match="generator"):
        one.send(number for number in range(3))
    one.send(lambda number: number + 1)
    assert other.recv()(1) == 2


@pytest.mark.parametrize("size", [0, 1, 16 * 1024, 16 * 1024 + 1, 1_000_003])
def test_bytes_of_every_size(size: int) -> None:
    """Around what fits into a packet; whole, in parts, and into a buffer."""
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
    """Also if it lies in shared memory: bytes are copied."""
    numpy = pytest.importorskip("numpy")
    one, other = drover.Pipe()
    shared = drover.zeros(100_000, numpy.uint8)
    one.send_bytes(shared)
    shared[:] = 1
    assert not any(other.recv_bytes())


def test_objects_and_bytes_are_the_same_messages() -> None:
    """As with multiprocessing: what was sent as one can be received as the other."""
    numpy = pytest.importorskip("numpy")
    one, other = drover.Pipe()
    for thing in ([1, 2], "z" * 100_000):
        one.send(thing)
        assert pickle.loads(other.recv_bytes()) == thing
        one.send_bytes(pickle.dumps(thing))
        assert other.recv() == thing
    one.send(numpy.arange(10_000))
    assert pickle.loads(other.recv_bytes()).sum() == 49_995_000


def test_message_longer_than_the_most_that_is_wanted() -> None:
    """It raises, and the connection cannot be read any more, as with multiprocessing."""
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


def test_what_is_no_message_is_told() -> None:
    """Somebody wrote to the descriptor by hand."""
    one, other = drover.Pipe()
    os.write(one.fileno(), b"abc\1")
    with pytest.raises(OSError, match="no message"):
        other.recv()


def test_end_comes_after_everything_that_was_sent() -> None:
    """Also where the one who closed had not read everything; writing to nobody is an error that says so."""
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


def test_send_waits_for_room_and_goes_on_when_there_is_some() -> None:
    """With large messages and with small ones; in order."""
    one, other = drover.Pipe()

    def send_all() -> None:
        for number in range(200):
            one.send([number, b"x" * (30_000 if number % 2 else 3_000)])
        one.close()

    sender = threading.Thread(target=send_all)
    sender.start()
    time.sleep(0.3)
    assert sender.is_alive()  # nobody reads, and so much does not fit
    assert [other.recv()[0] for _ in range(200)] == list(range(200))
    with pytest.raises(EOFError):
        other.recv()
    sender.join()


def test_who_waits_for_room_is_told_that_the_reader_is_gone() -> None:
    """Instead of waiting for ever."""
    one, other = drover.Pipe()
    told = []

    def send_all() -> None:
        try:
            while True:
                one.send(b"x" * 30_000)
        except BrokenPipeError:
            told.append("broken")

    sender = threading.Thread(target=send_all)
    sender.start()
    time.sleep(0.3)
    other.close()
    sender.join(60)
    assert told == ["broken"]


def test_threads_share_an_end() -> None:
    """Two write and two read, small and large messages: each comes once and whole."""
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
    """Neither for messages nor for ends on their way."""
    socket.setdefaulttimeout(0.05)
    try:
        one, other = drover.Pipe()
        ticket = other.__reduce__()[1][2]
        threading.Timer(0.3, other.send, (1,)).start()
        assert one.recv() == 1
        os.close(ticket.detach())
    finally:
        socket.setdefaulttimeout(None)


def test_wait_and_selectors_know_it() -> None:
    """Together with sockets and processes, and it is readable exactly when something is there."""
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


def test_message_that_was_put_but_not_announced_is_passed_over() -> None:
    """As one leaves it who is killed, or interrupted, in between."""
    one, other = drover.Pipe()
    queue, _ = one._outgoing.parts()
    assert queue.put(pickle.dumps("never announced") + one._outgoing.stamp(), (), 0.0) == 0
    one.send(["announced", b"x" * 50_000])
    assert other.recv()[0] == "announced"
    assert queue.size() == 0


def test_ticket_of_an_end_is_good_once() -> None:
    """And an error says so the second time, or when the sender has gone; no descriptor stays."""
    one, other = drover.Pipe()
    before = len(os.listdir("/proc/self/fd"))
    _, arguments = other.__reduce__()
    with drover.connection.PipeConnection(arguments[2].detach(), None, None, True, True) as same:
        same.send(1)
        assert one.recv() == 1
    with pytest.raises(drover.PeerLost, match=f"process {os.getpid()} sent a connection"):
        arguments[2].detach()
    for thread in threading.enumerate():
        if thread.name == "drover descriptors":
            thread.join(60)
    assert len(os.listdir("/proc/self/fd")) == before


def test_end_that_was_in_a_message_which_cannot_be_sent_is_not_kept() -> None:
    """So that the other side sees the end when the program closes it."""
    one, other = drover.Pipe()
    with pytest.raises(TypeError, match="generator"):
        drover.Queue().put((other, (number for number in range(3))))
    other.close()
    with pytest.raises(EOFError):
        one.recv()


def test_ticket_is_for_the_same_user_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says who asks; who is refused takes nothing away."""
    one, other = drover.Pipe()
    ticket = other.__reduce__()[1][2]
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    with pytest.raises(drover.PeerLost):
        ticket.detach()
    monkeypatch.undo()
    os.close(ticket.detach())
    one.close()


def test_forked_child_leaves_offers_to_its_parent() -> None:
    """What was sent before the fork is received after it, though the child ended with all it had."""
    one, other = drover.Pipe()
    line = drover.Queue()
    line.put(other)
    offers = list(_descriptors._server.offers.values())
    child = os.fork()
    if child == 0:
        for offer in offers:
            offer.withdraw()
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    with line.get() as same:
        same.send(1)
        assert one.recv() == 1


def test_connection_that_was_not_sent_leaves_nothing_open() -> None:
    """A full queue, and a pipe that nobody reads: what was offered to whoever receives it is offered no more."""
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
    end = time.monotonic() + 60
    while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < end:
        time.sleep(0.01)  # the threads that handed out are on their way
    assert len(os.listdir("/proc/self/fd")) <= before
