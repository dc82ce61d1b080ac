"""Functions and classes that are defined in functions travel by value, to workers, processes and through queues."""

from __future__ import annotations

from programs import run

PROGRAM = """
    import abc, dataclasses, enum, functools, typing
    import drover

    def things():
        def factorial(n):
            return 1 if n < 2 else n * factorial(n - 1)

        def is_even(n):
            return True if n == 0 else is_odd(n - 1)

        def is_odd(n):
            return False if n == 0 else is_even(n - 1)

        def fibonacci(n):
            return n if n < 2 else call(n - 1) + fibonacci(n - 2)

        call = functools.partial(fibonacci)

        class Base(abc.ABC):
            count = 0

            def __init__(self, value):
                self.value = value

            @abc.abstractmethod
            def name(self): ...

            @classmethod
            def make(cls, value):
                return cls(value)

        class Node(Base):
            __slots__ = ("child",)

            def __init__(self, value, child=None):
                super().__init__(value)
                self.child = child

            def name(self):
                return "node"

            @property
            def depth(self):
                return 1 + (self.child.depth if self.child else 0)

            def grow(self):
                return Node(self.value + 1, self)

        @dataclasses.dataclass(frozen=True)
        class Point:
            x: int
            y: int = 2

        class Color(enum.Enum):
            RED = 1

        class Pair(typing.NamedTuple):
            one: int
            other: int

        def numbers(n):
            yield from range(n)

        return locals()

    def work(named):
        Node, Point, Color, Pair = (named[name] for name in ("Node", "Point", "Color", "Pair"))
        node = Node.make(1).grow().grow()
        return [
            named["factorial"](5), named["is_even"](10), named["fibonacci"](20), node.depth, node.name(), node.value,
            Point(1).y, Point(1) == Point(1), Color.RED is Color(1), Pair(1, 2).other, list(named["numbers"](3)),
        ]

    def instances(node, point, color, pair):
        return [node.grow().depth, point.x, color is type(color).RED, color.name, pair.one]

    def put(queue, thing):
        queue.put(work(thing))
"""
RESULT = "[120, True, 6765, 3, 'node', 3, 2, True, True, 2, [0, 1, 2]]"


def test_code_of_functions_works_at_the_receiver() -> None:
    """Recursive ones, alone and together; classes with bases, slots, and methods that name them."""
    lines = run(
        PROGRAM
        + """
    if __name__ == "__main__":
        named = things()
        queue = drover.Queue()
        queue.put(named)
        print(work(queue.get()))
        with drover.Pool(1) as pool:
            print(pool.apply(work, (named,)))
            call = named["fibonacci"]
            print(pool.map(named["factorial"], [5, 6]), *map(pool.apply, (named["is_odd"], call), [(9,)] * 2))
            made = named["Node"](1), named["Point"](4), named["Color"].RED, named["Pair"](5, 6)
            print(pool.apply(instances, made))
            print(type(pool.apply(named["Node"], (1,))).__name__, pool.apply(named["Node"], (1,)).grow().depth)
            print(list(pool.apply(lambda make, n: list(make(n)), (named["numbers"], 2))))
        process = drover.Process(target=put, args=(queue, named))
        process.start()
        print(queue.get())
        process.join()
    """
    )
    assert lines == [
        RESULT,
        RESULT,
        "[120, 720] True 34",
        "[2, 4, True, 'RED', 5]",
        "Node 2",
        "[0, 1]",
        RESULT,
    ]


def test_calls_of_generator_functions_are_refused_clearly() -> None:
    """The result is a generator, which stays where it is; the error says what to return instead."""
    lines = run(
        PROGRAM
        + """
    if __name__ == "__main__":
        with drover.Pool(1) as pool:
            try:
                pool.apply(things()["numbers"], (3,))
            except Exception as error:
                print("send a list" in str(error), "cannot pickle 'generator' object" in str(error))
    """
    )
    assert lines == ["True True"]
