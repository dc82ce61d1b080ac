"""scripts/check_docs.py: links, error codes, variables, glossary and paths."""

from __future__ import annotations

import markdown_text as markdown
import pytest
from small_tree import Tree

ERRC = """
/// Codes.
enum class Errc {
  busy,       ///< held, by someone
  timed_out,  ///< too late
};
"""


def check(tree: Tree) -> tuple[int, str]:
    """Run the script."""
    return tree.run("check_docs.py")


@pytest.fixture
def good(tree: Tree) -> Tree:
    """Give a tree whose documentation is true."""
    tree.write("include/drover/base/error.hpp", ERRC)
    tree.write("src/base/log.cpp", 'const char* a = std::getenv("DROVER_LOG");\n')
    tree.write("docs/errors.md", "# Errors\n\n## `busy`\n\ntext\n\n## timed_out: too late\n\ntext\n")
    tree.write("docs/configuration.md", "| variable | meaning |\n|---|---|\n| `DROVER_LOG` | threshold |\n")
    tree.write("docs/glossary.md", "| word | meaning |\n|---|---|\n| slab | memory |\n| task, pool | work |\n")
    tree.write(
        "README.md",
        "See [errors](docs/errors.md#busy), [web](https://example.org/x), [below](#the-map-again) and `src/base`.\n"
        "Parts are in `src/<part>`, tests in `tests/...`; `src/base/{log,lo*}.cpp` and `make test` too.\n"
        "```\n[no link](nowhere.md)\n```\nCode `[x](y.md)` is no link.\n\n## The map, again!\n",
    )
    return tree


def test_true_documentation_passes(good: Tree) -> None:
    """Everything that is allowed, in one tree."""
    assert check(good) == (0, "check_docs: ok\n")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("docs/a.md", "\n[x](b.md)\n", "docs/a.md:2: link to b.md, which does not exist: "),
        ("docs/a.md", "![x](../img/b.png)\n", "docs/a.md:1: link to ../img/b.png, which does not exist: "),
        ("docs/a.md", "[x]: b.md\n", "docs/a.md:1: link to b.md, which does not exist: "),
        (
            "docs/a.md",
            "[x](errors.md#none)\n",
            "docs/a.md:1: link to errors.md#none, and no heading there makes #none: ",
        ),
        ("docs/a.md", "[x](#none)\n", "docs/a.md:1: link to #none, and no heading there makes #none: "),
        ("docs/a.md", "[x](/etc/passwd)\n", "docs/a.md:1: link to /etc/passwd: write it relative to the page"),
        ("docs/a.md", "[x](../../up.md)\n", "docs/a.md:1: link to ../../up.md leaves the tree: "),
        (
            "docs/errors.md",
            "# Errors\n## busy\n",
            "include/drover/base/error.hpp:5: Errc::timed_out has no heading in docs/errors.md: ",
        ),
        (
            "src/base/a.cpp",
            '\nconst auto n = environment_number("DROVER_NEW", 1, 1, 2);\n',
            "src/base/a.cpp:2: DROVER_NEW is not in docs/configuration.md: ",
        ),
        (
            "scripts/a.py",
            'import os\nx = os.environ.get("DROVER_PY")\n',
            "scripts/a.py:2: DROVER_PY is not in docs/configuration.md: ",
        ),
        (
            "scripts/a.sh",
            'echo "${DROVER_SH:-}"\n',
            "scripts/a.sh:1: DROVER_SH is not in docs/configuration.md: ",
        ),
        (
            "docs/configuration.md",
            "| variable | meaning |\n|---|---|\n| `DROVER_LOG` | threshold |\n| `DROVER_GONE` | nothing |\n",
            "docs/configuration.md:4: nothing reads DROVER_GONE: ",
        ),
        (
            "docs/glossary.md",
            "| word | meaning |\n|---|---|\n| slab | memory |\n| Pool, `Slab` | again |\n",
            "docs/glossary.md:4: slab is explained on line 3 too: ",
        ),
        (
            "ARCHITECTURE.md",
            "Look at `src/base/gone.cpp`.\n",
            "ARCHITECTURE.md:1: `src/base/gone.cpp` does not exist: ",
        ),
        ("ARCHITECTURE.md", "In `src/{base,gone}/`.\n", "ARCHITECTURE.md:1: `src/gone` does not exist: "),
        ("ARCHITECTURE.md", "All `docs/*.rst`.\n", "ARCHITECTURE.md:1: `docs/*.rst` does not exist: "),
    ],
)
def test_untrue_documentation_is_reported_with_its_place(good: Tree, name: str, text: str, message: str) -> None:
    """Each rule, broken once."""
    good.write(name, text)
    status, output = check(good)
    assert status == 1
    assert message in output
    assert output.endswith("check_docs: 1 finding\n")


def test_missing_pages_are_reported(good: Tree) -> None:
    """Codes and variables need their pages."""
    (good.root / "docs/errors.md").unlink()
    (good.root / "docs/configuration.md").unlink()
    good.write("README.md", "text\n")
    status, output = check(good)
    assert status == 1
    assert "docs/errors.md:1: is missing: describe every code of include/drover/base/error.hpp there" in output
    assert "docs/configuration.md:1: is missing: describe DROVER_LOG there, which src/base/log.cpp reads" in output


def test_variable_in_a_comment_is_not_read(good: Tree) -> None:
    """Only strings in code count."""
    good.write("src/base/a.cpp", '// getenv("DROVER_OLD")\nconst char* hint = "set DROVER_OTHER=1";\n')
    assert check(good)[0] == 0


def test_anchors_are_those_that_github_makes() -> None:
    """Punctuation goes, spaces become dashes, repeated headings are numbered, HTML anchors count."""
    text = '# A `b_c`: d-e!\n## A\n## A\n<a id="own"></a>\n```\n# not this\n```\n## [Link](x.md) text ##\n'
    assert markdown.anchors(text) == {"a-b_c-d-e", "a", "a-1", "own", "link-text"}
