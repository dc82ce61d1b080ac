"""The template: its children are like fresh interpreters, and every exit is reported."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import drover
import pytest
from programs import run

# The properties that must not depend on the way of starting; runs in a worker and in a process.
LOOK = """
import drover, json, os, resource, signal, sys

LINES = ("SigBlk", "SigIgn", "SigCgt", "Umask", "Cpus_allowed_list")
HIDDEN = ("DROVER_WORKER", "DROVER_TEMPLATE", "DROVER_SESSION_FD", "DROVER_TEST_PROGRAM")

def look(_=None):
    folder = "/proc/self/fd"
    links = [os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder) if os.path.exists(f"{folder}/{fd}")]
    out, err = sys.stdout, sys.stderr
    return {
        "status": [line for line in open("/proc/self/status") if line.split(":")[0] in LINES],
        "descriptors": sorted(link.split(":")[0] for link in links),
        "environment": sorted(item for item in os.environ.items() if item[0] not in HIDDEN),
        "in C": sorted(line for line in os.popen("env").read().splitlines() if line.startswith("DROVER_H")),
        "places": [os.getcwd(), sys.path, sys.executable, sys.prefix, sys.argv[:1]],
        "flags": [str(sys.flags), sys.warnoptions, sys.orig_argv[: sys.orig_argv.index("-c") + 2]],
        "main": [sys.modules["__main__"].__name__, str(sys.modules["__main__"].__spec__)],
        "bounds": [os.nice(0), [resource.getrlimit(n) for n in range(16)]],
        "stdout": [out.encoding, out.errors, out.line_buffering, out.write_through, out.isatty(), out.name, out.mode],
        "stderr": [err.encoding, err.errors, err.line_buffering, err.write_through, err.name, err.mode],
        "stdin": [sys.stdin.read(), sys.stdin.encoding],
        "signals": [str(signal.getsignal(n)) for n in (signal.SIGPIPE, signal.SIGTERM, signal.SIGUSR1)],
        "is_leader": os.getsid(0) == os.getpid(),
        "family": [drover.parent_process().pid - PARENT, drover.current_process().name],
    }

def put_look(queue):
    queue.put(look())

