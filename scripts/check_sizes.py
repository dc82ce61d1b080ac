#!/usr/bin/env python3
"""Checks the size budgets of files, classes and Python functions, and that there is enough test code."""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cpp_scopes import CppText
from repo import CPP_FILES, CPP_HEADERS, CPP_SOURCES, ROOT, Finding, blank_comments, files_of, read, report

SOURCES = CPP_SOURCES | {".py", ".sh"}
README_STOP = 120
FUNCTION_STOP = 60
MOST_METHODS = 30
LEAST_TEST_RATIO = 0.8
CODE_FOLDERS = ("include/", "src/", "cli/", "python/")
TEST_FOLDER = "tests/"
# The scripts of this tree are not counted as code, nor their tests as tests.
TOOL_TEST_FOLDER = "tests/scripts/"


@dataclass(frozen=True)
class Budget:
    """Lines beyond which a file of a kind gets a warning, and beyond which it is refused."""

    kind: str
    warn: int
    stop: int
    remedy: str


HEADER = Budget("header", 250, 400, "split it: one concept per file")
SOURCE = Budget("source", 400, 600, "split it: one concept per file")
CLASS_SOURCE = Budget("source of one class", 600, 800, "split the class by responsibility")
README = Budget("README.md", README_STOP, README_STOP, "move detail to a page in docs/")


def budget_of(name: str) -> Budget | None:
    """The budget of a file, or None if it has none."""
    path = Path(name)
    if path.name == "README.md":
        return README
    if path.suffix in CPP_HEADERS:
        return HEADER
    return SOURCE if path.suffix in SOURCES else None


def is_one_class(name: str, texts: dict[str, str]) -> bool:
    """Whether a source implements one class and nothing else, which the header of the same name defines."""
    path = Path(name)
    folders = [path.parent.as_posix()]
    if path.parts[0] == "src":
        folders.append(f"include/drover/{path.parts[1]}")
    headers = [texts.get(f"{folder}/{path.stem}.hpp", "") for folder in folders]
    defined = {each.name.rsplit("::", 1)[-1] for text in headers for each in CppText(text).types if each.is_class}
    members = {each.qualifier.split("::")[0] for each in CppText(texts[name]).functions if each.qualifier}
    return len(members) == 1 and members <= defined


def check_file(name: str, texts: dict[str, str]) -> tuple[list[Finding], list[Finding]]:
    """Findings and warnings about the length of a file."""
    budget = budget_of(name)
    length = len(texts[name].splitlines())
    if budget is SOURCE and length > SOURCE.warn and Path(name).suffix in CPP_SOURCES and is_one_class(name, texts):
        budget = CLASS_SOURCE
    if budget is None or length <= budget.warn:
        return [], []
    if length > budget.stop:
        what = f"{length} lines, and the limit of a {budget.kind} is {budget.stop}"
        return [Finding(name, length, what, budget.remedy)], []
    what = f"{length} lines, and a {budget.kind} should stay under {budget.warn}"
    return [], [Finding(name, length, what, budget.remedy)]


def check_functions(name: str, text: str) -> Iterator[Finding]:
    """Python functions that are too long; clang-tidy checks those of C++."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        yield Finding(name, error.lineno or 1, f"is not valid Python ({error.msg})", "correct the syntax")
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_STOP:
                what = f"function {node.name} has {length} lines, and the limit is {FUNCTION_STOP}"
                yield Finding(name, node.lineno, what, "split it by what its parts do")


def check_classes(name: str, text: str) -> Iterator[Finding]:
    """C++ classes with too many methods; overloads count once, constructors, destructors and operators do not."""
    for each in CppText(text).types:
        count = len(each.operations())
        if count > MOST_METHODS:
            what = f"{each.name} has {count} methods, and the limit is {MOST_METHODS}"
            yield Finding(name, each.line, what, "split the class by responsibility")


def python_code_lines(text: str) -> int:
    """Lines of code in a Python text, without blank lines, comments and docstrings."""
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
    """Lines of code; 0 for files that are neither C++ nor Python."""
    suffix = Path(name).suffix
    if suffix in CPP_FILES:
        return sum(1 for line in blank_comments(text).splitlines() if line.strip())
    return python_code_lines(text) if suffix == ".py" else 0


def check_ratio(texts: dict[str, str]) -> tuple[list[Finding], str]:
    """A finding if there is too little test code, and the figures."""
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
    return [Finding(TEST_FOLDER, 1, f"{figures}, and the minimum is {LEAST_TEST_RATIO}", "write tests")], figures


def main(arguments: list[str] | None = None) -> int:
    """Check the tree and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to check (default: this one)")
    options = parser.parse_args(arguments)
    texts = {name: read(options.root, name) for name in files_of(options.root) if budget_of(name) is not None}
    findings: list[Finding] = []
    warnings: list[Finding] = []
    for name, text in texts.items():
        stops, warns = check_file(name, texts)
        findings += stops
        warnings += warns
        if name.endswith(".py"):
            findings += check_functions(name, text)
        elif Path(name).suffix in CPP_FILES and name.startswith(CODE_FOLDERS):
            findings += check_classes(name, text)
    too_few, figures = check_ratio(texts)
    print(f"check_sizes: {figures}")
    return report("check_sizes", findings + too_few, warnings)


if __name__ == "__main__":
    sys.exit(main())
