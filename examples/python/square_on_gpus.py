"""Squares of arrays of the host, computed by torch: each worker on the device that it was given.

Devices are dealt out to the workers in turn, and each sees its own only; where there are more workers than GPUs they
share them, and where there is none torch uses the CPU. The arrays lie in shared memory, so no worker copies them.
"""

import drover
import torch


def square_plus_one(numbers):
    """Compute on the worker's device; give an array of the host."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return (torch.from_numpy(numbers).to(device).square() + 1.0).cpu().numpy()


inputs = [drover.zeros((1000, 1000)) for _ in range(4)]
for number, numbers in enumerate(inputs):
    numbers[:] = number
with drover.Pool(4) as pool:
    print([float(result.mean()) for result in pool.map(square_plus_one, inputs)])
