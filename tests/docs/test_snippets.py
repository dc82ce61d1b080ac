"""Every snippet of every page, and of the comments of every public header, is compiled or run as it is printed.

A test is named by the page and the line of the snippet. `docs/how_to_write_docs.md` says how authors mark a snippet
that is not a program by itself.

python    runs as a file in a fresh process
cpp       compiles with warnings as errors; links and runs if it has a `main`; otherwise it is put into a function
bash      parses; the make targets, presets, files, commands and options that it names exist; runs if marked so
console   the same for the lines that begin with `$ `
cmake     configures; json parses
text      is not tested, unless it is marked as the output of the program above it
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from runners import BUILD, ROOT, check_bash, check_cmake, check_cpp, check_json, check_python
from snippets import Program, programs_of, snippets_of_header, snippets_of_page

LANGUAGES = ("python", "cpp", "bash", "console", "cmake", "json")
SKIPPED_FOLDERS = {"build", ".venv", ".deps", ".git"}


def all_programs() -> Iterator[Program]:
    """The snippets of all pages and headers of the tree."""
    for path in sorted([*ROOT.rglob("*.md"), *(ROOT / "include").rglob("*.hpp")]):
        name = path.relative_to(ROOT)
        if SKIPPED_FOLDERS.isdisjoint(name.parts):
            reader = snippets_of_page if path.suffix == ".md" else snippets_of_header
            yield from programs_of(list(reader(str(name), path.read_text(encoding="utf-8"))))


PROGRAMS = list(all_programs())


@pytest.mark.parametrize("program", [each for each in PROGRAMS if each.language in LANGUAGES], ids=lambda it: it.name)
def test_snippet_works_as_printed(program: Program, tmp_path: Path) -> None:
    """It compiles or runs, and prints what the page shows."""
    assert (BUILD / "libdrover.a").is_file(), f"{BUILD} has no library: run `make build`, or set DROVER_BUILD_DIR"
    if program.language in ("bash", "console"):
        page = program.parts[0].page
        files = [part for each in PROGRAMS for part in each.parts if part.page == page and part.file]
        check_bash(program, tmp_path, files)
    else:
        checks = {"python": check_python, "cpp": check_cpp, "cmake": check_cmake, "json": check_json}
        checks[program.language](program, tmp_path)


def test_every_block_names_its_language() -> None:
    """A block without a language is not tested; text without code is `text`. READMEs of directories may omit it."""
    pages = [each for each in PROGRAMS if each.parts[0].page.startswith("docs/") or "/" not in each.parts[0].page]
    wrong = [each.name for each in pages if each.language not in (*LANGUAGES, "text")]
    assert not wrong, f"give these blocks a language: {wrong}"
