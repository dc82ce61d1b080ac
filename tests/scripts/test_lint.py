"""scripts/lint.py and the cache of clang-tidy's results."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import lint
import pytest
import tidy
from small_tree import Tree


class TidyTree:
    """A tree with a source, two headers that it reaches, one that it does not, and a fake clang-tidy."""

    def __init__(self, tree: Tree, tool: Path) -> None:
        """Write the files and the compile database."""
        self.tree, self.tool, self.calls = tree, tool, tool.with_name("calls")
        tree.write(".gitignore", "/build/\n")
        tree.write(".clang-tidy", "Checks: '*'\n")
        tree.write("include/drover/base/fd.hpp", '#include "drover/base/errc.hpp"\n')
        tree.write("include/drover/base/errc.hpp", "enum E {};\n")
        tree.write("include/drover/base/other.hpp", "int other;\n")
        tree.write("src/base/fd.cpp", '#include "drover/base/fd.hpp"\n')
        self.command("c++ -c src/base/fd.cpp")
        self.verdict("exit 0")

    def command(self, command: str) -> None:
        """Write the compile database, which also has a source from outside of the tree."""
        folder = self.tree.root / "build" / "dev"
        folder.mkdir(parents=True, exist_ok=True)
        entries = [
            {"directory": str(self.tree.root), "file": "src/base/fd.cpp", "command": command},
            {"directory": "/usr/src", "file": "/usr/src/gtest-all.cc", "command": "c++"},
        ]
        (folder / "compile_commands.json").write_text(json.dumps(entries), encoding="utf-8")

    def verdict(self, text: str) -> None:
        """Set what clang-tidy does; it records its calls too."""
        version = '[ "$1" = --version ] && echo "version 23" && exit 0'
        self.tool.write_text(f'#!/bin/sh\n{version}\necho "$4" >> {self.calls}\n{text}\n', encoding="utf-8")
        self.tool.chmod(self.tool.stat().st_mode | stat.S_IXUSR)

    def run(self) -> tuple[bool, str]:
        """Run the gate."""
        return tidy.run_tidy(self.tree.root, self.tree.root / "build" / "dev", str(self.tool))


@pytest.fixture
def tidy_tree(tree: Tree, tmp_path: Path) -> TidyTree:
    """Give such a tree."""
    return TidyTree(tree, tmp_path / "clang-tidy")


def test_clean_source_is_not_checked_again(tidy_tree: TidyTree) -> None:
    """Sources of the tree are checked, once each."""
    assert tidy_tree.run() == (True, "1 checked, 0 unchanged")
    assert tidy_tree.run() == (True, "0 checked, 1 unchanged")
    assert tidy_tree.calls.read_text(encoding="utf-8") == f"{tidy_tree.tree.root}/src/base/fd.cpp\n"


@pytest.mark.parametrize("name", ["src/base/fd.cpp", "include/drover/base/errc.hpp", ".clang-tidy"])
def test_source_is_checked_again_after_a_dependency_changed(tidy_tree: TidyTree, name: str) -> None:
    """The source, a header that it reaches through another, the settings."""
    tidy_tree.run()
    path = tidy_tree.tree.root / name
    path.write_text(path.read_text(encoding="utf-8") + "\n// more\n", encoding="utf-8")
    assert tidy_tree.run() == (True, "1 checked, 0 unchanged")


def test_source_is_checked_again_after_its_command_changed(tidy_tree: TidyTree) -> None:
    """A macro may change every finding."""
    tidy_tree.run()
    tidy_tree.command("c++ -DX -c src/base/fd.cpp")
    assert tidy_tree.run() == (True, "1 checked, 0 unchanged")


def test_source_is_not_checked_again_after_an_unrelated_header_changed(tidy_tree: TidyTree) -> None:
    """Otherwise every edit would take minutes."""
    tidy_tree.run()
    tidy_tree.tree.write("include/drover/base/other.hpp", "int changed;\n")
    assert tidy_tree.run() == (True, "0 checked, 1 unchanged")


@pytest.mark.parametrize(
    ("changed", "checked"),
    [("src/base/fd.cpp", 1), ("include/drover/base/errc.hpp", 1), (".clang-tidy", 1), ("README.md", 0)],
)
def test_only_sources_that_reach_a_change_are_checked(tidy_tree: TidyTree, changed: str, checked: int) -> None:
    """The source itself, a header that it includes, or the settings."""
    root = tidy_tree.tree.root
    assert tidy.run_tidy(root, root / "build" / "dev", str(tidy_tree.tool), {changed}) == (
        True,
        f"{checked} checked, 0 unchanged",
    )


def test_source_with_findings_is_never_remembered_as_clean(tidy_tree: TidyTree) -> None:
    """It is checked each time until it has none."""
    tidy_tree.verdict("echo 'fd.cpp:1:1: error: ugly'; exit 1")
    assert tidy_tree.run() == (False, "fd.cpp:1:1: error: ugly\n1 checked, 0 unchanged")
    assert tidy_tree.run()[0] is False
    tidy_tree.verdict("exit 0")
    assert tidy_tree.run() == (True, "1 checked, 0 unchanged")


@pytest.fixture
def three_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give gates that pass, fail, and miss a tool."""

    def lacking(_: lint.Settings) -> lint.Result:
        lint.find_tool("drover-no-such-tool")
        return True, ""

    gates = {"good": lambda _: (True, "all\nfine"), "bad": lambda _: (False, "a.cpp:1: wrong"), "lacking": lacking}
    monkeypatch.setattr(lint, "GATES", gates)


@pytest.mark.usefixtures("three_gates")
def test_each_gate_has_a_line_and_one_failure_fails_all(capsys: pytest.CaptureFixture[str]) -> None:
    """All gates run, even after a failure."""
    assert lint.main([]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:3] for line in lines if line[0] == "lint"] == [
        ["lint", "good", "ok"],
        ["lint", "bad", "FAILED"],
        ["lint", "lacking", "FAILED"],
    ]
    assert ["a.cpp:1:", "wrong"] in lines
    assert ["drover-no-such-tool", "was", "not", "found:", "run", "`make", "setup`"] in lines


@pytest.mark.usefixtures("three_gates")
def test_only_selects_gates(capsys: pytest.CaptureFixture[str]) -> None:
    """Other gates do not run; an unknown gate is an error."""
    assert lint.main(["--only", "good"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("lint good")
    assert text.endswith(" s  fine\n")
    with pytest.raises(SystemExit):
        lint.main(["--only", "unknown"])


def test_gates_have_descriptions() -> None:
    """The help prints them."""
    assert set(lint.FIXERS) <= set(lint.GATES)
    assert all(gate.__doc__ for gate in lint.GATES.values())


def test_tools_of_the_venv_take_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their versions are pinned, unlike those in PATH."""
    for folder in (tmp_path / ".venv/bin", tmp_path / "bin"):
        folder.mkdir(parents=True)
        (folder / "sometool").write_text("#!/bin/sh\n", encoding="utf-8")
        (folder / "sometool").chmod(0o755)
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert lint.find_tool("sometool") == str(tmp_path / ".venv/bin/sometool")
    (tmp_path / ".venv/bin/sometool").unlink()
    assert lint.find_tool("sometool") == str(tmp_path / "bin/sometool")
