"""The jobs that drover was made for, written for multiprocessing with only the import changed; without a warning."""

from __future__ import annotations

import textwrap

import pytest
from programs import run
from test_survival import require

# For each library, with data where it computes: `to_device`, `to_host`, `add` and `total`.
LIBRARIES = {
    "numpy": """
        import numpy as np
        to_device = to_host = np.asarray
        add, total = np.add, np.sum
    """,
    "torch": """
        import numpy as np, torch
        to_device, to_host = torch.from_numpy, np.asarray
        add, total = torch.add, torch.sum
    """,
    "torch_cuda": """
        import numpy as np, torch
        def to_device(array):
            return torch.from_numpy(array).cuda()
        def to_host(tensor):
            return tensor.cpu().numpy()
        add, total = torch.add, torch.sum
    """,
    "cupy": """
        import cupy, numpy as np
        to_device, to_host, total = cupy.asarray, cupy.asnumpy, cupy.sum
        kernel = cupy.RawKernel(r'''
        extern "C" __global__ void add(const double* a, const double* b, double* c, int count) {
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < count) c[i] = a[i] + b[i];
        }''', "add")
        def add(a, b):
            c = cupy.empty_like(a)
            kernel(((a.size + 255) // 256,), (256,), (a, b, c, np.int32(a.size)))
            return c
    """,
    "numba": """
        import numpy as np
        from numba import cuda
        @cuda.jit
        def add_numbers(a, b, c):
            i = cuda.grid(1)
            if i < c.size:
                c[i] = a[i] + b[i]
        def to_device(array):
            return cuda.to_device(array)
        def to_host(array):
            return array.copy_to_host()
        def add(a, b):
            c = cuda.device_array_like(a)
            add_numbers[(a.size + 255) // 256, 256](a, b, c)
            cuda.synchronize()
            return c
        def total(array):
            return to_device(to_host(array).sum(keepdims=True))
    """,
}

# The program has used the device before; workers compute with arrays of its, and give arrays back.
MAP_AND_PROCESSES = """
    def work(data):
        return total(data)

    def work_and_put(results, data):
        results.put(total(data))

    if __name__ == "__main__":
        print(float(to_host(total(to_device(np.ones(10))))))
        with multiprocessing.Pool(processes=4) as pool:
            print([float(to_host(x)) for x in pool.map(work, [to_device(np.arange(1e6)) for _ in range(4)])])
        results = multiprocessing.Queue()
        processes = []
        for number in range(4):
            data = to_device(np.full(1000, float(number)))
            processes.append(multiprocessing.Process(target=work_and_put, args=(results, data)))
            processes[-1].start()
        for process in processes:
            process.join()
        print(sorted(float(to_host(results.get())) for _ in processes))
"""

# Each worker of a pool starts a process that alone uses the device.
PROCESS_FOR_THE_DEVICE = """
    def serve(requests, replies):
        while (data := requests.get()) is not None:
            replies.put(add(to_device(data), to_device(np.ones(data.size))))

    def work(data):
        requests, replies = multiprocessing.Queue(), multiprocessing.Queue()
        server = multiprocessing.Process(target=serve, args=(requests, replies))
        server.start()
        requests.put(data)
        requests.put(None)
        reply = to_host(replies.get())
        server.join()
        return reply

    if __name__ == "__main__":
        with multiprocessing.Pool(processes=2) as pool:
            print([x.sum() for x in pool.map(work, [np.full(1000, float(n)) for n in range(4)])])
"""

# The makers have ended when their arrays are received.
PRESERVED = """
    def put(queue, data):
        queue.put({"data": data, "more": add(data, data)})

    def send(end, data):
        end.send(add(data, data))
        end.close()

    if __name__ == "__main__":
        data = to_device(np.arange(100_000.0))
        queue = multiprocessing.Queue()
        process = multiprocessing.Process(target=put, args=(queue, data))
        process.start()
        process.join()
        got = queue.get()
        print(to_host(got["data"]).sum(), to_host(got["more"]).sum())
        here, there = multiprocessing.Pipe()
        process = multiprocessing.Process(target=send, args=(there, data))
        process.start()
        there.close()
        process.join()
        print(to_host(here.recv()).sum())
"""

