"""scripts/check_layers.py: which includes it accepts and which it refuses."""

from __future__ import annotations

import check_layers
import pytest
from small_tree import ROOT, Tree

HEADER = "#pragma once\n"


def check(tree: Tree, *arguments: str) -> tuple[int, str]:
    """Run the script."""
    return tree.run("check_layers.py", *arguments)


def test_tree_that_respects_the_layers_passes(tree: Tree) -> None:
    """Every kind of include that is allowed, in one tree."""
    tree.write("include/drover/base/fd.hpp", HEADER + "#include <sys/types.h>\n#include <vector>\n")
    tree.write("include/drover/ipc/channel.hpp", HEADER + '#include "drover/base/fd.hpp"\n')
    tree.write("include/drover/drover.hpp", HEADER + '#include "drover/ipc/channel.hpp"\n')
    tree.write("src/base/sys.hpp", HEADER)
    tree.write("src/base/fd.cpp", '#include <unistd.h>\n#include <fmt/format.h>\n#include "base/sys.hpp"\n')
    tree.write("src/ipc/layout.hpp", HEADER)
    tree.write(
        "src/ipc/channel.cpp", '#include "drover/ipc/channel.hpp"\n#include "layout.hpp"\n#include "base/sys.hpp"\n'
    )
    tree.write("cli/main.cpp", '#include <CLI/CLI.hpp>\n#include "drover/drover.hpp"\n')
    tree.write("python/bindings/support.hpp", HEADER + "#include <nanobind/nanobind.h>\n")
    tree.write("python/bindings/queue.cpp", '#include "drover/ipc/channel.hpp"\n#include "support.hpp"\n')
    tree.write("tests/device/types_test.cpp", "#include <cuda.h>\n#include <nvml.h>\n")
    assert check(tree) == (0, "check_layers: ok\n")


@pytest.mark.parametrize(
    ("name", "include", "message"),
    [
        (
            "src/base/fd.cpp",
            '#include "drover/ipc/channel.hpp"',
            "part base includes include/drover/ipc/channel.hpp, and part ipc is above it",
        ),
        (
            "src/device/select.cpp",
            '#include "drover/ipc/channel.hpp"',
            "part device includes include/drover/ipc/channel.hpp, and part ipc is on the same line",
        ),
        (
            "src/process/run.cpp",
            '#include "ipc/layout.hpp"',
            "part process includes src/ipc/layout.hpp, and part ipc is on the same line",
        ),
        (
            "src/base/far.cpp",
            '#include "../ipc/layout.hpp"',
            "part base includes src/ipc/layout.hpp, and part ipc is above it",
        ),
        ("src/base/json.cpp", "#include <nlohmann/json.hpp>", "base includes <nlohmann/json.hpp>"),
        (
            "include/drover/tensor/print.hpp",
            "#include <fmt/format.h>",
            "a public header includes <fmt/format.h>",
        ),
        ("include/drover/tensor/cli.hpp", "#include <CLI/CLI.hpp>", "a public header includes <CLI/CLI.hpp>"),
        (
            "include/drover/tensor/private.hpp",
            '#include "ipc/layout.hpp"',
            "a public header includes the private src/ipc/layout.hpp",
        ),
        (
            "src/tensor/all.cpp",
            '#include "drover/drover.hpp"',
            "the umbrella drover/drover.hpp is included",
        ),
        (
            "src/ipc/python.cpp",
            '#include "../../python/bindings/support.hpp"',
            "part ipc includes python/bindings/support.hpp, and part python is above it",
        ),
        ("src/device/cuda/driver.cpp", "#include <cuda.h>", "<cuda.h> is included"),
        ("benchmarks/device/main.cpp", "#include <nvml.h>", "<nvml.h> is included"),
    ],
)
def test_forbidden_include_is_reported_with_its_place(tree: Tree, name: str, include: str, message: str) -> None:
    """Each rule, broken once, on line 2 of a file."""
    tree.write("python/bindings/support.hpp", HEADER)
    tree.write("include/drover/ipc/channel.hpp", HEADER)
    tree.write("include/drover/drover.hpp", HEADER)
    tree.write("src/ipc/layout.hpp", HEADER)
    tree.write(name, f"// first line\n{include}\n")
    status, text = check(tree)
    assert status == 1
    assert f"{name}:2: {message}: " in text
    assert text.endswith("check_layers: 1 finding\n")


