"""Sums of four arrays by four processes, which put them into a queue: on a GPU with CuPy, otherwise with numpy."""

import drover

try:
    import cupy as xp

    xp.cuda.Device(0).use()
except Exception:  # no CuPy, or no GPU
    import numpy as xp


def add_up(array, results):
    """Sum an array in place."""
    results.put(int(array.sum()))


results = drover.Queue()
processes = [drover.Process(target=add_up, args=(xp.arange(1_000_000) + number, results)) for number in range(4)]
for process in processes:
    process.start()
print(sorted(results.get() for _ in processes))
for process in processes:
    process.join()
