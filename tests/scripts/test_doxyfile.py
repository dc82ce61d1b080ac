"""docs/Doxyfile: every public name must be documented, and annotations do not confuse doxygen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from small_tree import ROOT

GOOD = """#pragma once
#define DROVER_THREAD_ANNOTATION(x) __attribute__((x))
namespace drover {
namespace detail {
inline int hidden = 0;
}  // namespace detail
/// What it is for.
class DROVER_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  /// Takes it.
  void lock() DROVER_THREAD_ANNOTATION(acquire_capability());
  Mutex(const Mutex&) = delete;
 private:
  int secret_;
};
/// A number.
inline constexpr int kNumber = 3;
%s
}  // namespace drover
"""


def doxygen(folder: Path, header: str) -> tuple[int, str]:
    """Run doxygen with the project's settings on one header."""
    (folder / "a.hpp").write_text(header, encoding="utf-8")
    settings = (ROOT / "docs" / "Doxyfile").read_text(encoding="utf-8")
    settings += f"\nINPUT = {folder}/a.hpp docs/reference.dox\nOUTPUT_DIRECTORY = {folder}/out\n"
    done = subprocess.run(
        ["doxygen", "-"],
        cwd=ROOT,
        input=settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_documented_header_passes(tmp_path: Path) -> None:
    """Private and detail names, deleted functions and annotations need no documentation."""
    assert doxygen(tmp_path, GOOD % "") == (0, "")
    assert (tmp_path / "out/html/index.html").is_file()


@pytest.mark.parametrize(
    ("name", "declaration"),
    [
        ("forgotten", "int forgotten(int x);"),
        ("Forgotten", "struct Forgotten { int x; };"),
        ("Forgotten", "using Forgotten = int;"),
        ("kForgotten", "inline constexpr int kForgotten = 4;"),
        ("forgotten", "/// Known.\nstruct Known { int forgotten; };"),
    ],
)
def test_undocumented_public_name_is_an_error(tmp_path: Path, name: str, declaration: str) -> None:
    """Functions, types, aliases, constants and members."""
    status, text = doxygen(tmp_path, GOOD % declaration)
    assert status == 1
    assert f"{name}" in text
    assert "is not documented" in text
