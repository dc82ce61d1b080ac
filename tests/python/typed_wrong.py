"""A program in which type checkers report each line that ends with `# wrong`; see test_types.py. It is not run."""

from __future__ import annotations

import drover


def text_of(number: int, sign: str = "+") -> str:
    """Return a number as text."""
    return f"{sign}{number}"


def use_pools() -> None:
    """Wrong arguments, and results of another type."""
    with drover.Pool(2) as pool:
        pool.map(text_of, ["a"])  # wrong
        pool.map(text_of, 3)  # wrong
        pool.imap(text_of, [None])  # wrong
        pool.imap_unordered(text_of, ["a"])  # wrong
        pool.map_async(text_of, ["a"])  # wrong
        pool.starmap(text_of, [1, 2])  # wrong
        pool.apply_async(text_of, 1)  # wrong
        pool.apply_async(text_of, (1,), callback=text_of)  # wrong
        pool.map(text_of, [1], chunk_size=3)  # wrong
        pool.options(priority="high")  # wrong
        pool.unknown()  # wrong
        numbers: list[int] = pool.map(text_of, [1])  # wrong
        number: int = pool.apply_async(text_of, (1,)).get()  # wrong
        print(numbers, number, pool.apply(text_of, (1,)) + 1)  # wrong
    drover.Pool(2, foo=3)  # wrong
    drover.Pool("two")  # wrong
    drover.Pool(devices=3.5)  # wrong
    drover.Pool(per_device="one")  # wrong
    drover.get_context().Pool(2, foo=3)  # wrong


def use_executors() -> None:
    """Wrong arguments of a call, and of the executor."""
    with drover.Executor(2) as executor:
        executor.submit(text_of, "a")  # wrong
        executor.submit(text_of, 1, size=3)  # wrong
        executor.submit(text_of)  # wrong
        executor.map(text_of, ["a"])  # wrong
        executor.map(text_of, [1], [2])  # wrong
        number: int = executor.submit(text_of, 1).result()  # wrong
        print(number)
    drover.Executor(2, foo=3)  # wrong


def use_the_rest() -> None:
    """Queues, values, contexts and processes."""
    numbers: drover.Queue[int] = drover.Queue()
    numbers.put("a")  # wrong
    text: str = numbers.get()  # wrong
    drover.Value("i", "three")  # wrong
    drover.Value("i", 3).value = "a"  # wrong
    drover.Array("i", ["a"])  # wrong
    drover.get_context(3)  # wrong
    drover.get_context().Unknown()  # wrong
    drover.Process(target=3)  # wrong
    drover.Lock().acquire(timeout="soon")  # wrong
    drover.Barrier("two")  # wrong
    print(text, drover.no_such_name)  # wrong
