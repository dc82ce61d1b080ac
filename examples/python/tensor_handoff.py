"""A tensor travels to another process and back without a copy; on a GPU it stays there throughout.

The program of examples/cpp/tensor_handoff in Python.
"""

import drover
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"


def double(tensors, results):
    """Double the received tensor in place, and send it back."""
    tensor = tensors.get()
    tensor *= 2.0
    results.put(tensor)


tensors, results = drover.Queue(), drover.Queue()
process = drover.Process(target=double, args=(tensors, results))
process.start()
tensors.put(torch.ones(1000, 1000, device=device))
received = results.get()
print(received.shape, float(received.sum()))
process.join()
