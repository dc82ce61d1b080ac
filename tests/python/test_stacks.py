"""Python stacks of workers: in reports, in `drover ps`, and in the error of a task that timed out."""

from __future__ import annotations

from programs import run

HANGING = """
    import json, os, subprocess, sys, threading, time
    import drover

    def spins(x):
        while True:
            x += 1  # SPINS

    def waits(x):
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()  # WAITS

    def sleeps(x):
        time.sleep(1000)  # SLEEPS

    def holds_the_lock(x):
        # Compiled code that does not release the GIL.
        sum(iter(int, 1))  # HOLDS

    hanging = (spins, waits, sleeps, holds_the_lock)
    lines = open(__file__).read().splitlines()

    def is_located(text, function):
        mark = "# " + function.__name__.partition("_")[0].upper()
        number = next(n for n, line in enumerate(lines, 1) if line.endswith(mark))
        return f'File "{__file__}", line {number} in {function.__name__}' in text
"""


def test_error_of_a_timed_out_task_says_where_it_was() -> None:
    """File, line and function, for each kind of hang; the pool goes on."""
    lines = run(
        HANGING
        + """
    with drover.Pool(2, output="discarded") as pool:
        for function in hanging:
            for timeout in (0.3, 3, 30):  # on a busy machine, a task takes a while to get to where it hangs
                try:
                    pool.options(timeout=timeout, grace=0.1).apply(function, (1,))
                except drover.TimedOut as error:
                    text = str(error)
                if is_located(text, function):
                    break
            print(function.__name__, is_located(text, function), "'" + function.__name__ + "'" in text)
        print(pool.apply(abs, (-3,)))
    """
    )
    assert [line for line in lines if "drover[" not in line] == [
        "spins True True",
        "waits True True",
        "sleeps True True",
        "holds_the_lock True True",
        "3",
    ]


def test_reports_show_every_hanging_worker() -> None:
    """In stall_report() and `drover ps --stacks`, under the name of its function; tasks are not disturbed."""
    lines = run(
        HANGING
        + """
    def await_true(look):
        end = time.monotonic() + 60
        while not (is_seen := look()) and time.monotonic() < end:  # the functions take a while to get there
            time.sleep(0.05)
        return is_seen

    def is_reported():
        report = pool.stall_report()
        return all(is_located(report, function) and f'"{function.__name__}"' in report for function in hanging)

    def is_shown():
        shown = json.loads(subprocess.check_output([*tool, "--stacks", "--json"]))["pools"]
        own = next(one for one in shown if one["application_pid"] == os.getpid())["workers"]
        texts = {one["task_name"]: "\\n".join(one["stack_text"]) for one in own}
        return all(is_located(texts.get(function.__name__, ""), function) for function in hanging)

    tool = [sys.executable, "-m", "drover", "ps"]

    def sleeps_a_second(x):
        return time.sleep(1.0) or x

    with drover.Pool(len(hanging), stall_report_after=0.2, output="discarded") as pool:
        for number, function in enumerate(hanging):
            pool.options(worker=number).apply_async(function, (1,))
        print(await_true(is_reported), await_true(is_shown))
    with drover.Pool(1, stall_report_after=0) as pool:
        result = pool.apply_async(sleeps_a_second, (5,))
        while not result.ready():
            pool.stall_report()
            subprocess.check_output([*tool, "--stacks"])
        print(result.get())
    """
    )
    assert [line for line in lines if not line.startswith(("drover[", " "))] == ["True True", "5"]


def test_stacks_are_not_written_to_files_of_the_task() -> None:
    """A task that closes the file for stacks may open another under the same descriptor."""
    lines = run("""
        import os
        import drover

        def closes(path):
            own = next(int(fd) for fd in os.listdir("/proc/self/fd")
                       if "drover-stack-text" in os.readlink(f"/proc/self/fd/{fd}"))
            os.close(own)
            file = os.open(path, os.O_RDWR | os.O_CREAT)
            os.dup2(file, own)
            os.write(own, b"precious")
            while True:
                pass

        path = __file__ + ".data"
        with drover.Pool(1, output="discarded") as pool:
            for timeout in (0.5, 5, 50):  # a busy machine needs more
                try:
                    pool.options(timeout=timeout, grace=0.1).apply(closes, (path,))
                except drover.TimedOut as error:
                    text = str(error)
                if os.path.exists(path) and open(path).read():
                    break
            print("where it was" in text, open(path).read())
    """)
    assert [line for line in lines if "drover[" not in line] == ["False precious"]


def test_title_of_a_task_is_that_of_its_function() -> None:
    """For methods, partial functions, lambdas and chunks, one after another in the same worker."""
    lines = run("""
        import functools, json, os, subprocess, sys
        import drover

        def shown(_=None):
            pools = json.loads(subprocess.check_output([sys.executable, "-m", "drover", "ps", "--json"]))["pools"]
            return next(w for pool in pools for w in pool["workers"] if w["pid"] == os.getpid())["task_name"]

        class Model:
            def predict(self, x):
                return shown()

        with drover.Pool(1) as pool:
            print(pool.apply(shown))
            print(*pool.map(shown, range(2), 2))
            print(pool.apply(Model().predict, (1,)))
            print(pool.apply(lambda: shown()))
            print(pool.apply(functools.partial(shown, 1)))
            print(pool.apply(shown))
    """)
    assert lines == ["shown", "shown shown", "Model.predict", "<lambda>", "shown", "shown"]


def test_lost_task_whose_arguments_cannot_be_shown_raises_the_loss() -> None:
    """Python refuses to print an integer of 5000 digits; that must not replace the error."""
    lines = run("""
        import os, signal
        import drover

        def die(x):
            os.kill(os.getpid(), signal.SIGKILL)

        if __name__ == "__main__":
            with drover.Pool(1) as pool:
                try:
                    pool.apply(die, (10**5000,))
                except drover.PeerLost as error:
                    print("LOST", "die(...)" in error.message)
    """)
    assert [line for line in lines if "drover[" not in line] == ["LOST True"]
