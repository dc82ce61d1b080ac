"""Pipes between processes: messages and memory after a kill, and how ends are sent."""

from __future__ import annotations

import uuid

import pytest
from programs import run

pytest.importorskip("numpy")


@pytest.fixture
def name() -> str:
    """Return the name of a session that does not exist yet."""
    return f"test-{uuid.uuid4().hex[:12]}"


def test_arrays_are_sent_by_handle() -> None:
    """Both ends share memory, which outlives the process that created it."""
    lines = run("""
        import os, signal
        import drover, numpy

        def work(end):
            shared = end.recv()
            shared[0] = 7.0
            end.send([drover.array(numpy.full(1000, 5.0)), numpy.full(3_000_000, 6.0), "text"])
            end.send_bytes(b"z" * 5_000_000)
            os.kill(os.getpid(), signal.SIGKILL)

        here, there = drover.Pipe()
        child = drover.Process(target=work, args=(there,))
        child.start()
        there.close()
        shared = drover.zeros(1000)
        here.send(shared)
        child.join()  # killed before anything was received
        small, large, text = here.recv()
        print(shared[0], small.sum(), large.sum(), text, here.recv_bytes() == b"z" * 5_000_000)
        for call in (here.recv, lambda: here.send(1)):
            try:
                call()
            except (EOFError, BrokenPipeError) as error:
                print(type(error).__name__)
    """)
    assert lines == ["7.0 5000.0 18000000.0 text True", "EOFError", "BrokenPipeError"]


def test_gpu_tensors_are_values_unless_they_lie_in_shared_memory() -> None:
    """A write by the receiver reaches the sender only through memory that both share."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU that torch can use")
    lines = run("""
        import torch
        import drover, drover.torch

        def work(end):
            plain, shared = end.recv()
            plain.fill_(3.0)
            shared.fill_(3.0)
            end.send((plain[::2], torch.ones(100_000, device="cuda")))

        plain = torch.zeros(1_000_000, device="cuda")
        shared = drover.torch.zeros(1_000_000, device="cuda")
        here, there = drover.Pipe()
        child = drover.Process(target=work, args=(there,))
        child.start()
        there.close()
        here.send((plain, shared))
        half, own = here.recv()
        child.join()
        print(half.sum().item(), own.sum().item(), plain.sum().item(), shared.sum().item())
    """)
    assert lines == ["1500000.0 100000.0 0.0 3000000.0"]


# The beginning of programs: `shown` returns the contents of the session, `settled` waits until they are as before.
_BEGIN = """
        import gc, json, os, pathlib, random, signal, subprocess, sys, time
        os.environ["DROVER_IDLE_MEMORY"] = "0"  # frees slabs as soon as they are empty
        import drover, numpy

        def shown():
            gc.collect()
            tool = pathlib.Path(drover.__file__).parent / "bin" / "drover"
            state = json.loads(subprocess.check_output([tool, "session", "show", sys.argv[1], "--json"]))["session"]
            others = state["objects"] - state["slabs"]  # queues and locks
            return {"participants": state["participants"], "others": others, "slabs": state["slabs"]}

        def settled(before, *keys):
            for _ in range(100):
                now = shown()
                if all(now[key] == before[key] for key in keys):
                    return "settled"
                time.sleep(0.1)
            return f"{before} before, {now} now"

        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        session = drover.Session(sys.argv[1])
