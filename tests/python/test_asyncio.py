"""Queues and executors in asyncio: order, cancellation, deaths, and a loop that never blocks."""

from __future__ import annotations

from programs import run


def test_gets_are_served_in_order_while_the_loop_runs() -> None:
    """Many coroutines wait for messages of a process while another one runs, without a thread for each."""
    lines = run("""
        import asyncio, threading
        import drover
        import numpy

        def produce(line, go):
            go.wait()
            for number in range(40):
                line.put((number, numpy.full(5000, number)))

        async def main():
            line, go = drover.Queue(), drover.Event()
            producer = drover.Process(target=produce, args=(line, go))
            producer.start()
            order = []

            async def take(turn):
                number, array = await line.get_async()
                assert (array == number).all()
                order.append((turn, number))

            takers = [asyncio.create_task(take(turn)) for turn in range(40)]
            ticks = 0
            for _ in range(20):
                await asyncio.sleep(0.005)
                ticks += 1
            threads = threading.active_count()
            print(ticks, order, threads <= 3)
            go.set()
            await asyncio.gather(*takers)
            print(order == [(n, n) for n in range(40)])
            producer.join()

        asyncio.run(main())
    """)
    assert lines == ["20 [] True", "True"]


def test_cancelled_gets_lose_nothing() -> None:
    """With timeouts at every moment, every message comes out once, in order."""
    lines = run("""
        import asyncio, random, time
        import drover

        def produce(line):
            for number in range(400):
                line.put(number)
                if number % 7 == 0:
                    time.sleep(0.001)

        async def main():
            line = drover.Queue(50)
            producer = drover.Process(target=produce, args=(line,))
            producer.start()
            got, cancelled = [], 0
            others = []
            while len(got) < 400:
                if random.random() < 0.1:  # one that is cancelled at once, in front of the next
                    other = asyncio.ensure_future(line.get_async())
                    await asyncio.sleep(0)
                    if other.done():
                        got.append(other.result())
                        continue
                    other.cancel()
                    others.append(other)
                taker = asyncio.ensure_future(line.get_async())
                await asyncio.wait([taker], timeout=random.choice([0, 0.0005, 0.002]))
                if not taker.done():
                    taker.cancel()
                try:
                    got.append(await taker)
                except asyncio.CancelledError:
                    cancelled += 1
            print(got == list(range(400)), cancelled > 0, line.qsize())
            ended = await asyncio.gather(*others, return_exceptions=True)
            print(all(type(end) is asyncio.CancelledError for end in ended))
            producer.join()

        asyncio.run(main())
    """)
    assert lines == ["True True 0", "True"]


def test_puts_wait_for_room_in_order() -> None:
    """In a bounded queue. An object that cannot be sent raises at once; a cancelled put has put nothing."""
    lines = run("""
        import asyncio, threading
        import drover

        def consume(line, results, go):
            go.wait()
            for number in iter(line.get, None):
                results.put(number)
                line.task_done()

        async def main():
            line, results, go = drover.JoinableQueue(3), drover.Queue(), drover.Event()
            consumer = drover.Process(target=consume, args=(line, results, go))
            consumer.start()
            try:
                await line.put_async(threading.Lock())
            except TypeError:
                print("cannot be sent")
            puts = [asyncio.create_task(line.put_async(number)) for number in range(30)]
            await asyncio.sleep(0.05)
            print(sum(put.done() for put in puts))
            puts[10].cancel()
            go.set()
            ended = await asyncio.gather(*puts, return_exceptions=True)
            print([n for n, end in enumerate(ended) if end is not None])
            print([await results.get_async() for _ in range(29)] == [n for n in range(30) if n != 10])
            line.join()
            await line.put_async(None)
            consumer.join()
            consumer.close()

        asyncio.run(main())
    """)
    assert lines == ["cannot be sent", "3", "[10]", "True"]


def test_get_raises_when_no_producer_is_left() -> None:
    """As get does, instead of waiting forever; so do calls on a closed queue."""
    lines = run("""
        import asyncio, os, signal
        import drover

        def die(line):
            line.put("last words")
            os.kill(os.getpid(), signal.SIGKILL)

        async def main():
            line = drover.Queue()
            child = drover.Process(target=die, args=(line,))
            child.start()
            print(await line.get_async())
            try:
                await line.get_async()
            except drover.PeerLost as error:
                print("ended" in str(error))
            child.join()
            line.close()
            for call in (line.get_async(), line.put_async(1)):
                try:
                    await call
                except ValueError as error:
                    print("is closed" in str(error))

        asyncio.run(main())
        line = drover.Queue()
        for number in range(3):  # each with a loop of its own
            line.put(number)
            print(asyncio.run(line.get_async()))
    """)
    assert lines == ["last words", "True", "True", "True", "0", "1", "2"]


def test_futures_of_an_executor_are_cancelled_and_fail_in_asyncio() -> None:
    """Cancelled tasks that have not started never run; deaths and exceptions are raised by await."""
    lines = run("""
        import asyncio, os, signal, time
        import drover

        def slow(seconds):
            time.sleep(seconds)
            return seconds

        async def main():
            loop = asyncio.get_running_loop()
            with drover.Executor(1, output="discarded") as executor:
                first = asyncio.wrap_future(executor.submit(slow, 0.3))
                behind = [asyncio.wrap_future(executor.submit(slow, 30)) for _ in range(5)]
                timed = loop.run_in_executor(executor, slow, 30)
                for future in behind:
                    future.cancel()
                try:
                    await asyncio.wait_for(timed, 0.05)
                except asyncio.TimeoutError:
                    print("timed out")
                print(await first, [future.cancelled() for future in behind] == [True] * 5)
                for call, args in ((os.kill, (0, "x")), (lambda: os.kill(os.getpid(), signal.SIGKILL), ())):
                    try:
                        await loop.run_in_executor(executor, call, *args)
                    except (TypeError, drover.PeerLost) as error:
                        print(type(error).__name__)
                print(await asyncio.gather(*(loop.run_in_executor(executor, abs, -n) for n in range(5))))

        asyncio.run(main())
    """)
    printed = [line for line in lines if "drover[" not in line]
    assert printed == ["timed out", "0.3 True", "TypeError", "WorkerLost", "[0, 1, 2, 3, 4]"]
