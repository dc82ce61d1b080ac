"""Arrays of the host, doubled by torch on devices: each worker uses the device that the pool gave it.

Devices are assigned to workers in turn, and a worker sees only its own. Workers share GPUs if there are more workers
than GPUs; without a GPU torch uses the CPU. The arrays lie in shared memory, so no worker copies them.
"""

import drover
import torch


def double_plus_one(numbers):
    """Compute on the worker's device, and return an array of the host."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return (torch.from_numpy(numbers).to(device) * 2.0 + 1.0).cpu().numpy()


inputs = [drover.zeros((1000, 1000)) for _ in range(4)]
for number, numbers in enumerate(inputs):
    numbers[:] = number
with drover.Pool(4) as pool:
    print([float(result.mean()) for result in pool.map(double_plus_one, inputs)])
