"""The main use of drover: a map over arrays. One worker is killed in the middle of its work, and the result is right.

The program of examples/cpp/pool_map in Python. The arrays lie in shared memory: tasks refer to them, and no worker
copies them. The main module needs no guard.
"""

import os
import signal

import drover
import numpy

PARTS = 240
NUMBERS = 100_000  # of each part


def total(part):
    """Sum one part."""
    return int(part.sum())


def make_parts():
    """Make parts of 0, 1, 2, ... in shared memory."""
    parts = []
    for number in range(PARTS):
        part = drover.empty(NUMBERS, dtype="int64")
        part[:] = numpy.arange(number * NUMBERS, (number + 1) * NUMBERS)
        parts.append(part)
    return parts


class Killer:
    """Follows the progress of a map, and kills one worker on purpose."""

    def __init__(self, pool):
        """Start with all workers alive."""
        self.pool = pool
        self.is_done = False

    def __call__(self, done, count):
        """Kill the first worker after a quarter of the results."""
        if self.is_done or done < count // 4:
            return
        self.is_done = True
        os.kill(self.pool.workers()[0]["pid"], signal.SIGKILL)


with drover.Pool(4, name="pool_map", retry=2) as pool:
    pool.wait_ready()
    result = sum(pool.map(total, make_parts(), chunksize=1, progress=Killer(pool)))
count = PARTS * NUMBERS
verdict = "the result is right" if result == count * (count - 1) // 2 else "the result is WRONG"
print(f"{PARTS} arrays summed by 4 workers, 1 killed and replaced: {verdict}")