PARENT = os.getpid()
os.umask(0o27)
os.environ["DROVER_HELLO"] = "to the environment of C"
os.chdir("/usr")
"""


def without_reserved_signals(seen: dict[str, Any]) -> dict[str, Any]:
    """Leave out whether signal 33 is handled: the C library does that in processes that ever had a second thread."""
    caught = next(line for line in seen["status"] if line.startswith("SigCgt"))
    number = int(caught.split()[1], 16) & ~(1 << 32)
    return {**seen, "status": [f"SigCgt {number:x}" if line == caught else line for line in seen["status"]]}


def compare(body: str) -> dict[str, object]:
    """Run the body with and without the template, compare the results and return them."""
    seen = []
    for way in ("", "0"):
        line = run(f"{LOOK}\nos.environ['DROVER_TEMPLATE'] = {way!r}\n{body}\nprint(json.dumps(seen))")[-1]
        seen.append(json.loads(re.sub(r"/\w+/drover_test_\w+", "directory of the program", line)))
    assert seen[0] == seen[1]
    return seen[0]


def test_worker_of_a_pool_is_like_a_fresh_interpreter() -> None:
    """In its descriptors, environment, signals, limits, streams and flags."""
    seen = compare("with drover.Pool(1) as pool: seen = pool.apply(look)")
    assert seen["is_leader"]
    assert seen["places"][0] == "/usr"
    assert seen["in C"]


def test_process_is_like_a_fresh_interpreter() -> None:
    """The same for a drover.Process."""
    seen = compare(
        "q = drover.Queue(); p = drover.Process(target=put_look, args=(q,)); p.start(); seen = q.get(); p.join()"
    )
    assert not seen["is_leader"]


def test_children_are_forked_from_one_process() -> None:
    """Workers and processes alike, unless DROVER_TEMPLATE=0 is set or after use_template(False)."""
    lines = run(
        """
        import drover, os
        from drover._template import _state

        def parent(_=None):
            return os.getppid()

        def ppids():
            with drover.Pool(2) as pool:
                found = set(pool.map(parent, range(8), chunksize=1))
            queue = drover.Queue()
            child = drover.Process(target=lambda: queue.put(os.getppid()))
            child.start()
            found.add(queue.get())
            child.join()
            return found

        print(ppids() == {_state.current.pid}, _state.current.forks)
        drover.use_template(False)
        print(ppids() == {os.getpid()}, drover.warm_up())
        drover.use_template()
        print(ppids() == {_state.current.pid}, drover.warm_up())
        os.environ["DROVER_TEMPLATE"] = "0"
        print(ppids() == {os.getpid()}, drover.warm_up())
        """
    )
    assert lines == ["True 3", "True False", "True True", "True False"]


def test_exit_codes_and_signals_are_reported() -> None:
    """As for fresh interpreters, also after os._exit and kills; no zombie is left."""
    lines = run(
        """
        import drover, os, signal, sys, time

        def end(how, code):
            how(code)

        def kill(number):
            signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
            os.kill(os.getpid(), number)

        def raising(code):
            raise ValueError(code)

        cases = [(sys.exit, 0), (sys.exit, 255), (os._exit, 7), (sys.exit, "text")]
        cases += [(kill, signal.SIGKILL), (kill, signal.SIGTERM)]
        children = [drover.Process(target=end, args=case) for case in cases]
        for child in children: child.start()
        for child in children: child.join()
        print([child.exitcode for child in children])
        print([os.path.exists(f"/proc/{child.pid}") for child in children])
        """
    )
    assert lines[-2:] == [str([0, 255, 7, 1, -9, -15]), str([False] * 6)]


def test_child_exits_like_an_interpreter() -> None:
    """Exit handlers run, threads are joined, and output is flushed."""
    lines = run(
        """
        import atexit, drover, sys, threading, time

        def work():
            atexit.register(lambda: print("exit handler"))
            threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
            sys.stdout.write("no newline")

        if __name__ == "__main__":
            child = drover.Process(target=work)
            child.start()
            child.join()
        """
    )
    found = re.findall("no newline|thread|exit handler", "".join(lines))
    assert sorted(found) == ["exit handler", "no newline", "thread"]


def test_random_numbers_differ_from_worker_to_worker() -> None:
    """Those of random, numpy and torch, which the template has imported."""
    pytest.importorskip("torch")
    lines = run(
        """
        import drover, numpy, random, torch

        def draw(_):
            import time
            time.sleep(0.1)
            return drover.this_worker().index, (random.random(), numpy.random.random(), torch.rand(1).item())

        drover.warm_up()
        with drover.Pool(3) as pool:
            found = dict(pool.map(draw, range(6), chunksize=1))
            print(len(found), [len({numbers[i] for numbers in found.values()}) for i in range(3)])
        """
    )
    assert lines == ["3 [3, 3, 3]"]


def test_libraries_have_as_many_threads_as_the_worker_may_use() -> None:
    """In torch and numpy, although the template has loaded them with one thread."""
    pytest.importorskip("torch")
    lines = run(
        """
        import ctypes, drover, numpy, os, sys, torch

        def counts(_=None):
            import glob
            paths = [line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line]
            library = ctypes.CDLL(paths[0])
            names = [f"{first}openblas_get_num_threads{last}" for first in ("", "scipy_") for last in ("", "64_")]
            count = next(getattr(library, name)() for name in names if hasattr(library, name))
            return torch.get_num_threads(), count, os.environ["OPENBLAS_NUM_THREADS"], "torch" in sys.modules

        for threads in (1, 3):
            with drover.Pool(1, threads=threads) as pool:
                print(pool.apply(counts))
        """
    )
    assert lines == ["(1, 1, '1', True)", "(3, 3, '3', True)"]


def test_openblas_starts_its_threads_when_it_needs_them() -> None:
    """Not when a worker starts, where they would take the cores from others."""
    pytest.importorskip("numpy")
    lines = run(
        """
        import ctypes, drover, numpy, os, pathlib, re

        def threads():
            return len(os.listdir("/proc/self/task"))

        def can_be_lazy():  # OpenBLAS of numpy 2.5 no longer exports what it takes
            found = re.search(r"/\\S*openblas\\S*", pathlib.Path("/proc/self/maps").read_text())
            return found is not None and hasattr(ctypes.CDLL(found[0]), "blas_thread_shutdown_")

        def started():
            if not can_be_lazy() or len(os.sched_getaffinity(0)) == 1:
                return True, True
            before = threads()
            many = numpy.ones((1000, 1000))
            is_right = (many @ many)[0, 0] == 1000
            return before <= plain, is_right and threads() == before + len(os.sched_getaffinity(0)) - 1

        with drover.Pool(1, threads=1) as pool:
            plain = pool.apply(threads)
        with drover.Pool(1) as pool:
            print(*pool.apply(started))
        """
    )
    assert lines == ["True True"]


def test_children_have_the_modules_that_the_program_has_imported() -> None:
    """Also those imported later: the template is replaced, and exits of its earlier children are still reported."""
    lines = run(
        """
        import drover, sys, time

        def loaded(names):
            return [name in sys.modules for name in names]

        def wait(event):
            event.wait()
            sys.exit(5)

        with drover.Pool(1) as pool:
            print(pool.apply(loaded, (["numpy", "json"],)))
        event = drover.Event()
        early = drover.Process(target=wait, args=(event,))
        early.start()
        import numpy
        with drover.Pool(1) as pool:
            print(pool.apply(loaded, (["numpy"],)))
        event.set()
        early.join()
        print(early.exitcode)
        from drover._template import _state
        print([one.is_over for one in _state.retired])
        """
    )
    assert lines[:2] == ["[False, True]", "[True]"]
    assert lines[2] == "5"
    assert lines[3] in ("[True]", "[False]")


def test_preload_that_fails_is_left_out_with_a_warning(tmp_path: Path) -> None:
    """A module that raises, one that starts a thread and one that is missing; the others are imported."""
    (tmp_path / "preload_broken.py").write_text("raise RuntimeError('out of order')")
    (tmp_path / "preload_threads.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"
    )
    (tmp_path / "preload_good.py").write_text("answer = 42")
    lines = run(
        f"""
        import drover, sys, warnings
        sys.path.insert(0, {str(tmp_path)!r})
        warnings.simplefilter("always")

        def loaded(_=None):
            return [f"preload_{{name}}" in sys.modules for name in ("broken", "threads", "good")]

        def show(message, category, *_):
            print(category.__name__, *str(message).split("\\n"))
        warnings.showwarning = show
        drover.set_preload(["preload_broken", "preload_threads", "preload_good", "preload_missing"])
        print(drover.warm_up())
        drover.warm_up()
        with drover.Pool(2) as pool:
            print(pool.apply(loaded))
        """
    )
    warned = [line for line in lines if line.startswith("TemplateWarning")]
    assert len(warned) == 3, lines
    assert "preload_broken" in " ".join(warned)
    assert "out of order" in " ".join(warned)
    assert "preload_threads" in " ".join(warned)
    assert "1 threads" in " ".join(warned)
    assert "preload_missing" in " ".join(warned)
    assert lines[-1] == "[False, False, True]"


def test_preload_that_leaves_a_file_open_is_left_out_and_signal_handlers_are_kept(tmp_path: Path) -> None:
    """An error with non-ASCII text is handled; `set_preload([])` removes modules, too."""
    (tmp_path / "preload_opens.py").write_text("file = open(__file__)")
    (tmp_path / "preload_odd.py").write_text("raise RuntimeError('\u00fc' * 5000)")
    (tmp_path / "preload_signals.py").write_text(
        "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('handled', flush=True))"
    )
    lines = run(
        f"""
        import drover, os, pathlib, signal, sys, warnings
        sys.path.insert(0, {str(tmp_path)!r})
        sys.path.append(pathlib.Path("/nowhere"))
        warnings.simplefilter("ignore")

        def look():
            os.kill(os.getpid(), signal.SIGUSR1)
            return [f"preload_{{name}}" in sys.modules for name in ("opens", "odd", "signals")]

        drover.set_preload(["preload_opens", "preload_odd", "preload_signals"])
        print(drover.warm_up(), "preload_opens.py open" in drover._template._state.current.notes)
        with drover.Pool(1) as pool:
            print(pool.apply(look))
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        drover.set_preload([])
        with drover.Pool(1, signal.signal, (signal.SIGUSR1, signal.SIG_IGN)) as pool:
            print(pool.apply(look))
        """
    )
    assert lines == ["True True", "handled", "[False, False, True]", "[False, False, False]"]


def test_template_restarts_without_a_module_that_touched_a_gpu(tmp_path: Path) -> None:
    """As reported by the driver, here a stand-in library."""
    source = tmp_path / "driver.c"
    source.write_text("int cuDeviceGetCount(int* count) { *count = 1; return 0; }\n")
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source], check=True)
    (tmp_path / "preload_cuda.py").write_text(f"import ctypes\nctypes.CDLL({str(library)!r}, ctypes.RTLD_GLOBAL)")
    lines = run(
        f"""
        import drover, os, sys, warnings
        sys.path.insert(0, {str(tmp_path)!r})
        warnings.simplefilter("ignore")
        drover.set_forkserver_preload(["preload_cuda"])
        print(drover.warm_up())
        from drover._template import _state
        print(_state.current.notes)
        with drover.Pool(1) as pool:
            print(pool.apply(os.getppid) == _state.current.pid)
        """
    )
    assert lines[0] == "True"
    assert lines[1].startswith("preload_cuda: it initialised CUDA")
    assert lines[2] == "True"


def test_invalid_variable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which names the variable and its value."""
    monkeypatch.setenv("DROVER_TEMPLATE", "maybe")
    with pytest.raises(drover.InvalidArgument, match="DROVER_TEMPLATE is 'maybe'"):
        drover.warm_up()


