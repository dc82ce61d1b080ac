"""Facts in the sources that must be documented: error codes and environment variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from repo import CPP_FILES, blank_comments, read

_ENUM = re.compile(r"enum\s+class\s+Errc\b[^{]*\{(?P<body>[^}]*)\}", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
# A string that is exactly such a name is taken as a variable that is read, by whatever function.
_QUOTED = re.compile(r"""["'](DROVER_[A-Z0-9_]+)["']""")
_SHELL = re.compile(r"\$\{?(DROVER_[A-Z0-9_]+)")
_READERS = ("benchmarks/", "cli/", "examples/", "include/", "python/", "scripts/", "src/")


def error_codes(errc: str) -> Iterator[tuple[int, str]]:
    """The names of the enumeration Errc as (line, name)."""
    clean = blank_comments(errc)
    match = _ENUM.search(clean)
    if match is None:
        return
    place = match.start("body")
    for piece in match["body"].split(","):
        if name := _NAME.search(piece):
            yield clean.count("\n", 0, place + name.start()) + 1, name.group()
        place += len(piece) + 1


def environment_variables(root: Path, names: list[str]) -> Iterator[tuple[str, int, str]]:
    """The DROVER_ variables that sources and scripts read, as (file, line, variable)."""
    for name in names:
        suffix = Path(name).suffix
        if not name.startswith(_READERS) or suffix not in CPP_FILES | {".py", ".sh"}:
            continue
        text = read(root, name)
        clean = blank_comments(text) if suffix in CPP_FILES else text
        for match in (_SHELL if suffix == ".sh" else _QUOTED).finditer(clean):
            yield name, clean.count("\n", 0, match.start()) + 1, match[1]


def brace_expansions(path: str) -> list[str]:
    """`src/{a,b}/c` as [`src/a/c`, `src/b/c`]."""
    match = re.search(r"\{([^{}]*)\}", path)
    if match is None:
        return [path]
    before, after = path[: match.start()], path[match.end() :]
    return [whole for choice in match[1].split(",") for whole in brace_expansions(before + choice.strip() + after)]
