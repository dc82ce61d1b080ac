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


def test_tests_may_reuse_a_name(tree: Tree) -> None:
    """Each test program is linked by itself; only include/ and src/ are one library."""
    tree.write("src/base/a.hpp", "namespace drover {\nstruct A {};\n}\n")
    tree.write("tests/base/a_test.cpp", "namespace drover {\nstruct A {};\n}\n")
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
