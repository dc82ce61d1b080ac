"""The context in other libraries: code that accepts a multiprocessing context accepts drover's."""

from __future__ import annotations

import pytest
from programs import run


def test_data_loader_of_torch() -> None:
    """Two workers load each sample once, in order."""
    pytest.importorskip("torch")
    lines = run("""
        import drover
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Squares(Dataset):
            def __len__(self):
                return 40

            def __getitem__(self, index):
                return torch.full((3,), float(index) ** 2), index

        if __name__ == "__main__":
            loader = DataLoader(
                Squares(), batch_size=8, num_workers=2, multiprocessing_context=drover.get_context(),
                persistent_workers=True,
            )
            for _ in range(2):
                seen = []
                for squares, indices in loader:
                    assert squares.shape == (8, 3)
                    assert torch.equal(squares[:, 0], indices.double().pow(2).float())
                    seen += indices.tolist()
                assert seen == list(range(40)), seen
            del loader
            print("all")
    """)
    assert lines == ["all"]


def test_executor_of_the_standard_library() -> None:
    """The standard process pool runs on drover's processes and queues."""
    lines = run("""
        from concurrent.futures import ProcessPoolExecutor
        import drover

        def square(number):
            return number * number

        def fail():
            raise KeyError("of this kind")

        if __name__ == "__main__":
            with ProcessPoolExecutor(2, mp_context=drover.get_context()) as executor:
                print(list(executor.map(square, range(20), chunksize=3)) == [n * n for n in range(20)])
                print(repr(executor.submit(fail).exception()))
    """)
    assert lines == ["True", "KeyError('of this kind')"]


def test_pool_of_the_standard_library() -> None:
    """The standard pool class runs on drover's processes and queues; closed, and terminated while it works."""
    lines = run("""
        import multiprocessing.pool
        import time
        import drover

        def square(number):
            return number * number

        if __name__ == "__main__":
            with multiprocessing.pool.Pool(2, maxtasksperchild=5, context=drover.get_context()) as pool:
                print(pool.map(square, range(30), chunksize=2) == [n * n for n in range(30)])
                print(sorted(pool.imap_unordered(square, range(5))), pool.apply_async(square, (7,)).get())
                pool.close()
                pool.join()
            with multiprocessing.pool.Pool(2, context=drover.get_context()) as pool:
                pool.map_async(time.sleep, [60] * 100)
            print("ended")
    """)
    assert lines == ["True", "[0, 1, 4, 9, 16] 49", "ended"]


def test_manager() -> None:
    """The server is a drover process, with proxies in other processes."""
    lines = run("""
        import drover

        def work(shared, listed, lock):
            with lock:
                shared["child"] = len(listed)
                listed.append("child")

        if __name__ == "__main__":
            with drover.Manager() as manager:
                shared, listed, lock = manager.dict(), manager.list([1, 2]), manager.Lock()
                child = drover.Process(target=work, args=(shared, listed, lock))
                child.start()
                child.join()
                print(child.exitcode, dict(shared), list(listed))
    """)
    assert lines == ["0 {'child': 2} [1, 2, 'child']"]


def test_shared_memory_and_values() -> None:
    """multiprocessing's shared memory, values and pipes work in drover's processes."""
    lines = run("""
        import drover
        from drover.shared_memory import SharedMemory

        def work(name, value, array, pipe):
            block = SharedMemory(name)
            block.buf[0] = 7
            block.close()
            with value.get_lock():
                value.value += 1
            array[1] = 2.5
            pipe.send("done")
            pipe.close()

        if __name__ == "__main__":
            block = SharedMemory(create=True, size=16)
            value, array = drover.Value("i", 41), drover.Array("d", 3)
            here, there = drover.Pipe()
            child = drover.Process(target=work, args=(block.name, value, array, there))
            child.start()
            print(here.recv())
            child.join()
            print(block.buf[0], value.value, list(array))
            block.close()
            block.unlink()
    """)
    assert lines == ["done", "7 42 [0.0, 2.5, 0.0]"]
