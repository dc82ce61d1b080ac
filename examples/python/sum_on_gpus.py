"""Sums of four arrays by four workers: on a GPU with CuPy, else with numpy.

Written the way one would like to write it. The main process uses the GPU before there are workers, the arrays lie on
its device, and nothing guards the main module; workers get the arrays by handle and use the device themselves.
"""

import drover

try:
    import cupy as xp

    xp.cuda.Device(0).use()
except Exception:  # no CuPy, or no GPU
    import numpy as xp


def add_up(array):
    """Add up an array where it lies."""
    return int(array.sum())


with drover.Pool(4) as pool:
    print(pool.map(add_up, [xp.arange(1_000_000) + number for number in range(4)]))
