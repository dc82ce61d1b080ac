"""The start of workers and processes: what they receive, what they ignore, and what stays unchanged."""

from __future__ import annotations

from programs import run


def test_initializer_receives_values_arrays_and_pipes() -> None:
    """In later workers, too; no descriptor stays open after the pool has ended."""
    lines = run("""
        import os, signal, time
        import drover

        def begin(*initargs):
            global value, array, raw, writer
            value, array, raw, writer = initargs
            value.value += 1
            writer.send("begun")

        def work(x):
            with value.get_lock():
                array[x] = raw.value
            return value.value

        def count():
            return len(os.listdir("/proc/self/fd"))

        if __name__ == "__main__":
            drover.Pool(1).terminate()  # the first pool opens descriptors that stay open
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
            end = time.monotonic() + 10  # a thread may still be closing descriptors
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


def test_sockets_in_initargs_are_refused_with_an_alternative() -> None:
    """When the pool is created; nothing stays open."""
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


def test_standard_start_method_stays_unset() -> None:
    """The program may still set it, and workers then have it, too."""
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
    """So that an interrupt of an idle worker fails no later task; processes started by tasks do not ignore them."""
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
    """After close and after terminate, with an initializer."""
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


def test_pools_belong_to_the_parent_of_a_fork() -> None:
    """A forked child that exits with a pool prints nothing and has its own exit status."""
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
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks in threaded programs
            fork()
    """)
    assert lines == ["0 1"]


def test_failed_start_leaves_nothing_open() -> None:
    """However often it is repeated."""
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


def test_traceback_of_an_initializer_is_shown_once() -> None:
    """By the exception; the log has one line for each attempt."""
    lines = run("""
        import drover

        def begin():
            raise ZeroDivisionError("no licence")

        if __name__ == "__main__":
            try:
                with drover.Pool(1, begin) as pool:
                    pool.apply(abs, (-1,))
            except drover.PeerLost as error:
                print("ERROR", error)
    """)
    text = "\n".join(lines)
    error = text.partition("ERROR ")[2]
    assert error.count("ZeroDivisionError: no licence") == 1
    assert "in begin" in error
    assert "task_failed" not in text
    assert text.count("in begin") == text.count("  File ") - error.count("  File ") + 1 == 1, text
    assert text.count("started again: worker-0") == 2
    assert text.count("ZeroDivisionError: no licence") == 3