def test_names_of_modules_are_checked() -> None:
    """A str instead of a list, and elements that are not str."""
    with pytest.raises(TypeError, match="list"):
        drover.set_preload("numpy")
    with pytest.raises(TypeError, match="must be str"):
        drover.set_preload([1])
    drover.set_preload(None)


def test_changed_python_variables_replace_the_template() -> None:
    """The interpreter reads PYTHONHASHSEED and others only when it starts."""
    lines = run(
        """
        import drover, os, sys
        from drover._template import _state

        def look():
            print(sys.flags.hash_randomization, os.environ["PYTHONHASHSEED"])

        drover.warm_up()
        old = _state.current.pid
        os.environ["PYTHONHASHSEED"] = "0"
        child = drover.Process(target=look)
        child.start()
        child.join()
        print(child.exitcode, _state.current.forks, _state.current.pid != old)
        """
    )
    assert lines == ["0 0", "0 1 True"]


def test_flags_of_the_interpreter_are_passed_on() -> None:
    """-O and -W, as by the standard library."""
    look = "[__import__('sys').flags.optimize, __import__('sys').warnoptions]"
    source = f"import drover\nwith drover.Pool(1) as pool: print(pool.apply(eval, ({look!r},)))"
    done = subprocess.run(
        [sys.executable, "-O", "-W", "ignore", "-c", source], capture_output=True, text=True, check=True, timeout=90
    )
    assert done.stdout.strip() == "[1, ['ignore']]"


def test_marks_of_a_worker_are_visible_in_proc() -> None:
    """In its environment, which identifies processes of a dead worker, and in its command line."""
    lines = run(
        """
        import drover, os

        def look():
            environ = open("/proc/self/environ", "rb").read().split(b"\\0")
            mark = f"DROVER_WORKER={os.environ['DROVER_WORKER']}".encode()
            command = open("/proc/self/cmdline", "rb").read().split(b"\\0")
            return mark in environ, b"--name=worker-0" in command, b"--drover-role=worker" in command

        with drover.Pool(1) as pool:
            print(pool.apply(look))
        """
    )
    assert lines == ["(True, True, True)"]
