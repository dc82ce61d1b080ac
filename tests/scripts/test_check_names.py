"""scripts/check_names.py: types that are defined twice, or outside of the namespace of their part."""

from __future__ import annotations

import pytest
from small_tree import Tree


def check(tree: Tree) -> tuple[int, str]:
    """Run the script."""
    return tree.run("check_names.py")


@pytest.mark.parametrize(
    "definition",
    [
        "class SlotState {\n};",
        "struct SlotState final : Base {\n  int a;\n};",
        "enum class SlotState : int { free };",
        "using SlotState = int;",
        "template <class T>\nstruct SlotState {};",
        "union SlotState {\n  int a;\n};",
    ],
)
def test_type_that_two_files_define_is_reported(tree: Tree, definition: str) -> None:
    """Whatever kind of type the second one is."""
    tree.write("include/drover/ipc/ring.hpp", "namespace drover {\nstruct SlotState {};\n}\n")
    tree.write("src/pool/slot.cpp", f"namespace drover {{\n{definition}\n}}\n")
    status, text = check(tree)
    assert status == 1
    assert "src/pool/slot.cpp:" in text
    assert (
        "drover::SlotState is defined in include/drover/ipc/ring.hpp:2 too: rename one of the two, or move " in text
    )
    assert text.endswith("check_names: 1 finding\n")


@pytest.mark.parametrize(
    "text",
    [
        "namespace drover::pool {\nstruct SlotState {};\n}\n",
        "namespace drover {\nnamespace {\nstruct SlotState {};\n}\n}\n",
        "namespace drover {\nstruct Pool {\n  struct SlotState {};\n};\n}\n",
        "namespace drover {\nstruct SlotState;\nclass Pool;\n}\n",
        "namespace drover {\nvoid run() {\n  struct SlotState {};\n}\n}\n",
        "namespace drover {\ntemplate <>\nstruct SlotState<int> {};\n}\n",
        "namespace other {\nusing drover::SlotState;\n}\n",
        "// namespace drover { struct SlotState {}; }\n",
    ],
)
def test_other_namespaces_members_and_declarations_pass(tree: Tree, text: str) -> None:
    """They define another type, or none."""
    tree.write("include/drover/ipc/ring.hpp", "namespace drover {\nstruct SlotState {};\n}\n")
    tree.write("src/pool/slot.cpp", text)
    assert check(tree) == (0, "check_names: ok\n")


def test_branches_of_the_preprocessor_may_define_a_type_twice(tree: Tree) -> None:
    """Within a file."""
    tree.write("src/base/a.hpp", "namespace drover {\n#ifdef X\nstruct A {};\n#else\nstruct A {\n};\n#endif\n}\n")
    assert check(tree)[0] == 0


@pytest.mark.parametrize("folder", ["tests/base", "tests/support", "cli", "python/bindings"])
@pytest.mark.parametrize("first", ["src/base/a.hpp", "tests/base/a.hpp"])
def test_type_that_a_test_or_a_tool_defines_again_is_reported(tree: Tree, first: str, folder: str) -> None:
    """The linker keeps one of the two constructors, whichever it finds first."""
    tree.write(first, "namespace drover {\nstruct A {};\n}\n")
    tree.write(f"{folder}/z_test.cpp", "namespace drover {\nstruct A {\n  int a = 1;\n};\n}\n")
    status, text = check(tree)
    assert status == 1
    assert not text.startswith("src/"), "the library is not to blame"
    assert "drover::A is defined in " in text
    assert "move it to an unnamed namespace, or rename it" in text


def test_tests_may_reuse_a_name_in_unnamed_namespaces(tree: Tree) -> None:
    """Each file has its own."""
    for name in ("a_test", "b_test"):
        tree.write(f"tests/base/{name}.cpp", "namespace drover {\nnamespace {\nstruct A {};\n}\n}\n")
    assert check(tree) == (0, "check_names: ok\n")


def test_benchmarks_may_reuse_a_name(tree: Tree) -> None:
    """Each workload is a program, and names its interface alike."""
    for name in ("queue", "pool"):
        tree.write(f"benchmarks/{name}/workload.hpp", "namespace drover::bench {\nclass Contender {};\n}\n")
    assert check(tree)[0] == 0


def test_type_of_a_private_header_outside_of_the_namespace_of_its_part_is_reported(tree: Tree) -> None:
    """With the namespace that it belongs to."""
    tree.write("src/ipc/wake/bell.hpp", "#pragma once\nnamespace drover {\nstruct Bell {};\n}\n")
    assert check(tree) == (
        1,
        "src/ipc/wake/bell.hpp:3: drover::Bell of a private header is outside of drover::ipc: "
        "move it to namespace drover::ipc\ncheck_names: 1 finding\n",
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/ipc/wake/bell.hpp", "namespace drover::ipc {\nstruct Bell {};\n}\n"),
        ("src/device/cuda/event.hpp", "namespace drover::device::cuda {\nclass Event {};\n}\n"),
        ("src/pool/run/callback.hpp", "namespace drover::detail {\nclass Callback {};\n}\n"),
        ("src/process/template/state.hpp", "namespace drover {\nclass Template::State {};\n}\n"),
        ("src/base/log_line.hpp", "namespace drover {\nclass LogLine {};\n}\n"),
        ("src/ipc/wake/bell.cpp", "namespace drover {\nstruct Helper {};\n}\n"),
    ],
)
def test_type_in_its_place_passes(tree: Tree, name: str, text: str) -> None:
    """Members of public types, and code that public headers share, are elsewhere by right."""
    tree.write("include/drover/process/template.hpp", "namespace drover {\nclass Template {\n  class State;\n};\n}\n")
    tree.write(name, text)
    assert check(tree) == (0, "check_names: ok\n")