def test_part_without_a_layer_is_reported(tree: Tree) -> None:
    """A new directory needs a place in the order."""
    tree.write("src/novelty/new.cpp", "int x;\n")
    status, text = check(tree)
    assert status == 1
    assert "src/novelty/new.cpp:1: part novelty has no layer: " in text


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the part ipc three lines of rooms."""
    monkeypatch.setattr(check_layers, "ROOMS", {"ipc": (("queue", "ledger"), ("sync",), ("wake",)), "pool": ()})


@pytest.mark.usefixtures("rooms")
def test_rooms_include_rooms_below_them_and_files_without_a_room(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files directly in the part include every room; directories of other parts are free."""
    tree.write("src/ipc/wake/futex.hpp", HEADER + '#include "ipc/layout.hpp"\n')
    tree.write("src/ipc/sync/lock.hpp", HEADER + '#include "ipc/wake/futex.hpp"\n')
    tree.write("src/ipc/sync/lock.cpp", '#include "lock.hpp"\n#include "../wake/futex.hpp"\n')
    tree.write("src/ipc/queue/ring.hpp", HEADER + '#include "ipc/wake/futex.hpp"\n#include "ipc/sync/lock.hpp"\n')
    tree.write("src/ipc/layout.hpp", HEADER + '#include "ipc/queue/ring.hpp"\n')
    tree.write("src/device/cuda/a.hpp", HEADER)
    tree.write("src/device/host/b.cpp", '#include "device/cuda/a.hpp"\n')
    tree.write("src/pool/run/a.hpp", HEADER)
    tree.write("src/pool/plan/b.cpp", '#include "pool/run/a.hpp"\n#include "ipc/queue/ring.hpp"\n')
    assert check_layers.main(["--root", str(tree.root)]) == 0
    assert capsys.readouterr().out == "check_layers: ok\n"


@pytest.mark.usefixtures("rooms")
@pytest.mark.parametrize(
    ("name", "include", "message"),
    [
        (
            "src/ipc/wake/bell.cpp",
            '#include "ipc/queue/ring.hpp"',
            "room wake includes src/ipc/queue/ring.hpp, and room queue is above it: a room includes only rooms",
        ),
        (
            "src/ipc/ledger/book.cpp",
            '#include "../queue/ring.hpp"',
            "room ledger includes src/ipc/queue/ring.hpp, and room queue is on the same line: ",
        ),
    ],
)
def test_include_of_a_room_that_is_not_below_is_reported(
    tree: Tree, capsys: pytest.CaptureFixture[str], name: str, include: str, message: str
) -> None:
    """As between parts."""
    tree.write("src/ipc/queue/ring.hpp", HEADER)
    tree.write(name, f"// first line\n{include}\n")
    assert check_layers.main(["--root", str(tree.root)]) == 1
    text = capsys.readouterr().out
    assert f"{name}:2: {message}" in text
    assert text.endswith("check_layers: 1 finding\n")


@pytest.mark.usefixtures("rooms")
def test_room_without_a_line_is_reported(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    """In a part whose rooms have an order."""
    tree.write("src/ipc/novelty/new.cpp", "int x;\n")
    assert check_layers.main(["--root", str(tree.root)]) == 1
    assert "src/ipc/novelty/new.cpp:1: room novelty of part ipc has no line: put it on " in capsys.readouterr().out


def test_includes_in_comments_and_raw_strings_do_not_count(tree: Tree) -> None:
    """They only look like includes."""
    tree.write(
        "src/base/text.cpp",
        '/*\n#include "drover/ipc/channel.hpp"\n*/\n// #include <cuda.h>\n'
        "const char* k = R\"(\n#include <cuda.h>\n)\";\nconst int n = 1'000'000;\n",
    )
    assert check(tree)[0] == 0


def test_header_that_lacks_an_include_fails_to_compile_alone(tree: Tree) -> None:
    """The option --compile finds missing includes."""
    tree.write("include/drover/base/good.hpp", HEADER + "#include <string>\ninline std::string f() { return {}; }\n")
    tree.write("include/drover/base/bad.hpp", HEADER + "inline std::string g() { return {}; }\n")
    assert check(tree)[0] == 0
    status, text = check(tree, "--compile")
    assert status == 1
    assert "include/drover/base/bad.hpp:1: does not compile by itself (" in text
    assert "include what it uses" in text
    assert "good.hpp" not in text


def test_this_tree_respects_the_layers() -> None:
    """The real tree passes too."""
    assert check_layers.main(["--root", str(ROOT)]) == 0
