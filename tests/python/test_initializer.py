"""How workers of pools and processes begin: what they are given, what they ignore, and what stays as it was."""

from __future__ import annotations

from programs import run


def test_initializer_is_given_values_arrays_and_pipes() -> None:
    """Also in a worker that is started later; no descriptor stays when the pool has ended."""
    lines = run("""
        import os, signal, time
        import drover

        def begin(*given):
            global value, array, raw, writer
            value, array, raw, writer = given
            value.value += 1
            writer.send("begun")

        def work(x):
            with value.get_lock():
                array[x] = raw.value
            return value.value

        def count():
            return len(os.listdir("/proc/self/fd"))

        if __name__ == "__main__":
            drover.Pool(1).terminate()  # what the first one opens for good is there
            value, array, raw = drover.Value("i", 10), drover.Array("d", 3), drover.RawValue("i", 5)
            reader, writer = drover.Pipe(duplex=False)
            before = count()
            pool = drover.Pool(1, begin, (value, array, raw, writer))
            print(pool.apply(work, (0,)), reader.recv())
            os.kill(pool.workers()[0]["pid"], signal.SIGKILL)
            print(reader.recv(), pool.options(retry=3).apply(work, (2,)), list(array), value.value)
            pool.close()
            pool.join()
            with drover.Pool(1, begin, (value, array, raw, writer)) as pool:
                print(reader.recv())
            del pool
            end = time.monotonic() + 10  # for a thread that closes what it had
            while count() != before and time.monotonic() < end:
                time.sleep(0.01)
            print(count() - before)
    """)
    assert [line for line in lines if "drover[" not in line] == [
        "11 begun",
        "begun 12 [5.0, 0.0, 5.0] 12",
        "begun",
        "0",
    ]


def test_sockets_are_refused_with_what_to_give_instead() -> None:
    """When the pool is made; it leaves nothing open."""
    lines = run("""
        import os, socket
        import drover

        if __name__ == "__main__":
            drover.Pool(1).terminate()
            value, ends = drover.Value("i", 0), socket.socketpair()
            before = len(os.listdir("/proc/self/fd"))
            try:
                drover.Pool(1, print, (value, ends[0]))
            except drover.Unsupported as error:
                print("socket" in error.message, "drover.Queue" in error.remedy)
            print(len(os.listdir("/proc/self/fd")) - before)
    """)
    assert lines == ["True True", "0"]


def test_standard_start_method_is_not_chosen() -> None:
    """The program may still choose it; once it has, workers know it."""
    lines = run("""
        import multiprocessing
        import drover

        def method():
            return multiprocessing.get_start_method(allow_none=True)

        if __name__ == "__main__":
            with drover.Pool(1) as pool:
                print(pool.apply(method), method())
            multiprocessing.set_start_method("spawn")
            with drover.Pool(1) as pool:
                print(pool.apply(method), method())
    """)
    assert lines == ["None None", "spawn spawn"]


def test_workers_ignore_interrupts() -> None:
    """Idle ones, so that no later task fails; what a task starts is interrupted as ever."""
    lines = run("""
        import os, signal, subprocess
        import drover

        def interrupt_oneself(x):
            os.kill(os.getpid(), signal.SIGINT)
            return x

        def interrupt_another():
            with subprocess.Popen(["sleep", "60"]) as other:
                other.send_signal(signal.SIGINT)
            return other.returncode == -signal.SIGINT

        if __name__ == "__main__":
            with drover.Pool(1, interrupt_oneself, (0,)) as pool:
                print(pool.apply(abs, (-1,)))
                os.kill(pool.workers()[0]["pid"], signal.SIGINT)
                print(pool.map(interrupt_oneself, range(5), 1), pool.apply(interrupt_another))
    """)
    assert lines == ["1", "[0, 1, 2, 3, 4] True"]


def test_join_may_be_called_again() -> None:
    """With an initializer too, and whether it was closed or terminated."""
    lines = run("""
        import drover

        if __name__ == "__main__":
            pool = drover.Pool(1, print, ("begun",))
            pool.close()
            pool.join()
            pool.join()
            pool.terminate()
            pool.join()
            print("joined")
    """)
    assert lines == ["begun", "joined"]


def test_pools_are_the_parents_alone() -> None:
    """A forked child that ends with one says nothing, and ends as it wants to."""
    lines = run("""
        import os, sys, warnings
        import drover

        def fork():
            pool = drover.Pool(1)
            child = os.fork()
            if child == 0:
                return
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), pool.apply(abs, (-1,)))
            pool.terminate()

        if __name__ == "__main__":
            warnings.simplefilter("always", ResourceWarning)
            warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, for forks beside threads
            fork()
    """)
    assert lines == ["0 1"]


def test_start_that_fails_leaves_nothing_open() -> None:
    """A process that could not be started can be tried again."""
    lines = run("""
        import os
        import drover

        def fail(pid):
            raise OSError("no descriptor left")

        def count():
            return len(os.listdir("/proc/self/fd"))

        if __name__ == "__main__":
            open_pidfd = os.pidfd_open
            drover.Pool(1).terminate()
            before = count()
            os.pidfd_open = fail
            for _ in range(3):
                try:
                    drover.Process(target=print).start()
                except OSError as error:
                    print(error)
            os.pidfd_open = open_pidfd
            print(count() - before)
    """)
    assert lines == ["no descriptor left"] * 3 + ["0"]
