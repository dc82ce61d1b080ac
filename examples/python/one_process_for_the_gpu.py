"""One process owns the GPU and serves all others, so that they need no context of their own.

The helpers send arrays through a queue and get results from a queue of their own. torch is used on a GPU if there is
one, else on the CPU.
"""

import drover
import torch


def serve(requests):
    """Do the work on the device, until told to end."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for tensor, answers in iter(requests.get, None):
        answers.put((tensor.to(device).square() + 1.0).cpu())


def help_out(number, requests, results):
    """Have something computed, without touching the GPU."""
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