"""


def test_sender_killed_while_sending_leaves_whole_messages_and_no_memory(name: str) -> None:
    """Received messages are whole and in order, then comes EOFError."""
    program = """
        def send_for_ever(end):
            number = 0
            while True:
                end.send((number, numpy.full(10_000 if number % 3 else 100, number)))
                number += 1

        def one_round(stop_at):
            reader, writer = drover.Pipe(duplex=False)
            child = drover.Process(target=send_for_ever, args=(writer,))
            child.start()
            writer.close()
            came = 0
            while True:
                try:
                    number, array = reader.recv()
                except EOFError:
                    break
                assert number == came and (array == number).all(), (number, came)
                came += 1
                if came == stop_at:
                    child.kill()
            assert came >= stop_at
            child.join()

        before = shown()
        numbers = random.Random(5)
        for _ in range(10):
            one_round(numbers.randrange(1, 300))
        # One slab of the common size may stay mapped for the next array.
        print(settled(before, "participants", "others"), shown()["slabs"] <= 1)
        session.end()
    """
    assert run(_BEGIN + program, name) == ["settled True"]


def test_deaths_between_message_and_announcement_leave_nothing(name: str) -> None:
    """Each array is large enough for a slab of its own, so that a leak would be seen."""
    program = """
        def send_and_die(end):
            end.send(numpy.ones(5_000_000))
            type(end)._write = die  # the second message is put and never announced
            end.send(numpy.ones(5_000_000))

        def receive_and_die(end):
            type(end._incoming).take = die  # the first message is announced and never taken
            end.recv()

        def child_of(target, end):
            child = drover.Process(target=target, args=(end,))
            child.start()
            end.close()
            return child

        before = shown()
        here, there = drover.Pipe()
        child = child_of(send_and_die, there)
        print(here.recv().sum())
        try:
            here.recv()
        except EOFError:
            child.join()
            print("end", settled(before, "participants", "slabs"))  # although this end is open
        here, there = drover.Pipe()
        children = [child_of(receive_and_die, there), child_of(send_and_die, here)]
        for child in children:
            child.join()
        print([child.exitcode for child in children], settled(before, *before))
        session.end()
    """
    assert run(_BEGIN + program, name) == ["5000000.0", "end settled", "[-9, -9] settled"]


def test_sender_raises_when_receivers_are_killed_and_nothing_leaks(name: str) -> None:
    """Whether it waits for room or not."""
    program = """
        def receive_some(end):
            for _ in range(5):
                end.recv()
            die()

        def one_round():
            here, there = drover.Pipe()
            child = drover.Process(target=receive_some, args=(there,))
            child.start()
            there.close()
            sent = 0
            try:
                while True:
                    here.send(numpy.ones(100_000))
                    sent += 1
            except BrokenPipeError:
                child.join()
            return sent, here

        one_round()
        before = shown()
        print(all(one_round()[0] >= 5 for _ in range(3)), settled(before, *before))
        _, here = one_round()
        left = {**before, "others": before["others"] + 2}  # the other direction stays while this end is open
        print(settled(left, *left))
        session.end()
    """
    assert run(_BEGIN + program, name) == ["True settled", "settled"]


def test_killed_writers_do_not_disturb_others_on_the_same_end() -> None:
    """Messages that they put but did not announce are skipped, and locks that they held are freed."""
    lines = run("""
        import time
        import drover, numpy

        def send_for_ever(end):
            while True:
                end.send(("doomed", numpy.ones(5000)))

        def send(end):
            for number in range(300):
                end.send((number, numpy.full(5000, number)))

        reader, writer = drover.Pipe(duplex=False)
        doomed = [drover.Process(target=send_for_ever, args=(writer,)) for _ in range(2)]
        own = drover.Process(target=send, args=(writer,))
        for child in [*doomed, own]:
            child.start()
        writer.close()
        came = []
        while True:
            try:
                who, array = reader.recv()
            except EOFError:
                break
            if who != "doomed":
                assert (array == who).all()
                came.append(who)
            if came and doomed:
                doomed.pop().kill()
        own.join()
        print(came == list(range(300)), own.exitcode)
    """)
    assert lines == ["True 0"]


def test_ends_can_be_sent_through_connections_and_queues() -> None:
    """With unread messages, also in objects sent by value; EOFError comes when all copies are closed."""
    lines = run("""
        import drover, numpy

        class Unnamed:
            pass

        def serve(inbox):
            end, _ = inbox.recv() if hasattr(inbox, "recv") else inbox.get()
            end.send((end.recv() * 2).sum())
            end.send(numpy.ones(40_000))

        queue = drover.Queue()
        for inbox, outbox in ((queue, queue), drover.Pipe()):
            child = drover.Process(target=serve, args=(inbox,))
            child.start()
            here, there = drover.Pipe()
            here.send(numpy.ones(30_000))
            send = outbox.send if hasattr(outbox, "send") else outbox.put
            send((there, Unnamed()))
            there.close()
            print(here.recv(), here.recv().sum())
            try:
                here.recv()
            except EOFError:
                print("end")
            child.join()
    """)
    assert lines == ["60000.0 40000.0", "end"] * 2


def test_ends_can_be_passed_to_workers_of_pools() -> None:
    """In initargs, also of workers that start later, and as an argument of a task."""
    lines = run("""
        import os, signal
        import drover, numpy

        def keep(*ends):
            global both, writer
            both, writer = ends
            writer.send("begun")

        def answer(number):
            both.send((number, numpy.full(20_000, number)))
            return both.recv()

        def send(end):
            end.send(numpy.ones(30_000))

        if __name__ == "__main__":
            here, there = drover.Pipe()
            reader, writer = drover.Pipe(duplex=False)
            with drover.Pool(1, keep, (there, writer)) as pool:
                there.close()
                writer.close()
                for number in (3, 4):
                    print(reader.recv())
                    got = pool.apply_async(answer, (number,))
                    same, array = here.recv()
                    here.send("thanks")
                    print(same, array.sum(), got.get())
                    os.kill(pool.workers()[0]["pid"], signal.SIGKILL)
                end, other = drover.Pipe()
                print(reader.recv(), pool.apply(send, (other,)), end.recv().sum())
            del pool
            for end in (here, reader):
                try:
                    end.recv()
                except EOFError:
                    print("end")
    """)
    assert [line for line in lines if "drover[" not in line] == [
        "begun",
        "3 60000 thanks",
        "begun",
        "4 80000 thanks",
        "begun None 30000.0",
        "end",
        "end",
    ]


def test_interrupt_ends_a_waiting_receive() -> None:
    """With KeyboardInterrupt; the connection stays usable."""
    lines = run("""
        import os, signal, threading, time
        import drover

        one, other = drover.Pipe()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            one.recv()
        except KeyboardInterrupt:
            print("interrupted")
        other.send(1)
        print(one.recv())
    """)
    assert lines == ["interrupted", "1"]
