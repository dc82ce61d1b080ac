"""Modules that start pools or processes while they are imported: refused where that would never end."""

from __future__ import annotations

import pytest
from programs import run

# A module that the program imports, and that processes import when they load a function of it.
PROGRAM = """
import os
import pathlib
import sys

folder = pathlib.Path(sys.argv[0]).parent
(folder / "starter.py").write_text('''
import os, pathlib
import drover
with pathlib.Path({log!r}.format(os.path.dirname(__file__))).open("a") as log:
    log.write(str(os.getpid()) + " ")
def plus_one(n):
    return n + 1
{body}
''')
sys.path.insert(0, str(folder))
os.environ["PYTHONPATH"] = str(folder)
import drover

def count_processes():
    return len(set((folder / "log").read_text().split()))

{program}
"""
USES = {
    "pool": "pool = drover.Pool(2)\nresult = pool.map(plus_one, range(30), chunksize=1)",
    "executor": "from drover import Executor\nresult = list(Executor(2).map(plus_one, range(3)))",
    "apply_async": "result = drover.Pool(1).apply_async(plus_one, (1,)).get()",
    "argument": "result = drover.Pool(1).map(len, [[plus_one]])",
}


def _source(body: str, program: str) -> str:
    return PROGRAM.format(body=body, program=program, log="{}/log")


@pytest.mark.parametrize("use", USES)
def test_module_that_uses_a_pool_while_it_is_imported_is_refused_with_a_remedy(use: str) -> None:
    """In the processes of the processes that it started; there were hundreds within seconds."""
    lines = run(
        _source(
            USES[use],
            """
try:
    import starter
except RuntimeError as error:
    print("=", error)
print("=", count_processes() <= 1 + 2 + 4)
""",
        )
    )
    printed = [line for line in lines if line.startswith(("= ", "  what"))]
    assert printed[0].startswith("= module starter starts a pool or a process while it is imported"), lines
    assert "if __name__ == '__main__':" in printed[1], lines
    assert printed[2] == "= True", lines


@pytest.mark.parametrize(
    ("body", "program", "expected"),
    [
        ("pool = drover.Pool(2)", "import starter; print('=', starter.pool.map(starter.plus_one, [1, 2]))", "[2, 3]"),
        (
            "pool = drover.Pool(2)\nresult = pool.map(abs, [-1, 2])",
            "import starter; print('=', starter.result, drover.Pool(1).map(starter.plus_one, [1]))",
            "[1, 2] [2]",
        ),
        (
            "def use():\n    with drover.Pool(1) as pool:\n        return pool.map(plus_one, [1])",
            "import starter; print('=', drover.Pool(1).apply(starter.use))",
            "[2]",
        ),
    ],
    ids=["made by the module", "used with other functions", "made in a function"],
)
def test_programs_without_a_guard_go_on_working(body: str, program: str, expected: str) -> None:
    """A pool made by an import does not start others without end if its own functions do not use it."""
    lines = run(_source(body, program))
    assert f"= {expected}" in lines, lines


def test_script_with_a_guard_that_makes_a_pool_outside_of_it_is_refused() -> None:
    """Its workers import the script; their failure is an error of the program with the remedy."""
    lines = run("""
        import drover

        try:
            pool = drover.Pool(1)
            print("=", pool.map(abs, [1]))
        except drover.Error as error:
            print("=", error)
        if __name__ == "__main__":
            print("= end")
    """)
    text = "\n".join(lines)
    assert "if __name__ == '__main__':" in text, lines
    assert lines.count("= end") == 1, lines