# Data are prepared on the processor, added by one process on the device, and summed by others.
CHUNKS = """
    def serve(chunks, results):
        while (chunk := chunks.get()) is not None:
            results.put(add(*map(to_device, chunk)))
            chunks.task_done()
        chunks.task_done()

    def prepare(number):
        return np.full(100_000, float(number)), np.ones(100_000)

    def finish(chunk):
        return float(to_host(total(chunk)))

    if __name__ == "__main__":
        chunks, results = multiprocessing.JoinableQueue(), multiprocessing.Queue()
        server = multiprocessing.Process(target=serve, args=(chunks, results))
        server.start()
        with multiprocessing.Pool(processes=2) as pool:
            for chunk in pool.imap(prepare, range(10)):
                chunks.put(chunk)
            chunks.put(None)
            chunks.join()
            server.join()
            print(sum(pool.map(finish, [results.get() for _ in range(10)])))
"""

# A loader in each worker, and its results in an array of a manager, in a queue, and as results of a pool.
LOADERS = """
    import queue
    from torch.utils.data import DataLoader, TensorDataset
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def sums(chunk):
        data = TensorDataset(torch.tensor(chunk, dtype=torch.float32, device=device))
        return [torch.sum(batch[0]).item() for batch in DataLoader(data, batch_size=32)]

    def add_up(shared, chunk, index):
        for value in sums(chunk):
            shared[index] += value

    def serve(tasks, results, index):
        while True:
            try:
                results.put((index, sums(tasks.get(timeout=0.5))))
            except queue.Empty:
                break

    if __name__ == "__main__":
        chunks = torch.ones(1000, 10).chunk(4)
        with multiprocessing.Manager() as manager:
            shared = manager.Array("d", [0.0] * 4)
            processes = [
                multiprocessing.Process(target=add_up, args=(shared, chunk.tolist(), index))
                for index, chunk in enumerate(chunks)
            ]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            print(list(shared))
        tasks, results = multiprocessing.Queue(), multiprocessing.Queue()
        for chunk in chunks:
            tasks.put(chunk.tolist())
        processes = [multiprocessing.Process(target=serve, args=(tasks, results, n)) for n in range(2)]
        for process in processes:
            process.start()
        print(sum(sum(results.get()[1]) for _ in chunks))
        for process in processes:
            process.join()
        with multiprocessing.Pool(processes=4) as pool:
            print(sum(map(sum, pool.map(sums, [chunk.tolist() for chunk in chunks]))))
"""

JOBS = {
    "map_and_processes": (
        MAP_AND_PROCESSES,
        ["10.0", "[499999500000.0, 499999500000.0, 499999500000.0, 499999500000.0]", "[0.0, 1000.0, 2000.0, 3000.0]"],
    ),
    "process_for_the_device": (PROCESS_FOR_THE_DEVICE, ["[1000.0, 2000.0, 3000.0, 4000.0]"]),
    "preserved": (PRESERVED, ["4999950000.0 9999900000.0", "9999900000.0"]),
    "chunks": (CHUNKS, ["5500000.0"]),
}


def printed_by(job: str, library: str) -> list[str]:
    """Run a job with a library; return all that it prints."""
    imports = "import drover as multiprocessing\n" + textwrap.dedent(LIBRARIES[library])
    return run(textwrap.indent(imports, "    ") + job)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_job_runs_with_only_the_import_changed(library: str, job: str) -> None:
    """With arrays of each library, on a GPU if it computes there."""
    require(library)
    program, expected = JOBS[job]
    assert [line.replace("np.float64(", "").replace(")", "") for line in printed_by(program, library)] == expected


def test_loaders_run_with_only_the_import_changed() -> None:
    """One in each worker, on a GPU if there is one."""
    require("torch")
    assert printed_by(LOADERS, "torch") == ["[2500.0, 2500.0, 2500.0, 2500.0]", "10000.0", "10000.0"]
