"""Shared code of the checks: the files of the tree, C++ text without comments, and findings."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CPP_HEADERS = frozenset({".h", ".hpp"})
CPP_SOURCES = frozenset({".c", ".cc", ".cpp", ".cu"})
CPP_FILES = CPP_HEADERS | CPP_SOURCES


@dataclass(frozen=True, order=True)
class Finding:
    """A violation of a rule, printed as `path:line: what: remedy`."""

    path: str
    line: int
    what: str
    remedy: str

    def __str__(self) -> str:
        """Format the finding as compilers do, so that editors recognise the place."""
        return f"{self.path}:{self.line}: {self.what}: {self.remedy}"


def files_of(root: Path) -> list[str]:
    """Sorted paths, relative to `root`, of existing files that git tracks or would add."""
    command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{root}:1: git cannot list the files ({done.stderr.strip()}): run this in a git checkout")
    listed = done.stdout
    return sorted({name for name in listed.split("\0") if name and (root / name).is_file()})


def read(root: Path, name: str) -> str:
    """Text of a file; bytes that are not UTF-8 become replacement characters."""
    return (root / name).read_text(encoding="utf-8", errors="replace")


# A comment, a raw string, a string or a character; a digit separator, as in 1'000'000, is none of them.
_CPP_TOKEN = re.compile(
    r"""//[^\n]*
      | /\*.*?\*/
      | R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
      | "(?:\\.|[^"\\\n])*"
      | (?<![0-9A-Za-z_])(?:u8|[uUL])?'(?:\\.|[^'\\\n])+'
    """,
    re.VERBOSE | re.DOTALL,
)


def blank_comments(text: str, blank_raw_strings: bool = False) -> str:
    """C++ text with comments, and on request raw strings, replaced by spaces; lines keep their numbers."""

    def replace(match: re.Match[str]) -> str:
        token = match.group()
        is_gone = token.startswith(("//", "/*")) or (blank_raw_strings and token.startswith("R"))
        return re.sub(r"[^\n]", " ", token) if is_gone else token

    return _CPP_TOKEN.sub(replace, text)


_INCLUDE = re.compile(
    r"""^[ \t]*\#[ \t]*include[ \t]*(?P<open>[<"])(?P<target>[^>"\n]+)[>"]""", re.VERBOSE | re.MULTILINE
)


def includes_of(text: str) -> list[tuple[int, str, bool]]:
    """The include directives of a C++ text as (line, target, is in quotes)."""
    clean = blank_comments(text, blank_raw_strings=True)
    return [
        (clean.count("\n", 0, match.start("open")) + 1, match["target"], match["open"] == '"')
        for match in _INCLUDE.finditer(clean)
    ]


def report(check: str, findings: Iterable[Finding], warnings: Iterable[Finding] = ()) -> int:
    """Print warnings, findings and a summary; returns the exit status, which is 1 if there is a finding."""
    for warning in sorted(warnings):
        print(f"{warning} (warning)")
    stops = sorted(findings)
    for finding in stops:
        print(finding)
    print(f"{check}: {len(stops)} finding{'' if len(stops) == 1 else 's'}" if stops else f"{check}: ok")
    return 1 if stops else 0
