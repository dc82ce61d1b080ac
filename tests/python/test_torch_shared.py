"""Torch's own shared memory in messages by value, and arguments that are shared."""

from __future__ import annotations

import pytest
from programs import run

pytest.importorskip("torch")


def test_file_of_torchs_shared_memory_is_removed_with_its_last_tensor() -> None:
    """Sending changes no reference count of torch, so its file is there as long as its tensors, and no longer."""
    lines = run("""
        import pathlib
        import torch
        import drover

        torch.multiprocessing.set_sharing_strategy("file_system")
        shared = torch.zeros(8192).share_memory_()
        file = pathlib.Path("/dev/shm", shared.untyped_storage()._share_filename_cpu_()[1].decode().lstrip("/"))
        queue = drover.Queue()
        for _ in range(3):
            queue.put([shared])
            back = queue.get()
        print(file.exists(), int.from_bytes(file.read_bytes()[:4], "little"))
        queue.put([shared])
        del shared, back
        print(file.exists(), len(queue.get()[0]))
    """)
    assert lines == ["True 1", "False 8192"]


def test_descriptor_of_torchs_shared_memory_stays_open_if_there_are_no_more() -> None:
    """The send fails, and can be tried again."""
    lines = run("""
        import os
        import resource
        import torch
        import drover

        queue = drover.Queue()
        shared = torch.zeros(8192).share_memory_()
        file = shared.untyped_storage()._share_fd_cpu_()[0]
        queue.put([torch.zeros(8192)])
        queue.get()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        next_file = os.dup(0)
        os.close(next_file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_file, hard))
        try:
            queue.put([shared])
        except drover.LimitReached as error:
            print("ulimit" in str(error))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        queue.put([shared])
        queue.get()[0][3] = 7
        print(os.fstat(file).st_size, shared[3].item())
    """)
    assert lines == ["True", "32768 7.0"]


def test_message_that_a_reducer_sends_leaves_the_outer_one_as_it_is() -> None:
    """Arguments of processes are shared, also those that are pickled after a message with copies."""
    lines = run("""
        import torch
        import drover

        class Sender:
            def __reduce__(self):
                queue.put({"copied": torch.ones(3)})
                return int, ()

        def fill(number, tensor):
            tensor.fill_(7)

        queue = drover.Queue()
        if __name__ == "__main__":
            for size in (3, 20_000):
                tensor = torch.zeros(size)
                child = drover.Process(target=fill, args=(Sender(), tensor))
                child.start()
                child.join()
                print(tensor[0].item(), queue.get()["copied"][0].item())
    """)
    assert lines == ["7.0 1.0", "7.0 1.0"]


def test_torchs_shared_memory_is_unmapped_when_nothing_uses_it() -> None:
    """By a sender and a receiver that are idle from then on."""
    lines = run("""
        import pathlib
        import time
        import torch
        import drover

        def is_unmapped():
            end = time.monotonic() + 60
            while "/dev/shm/torch_" in pathlib.Path("/proc/self/maps").read_text():
                if time.monotonic() > end:
                    return False
                time.sleep(0.01)
            return True

        def take(queue, has_dropped):
            print(queue.get()[0].sum().item())
            has_dropped.set()
            print(is_unmapped(), flush=True)

        if __name__ == "__main__":
            queue, has_dropped = drover.Queue(), drover.Event()
            child = drover.Process(target=take, args=(queue, has_dropped))
            child.start()
            queue.put([torch.ones(1 << 20).share_memory_()])
            has_dropped.wait()
            print(is_unmapped(), flush=True)
            child.join()
    """)
    assert lines == ["1048576.0", "True", "True"]
