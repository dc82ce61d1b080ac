"""A tensor goes to another process and comes back: on a GPU it stays there, and is never copied to the host."""

import drover
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"


def double(tensors, results):
    """Work on the very memory that was sent, and send it back."""
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
