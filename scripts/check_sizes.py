#!/usr/bin/env python3
"""Checks the size budgets of files and Python functions, and that there is enough test code."""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repo import CPP_FILES, CPP_HEADERS, CPP_SOURCES, ROOT, Finding, blank_comments, files_of, read, report

SOURCES = CPP_SOURCES | {".py", ".sh"}
README_STOP = 120
FUNCTION_STOP = 60
LEAST_TEST_RATIO = 0.8
CODE_FOLDERS = ("include/", "src/", "cli/", "python/")
TEST_FOLDER = "tests/"
# Tests of the tools of this tree say nothing of the library, and the tools are not counted as code either.
TOOL_TEST_FOLDER = "tests/scripts/"


@dataclass(frozen=True)
class Budget:
    """Lines from which a file of a kind is warned about, and from which it is refused."""

    kind: str
    warn: int
    stop: int
    remedy: str


HEADER = Budget("header", 250, 400, "split it: one concept per file")
SOURCE = Budget("source", 400, 600, "split it: one concept per file")
README = Budget("README.md", README_STOP, README_STOP, "move detail to a page in docs/")


def budget_of(name: str) -> Budget | None:
    """The budget of a file; nothing if it has none."""
    path = Path(name)
    if path.name == "README.md":
        return README
    if path.suffix in CPP_HEADERS:
        return HEADER
    return SOURCE if path.suffix in SOURCES else None


def check_file(name: str, text: str) -> tuple[list[Finding], list[Finding]]:
    """Findings and warnings about the length of a file."""
    budget = budget_of(name)
    length = len(text.splitlines())
    if budget is None or length <= budget.warn:
        return [], []
    if length > budget.stop:
        what = f"{length} lines, and a {budget.kind} stops at {budget.stop}"
        return [Finding(name, length, what, budget.remedy)], []
    what = f"{length} lines, and a {budget.kind} should stay under {budget.warn}"
    return [], [Finding(name, length, what, budget.remedy)]


def check_functions(name: str, text: str) -> Iterator[Finding]:
    """Python functions that are too long. clang-tidy does the same for C++."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        yield Finding(name, error.lineno or 1, f"is no Python ({error.msg})", "correct the syntax")
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_STOP:
                what = f"function {node.name} has {length} lines, and a function stops at {FUNCTION_STOP}"
                yield Finding(name, node.lineno, what, "split it by what its parts do")


def python_code_lines(text: str) -> int:
    """Lines of a Python text that hold code: no blank lines, comments or strings that stand alone."""
    noise = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    is_statement_start = True
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NEWLINE:
                is_statement_start = True
            elif token.type not in noise:
                if not (is_statement_start and token.type == tokenize.STRING):
                    lines.update(range(token.start[0], token.end[0] + 1))
                is_statement_start = False
    except (tokenize.TokenError, SyntaxError):
        return 0
    return len(lines)


def code_lines(name: str, text: str) -> int:
    """Lines that hold code; 0 for what is neither C++ nor Python."""
    suffix = Path(name).suffix
    if suffix in CPP_FILES:
        return sum(1 for line in blank_comments(text).splitlines() if line.strip())
    return python_code_lines(text) if suffix == ".py" else 0


def check_ratio(texts: dict[str, str]) -> tuple[list[Finding], str]:
    """The finding if there is too little test code, and the figures."""
    code = sum(code_lines(name, text) for name, text in texts.items() if name.startswith(CODE_FOLDERS))
    tests = sum(
        code_lines(name, text)
        for name, text in texts.items()
        if name.startswith(TEST_FOLDER) and not name.startswith(TOOL_TEST_FOLDER)
    )
    ratio = tests / code if code else 1.0
    figures = f"{tests} lines of test code for {code} lines of code, ratio {ratio:.2f}"
    if ratio >= LEAST_TEST_RATIO:
        return [], figures
    return [Finding(TEST_FOLDER, 1, f"{figures}, and {LEAST_TEST_RATIO} is the least", "write tests")], figures


def main(arguments: list[str] | None = None) -> int:
    """Check the tree and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to check (default: this one)")
    options = parser.parse_args(arguments)
    texts = {name: read(options.root, name) for name in files_of(options.root) if budget_of(name) is not None}
    findings: list[Finding] = []
    warnings: list[Finding] = []
    for name, text in texts.items():
        stops, warns = check_file(name, text)
        findings += stops
        warnings += warns
        if name.endswith(".py"):
            findings += check_functions(name, text)
    too_few, figures = check_ratio(texts)
    print(f"check_sizes: {figures}")
    return report("check_sizes", findings + too_few, warnings)


if __name__ == "__main__":
    sys.exit(main())
