"""One process owns the GPU and serves all others, which need no context of their own.

Each helper sends a tensor through the server's queue and receives the result from its own queue. torch uses a GPU
if there is one, and the CPU otherwise.
"""

import drover
import torch


def serve(requests):
    """Compute on the device until None arrives."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for tensor, answers in iter(requests.get, None):
        answers.put((tensor.to(device) * 2.0 + 1.0).cpu())


def help_out(number, requests, results):
    """Have a tensor computed without touching the GPU."""
    answers = drover.Queue()
    requests.put((torch.full((500, 500), float(number)), answers))
    results.put(float(answers.get().mean()))


requests, results = drover.Queue(), drover.Queue()
server = drover.Process(target=serve, args=(requests,))
server.start()
helpers = [drover.Process(target=help_out, args=(number, requests, results)) for number in range(4)]
for helper in helpers:
    helper.start()
print(sorted(results.get() for _ in helpers))
for helper in helpers:
    helper.join()
requests.put(None)
server.join()
