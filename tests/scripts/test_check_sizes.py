"""scripts/check_sizes.py: budgets of files, classes and functions, and the ratio of test code."""

from __future__ import annotations

import check_sizes
import pytest
from small_tree import Tree


def check(tree: Tree) -> tuple[int, str]:
    """Run the script."""
    return tree.run("check_sizes.py")


def lines(count: int) -> str:
    """Return C++ comment lines, which count as lines but not as code."""
    return "// line\n" * count


def test_small_files_pass(tree: Tree) -> None:
    """A tree in which everything fits."""
    tree.write("include/drover/base/a.hpp", lines(250))
    tree.write("src/base/a.cpp", lines(400))
    tree.write("README.md", "text\n" * 120)
    tree.write("Makefile", "# text\n" * 2000)
    status, text = check(tree)
    assert status == 0
    assert "(warning)" not in text
    assert text.endswith("check_sizes: ok\n")


@pytest.mark.parametrize(
    ("name", "length", "message"),
    [
        ("include/drover/base/a.hpp", 251, "251 lines, and a header should stay under 250"),
        ("src/base/a.cpp", 401, "401 lines, and a source should stay under 400"),
        ("scripts/a.py", 600, "600 lines, and a source should stay under 400"),
    ],
)
def test_long_file_is_warned_about_and_passes(tree: Tree, name: str, length: int, message: str) -> None:
    """Between the two limits there is only a warning."""
    tree.write(name, "# x\n" * length if name.endswith(".py") else lines(length))
    status, text = check(tree)
    assert status == 0
    assert f"{name}:{length}: {message}: split it: one concept per file (warning)\n" in text


@pytest.mark.parametrize(
    ("name", "length", "message"),
    [
        ("include/drover/base/a.hpp", 401, "401 lines, and the limit of a header is 400"),
        ("tests/base/a_test.cpp", 601, "601 lines, and the limit of a source is 600"),
        ("scripts/a.py", 601, "601 lines, and the limit of a source is 600"),
        ("README.md", 121, "121 lines, and the limit of a README.md is 120"),
    ],
)
def test_file_beyond_its_budget_is_refused(tree: Tree, name: str, length: int, message: str) -> None:
    """One line too many."""
    tree.write(name, "# x\n" * length if not name.endswith(("hpp", "cpp")) else lines(length))
    status, text = check(tree)
    assert status == 1
    assert f"{name}:{length}: {message}: " in text


def class_source(members: str, length: int) -> str:
    """A source of this length that defines these members."""
    text = "".join(f"void {member}() {{\n}}\n" for member in members.split())
    return text + lines(length - text.count("\n"))


@pytest.mark.parametrize("header", ["src/ipc/queue/queue_core.hpp", "include/drover/ipc/queue_core.hpp"])
def test_source_of_one_class_may_be_longer(tree: Tree, header: str) -> None:
    """Its header has the same name, beside it or among the public ones; nested types are a part of it."""
    tree.write("tests/ipc/queue_test.cpp", "int y;\n" * 20)
    tree.write(header, "namespace drover {\nclass QueueCore {\n};\nstruct Options {};\n}\n")
    tree.write("src/ipc/queue/queue_core.cpp", class_source("QueueCore::put QueueCore::Slot::get", 600))
    assert "(warning)" not in check(tree)[1]
    tree.write("src/ipc/queue/queue_core.cpp", class_source("QueueCore::put QueueCore::Slot::get", 800))
    status, text = check(tree)
    assert status == 0
    assert "queue_core.cpp:800: 800 lines, and a source of one class should stay under 600: split the class " in text
    tree.write("src/ipc/queue/queue_core.cpp", class_source("QueueCore::put", 801))
    status, text = check(tree)
    assert status == 1
    assert "801 lines, and the limit of a source of one class is 800: split the class by responsibility\n" in text


@pytest.mark.parametrize("members", ["QueueCore::put Options::check", "Other::put", "put"])
def test_source_of_several_classes_or_none_may_not(tree: Tree, members: str) -> None:
    """Nor may one whose class another header defines."""
    tree.write("src/ipc/queue_core.hpp", "class QueueCore {\n};\nstruct Options {\n};\n")
    tree.write("src/ipc/queue_core.cpp", class_source(members, 601))
    status, text = check(tree)
    assert status == 1
    assert "601 lines, and the limit of a source is 600: " in text


def test_class_with_31_methods_is_refused(tree: Tree) -> None:
    """With its name, place and count; 30 pass, with any constructors and overloads, and so do classes of tests."""

    def class_with(methods: int) -> str:
        body = "".join(f"  int get_{number}() const;\n" for number in range(methods))
        special = "  Some();\n  ~Some();\n  bool operator==(const Some&) const;\n  int get_0(int number) const;\n"
        return f"namespace drover {{\nclass Some {{\n public:\n{body}{special}}};\n}}\n"

    tree.write("tests/base/a_test.cpp", "int y;\n" * 100)
    tree.write("src/base/fits.hpp", class_with(30))
    tree.write("tests/base/model.hpp", class_with(31))
    assert check(tree)[0] == 0
    tree.write("src/base/wide.hpp", class_with(31))
    status, text = check(tree)
    assert status == 1
    assert "src/base/wide.hpp:2: drover::Some has 31 methods, and the limit is 30: split the class by " in text
    assert text.endswith("check_sizes: 1 finding\n")


def test_python_function_of_61_lines_is_refused(tree: Tree) -> None:
    """The finding has its name, place and length; one of 60 lines passes."""
    tree.write("scripts/long.py", "x = 1\ndef walk():\n" + "    pass\n" * 60)
    tree.write("scripts/fits.py", "def walk():\n" + "    pass\n" * 59)
    status, text = check(tree)
    assert status == 1
    assert "scripts/long.py:2: function walk has 61 lines, and the limit is 60: " in text
    assert "fits.py" not in text


def test_too_little_test_code_is_refused(tree: Tree) -> None:
    """Seven lines of tests for ten lines of code are too few; eight are enough."""
    tree.write("src/base/a.cpp", "int x;\n" * 10)
    tree.write("tests/base/a_test.cpp", "int y;\n" * 7)
    status, text = check(tree)
    assert status == 1
    assert "tests/:1: 7 lines of test code for 10 lines of code, ratio 0.70, and the minimum is 0.8: " in text
    tree.write("tests/base/a_test.cpp", "int y;\n" * 8)
    assert check(tree)[0] == 0


def test_files_that_git_ignores_do_not_count(tree: Tree) -> None:
    """Build outputs may be of any length."""
    tree.write(".gitignore", "/build/\n")
    tree.write("build/generated.cpp", lines(1000))
    assert check(tree)[0] == 0


def test_code_lines_exclude_blank_lines_comments_and_docstrings() -> None:
    """In both languages."""
    cpp = '/* a\n b */\nint x;  // c\n\n// d\nconst char* s = "// e";\n'
    python = '"""Doc.\n\nMore.\n"""\n# comment\nx = 1\n\n\ndef f():\n    """Doc."""\n    return """a\nb"""\n'
    assert check_sizes.code_lines("a.cpp", cpp) == 2
    assert check_sizes.code_lines("a.py", python) == 4
    assert check_sizes.code_lines("a.md", "text\n") == 0
