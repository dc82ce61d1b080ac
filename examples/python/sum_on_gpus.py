"""Sums of four arrays by four workers: on a GPU with CuPy, otherwise with numpy.

The main process may use the GPU before it starts workers, the arrays lie on its device, and the main module needs no
guard. Workers receive the arrays by handle and use the device themselves.
"""

import drover

try:
    import cupy as xp

    xp.cuda.Device(0).use()
except Exception:  # no CuPy, or no GPU
    import numpy as xp


def add_up(array):
    """Sum an array in place."""
    return int(array.sum())


with drover.Pool(4) as pool:
    print(pool.map(add_up, [xp.arange(1_000_000) + number for number in range(4)]))
