"""The examples: each prints the right result and leaves nothing behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from programs import run

FOLDER = Path(__file__).parents[2] / "examples" / "python"
SUMS = "[499999500000, 500000500000, 500001500000, 500002500000]"
DOUBLES = "[1.0, 3.0, 5.0, 7.0]"
# What each prints, and the library that it needs.
EXPECTED = {
    "double_on_gpus": (DOUBLES, "torch"),
    "fill_shared_rows": ("1000000.0 1000000.0", "torch"),
    "one_process_for_the_gpu": (DOUBLES, "torch"),
    "pool_map": ("240 arrays summed by 4 workers, 1 killed and replaced: the result is right", "numpy"),
    "sum_on_gpus": (SUMS, "numpy"),
    "sum_through_a_queue": (SUMS, "numpy"),
    "tensor_handoff": ("torch.Size([1000, 1000]) 2000000.0", "torch"),
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example_prints_what_it_should(name: str) -> None:
    """None of them guards its main module."""
    printed, library = EXPECTED[name]
    pytest.importorskip(library)
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert "__main__" not in source
    # The warning of a worker that was killed is the only other line.
    assert [line for line in run(source) if " is replaced: " not in line] == [printed]


def test_every_example_is_run() -> None:
    """The table above is complete."""
    assert {path.stem for path in FOLDER.glob("*.py")} == set(EXPECTED)


def test_examples_have_the_same_names_in_both_languages() -> None:
    """Each is in the index; those of one language say so there, and each in C++ has a page and is built."""
    names = {path.parent.name for path in FOLDER.parent.glob("cpp/*/*.cpp")}
    index = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    built = (FOLDER.parent / "cpp" / "CMakeLists.txt").read_text(encoding="utf-8")
    in_one_language = set(re.findall(r"^\| \[(\w+)\]\S+ \| C\+\+ only: ", index, re.MULTILINE))
    assert names - in_one_language == set(EXPECTED)
    for name in names:
        assert f"[{name}](cpp/{name}/README.md)" in index
        assert (FOLDER.parent / "cpp" / name / "README.md").is_file()
        assert f"drover_add_example({name}" in built
