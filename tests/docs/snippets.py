"""The snippets of the pages and of the headers: where they are, and which of them make one program.

Every fenced block of a page is a snippet. Its language says what the test does with it; a mark, which is an HTML
comment on the lines right above the fence and so invisible on the page, says what the reader need not see.
`docs/how_to_write_docs.md` has the rules for authors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w.{}+-]*)\s*$")
_MARK = re.compile(r"<!-- snippet: *(?P<words>[^\n]*?)(?:\n(?P<given>.*?))? *-->\s*$", re.DOTALL)
_DOC_COMMENT = re.compile(r"^\s*/// ?(.*)$")
WORDS = frozenset(
    {"continues", "given", "namespace scope", "not run", "test", "run", "output", "output, with other numbers"}
)


@dataclass(frozen=True)
class Snippet:
    """One fenced block."""

    page: str
    line: int  # of the first line inside of the fence
    language: str
    text: str
    words: str = ""  # of its mark
    given: str = ""  # lines of its mark that stand before it

    @property
    def file(self) -> str:
        """The name under which programs of the page find it; empty if it has none."""
        return self.words.removeprefix("file ") if self.words.startswith("file ") else ""


@dataclass
class Program:
    """Snippets that run together, and what they print if the page shows it."""

    parts: list[Snippet]
    outputs: list[Snippet] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The page and the lines of the parts."""
        return f"{self.parts[0].page}:{'+'.join(str(part.line) for part in self.parts)}"

    @property
    def language(self) -> str:
        """What it is written in."""
        return self.parts[0].language


def _mark_above(lines: list[str], fence: int) -> tuple[str, str]:
    """The words and the given lines of the mark that ends on the line above a fence."""
    if fence == 0 or not lines[fence - 1].rstrip().endswith("-->"):
        return "", ""
    begin = fence - 1
    while begin > 0 and "<!--" not in lines[begin]:
        begin -= 1
    match = _MARK.match("\n".join(line.strip() if line is lines[begin] else line for line in lines[begin:fence]))
    return (match["words"].strip(), match["given"] or "") if match else ("", "")


def snippets_of_page(page: str, text: str, language: str = "") -> Iterator[Snippet]:
    """All fenced blocks of a page; `language` is that of blocks without one."""
    lines = text.split("\n")
    fence = None
    for number, line in enumerate(lines):
        if fence is None:
            match = _FENCE.match(line)
            fence = (number, match) if match else None
        elif line.strip() == fence[1]["ticks"]:
            words, given = _mark_above(lines, fence[0])
            is_console = lines[fence[0] + 1].lstrip().startswith("$ ")
            named = fence[1]["language"] or language or ("console" if is_console else "")
            inside = [row[len(fence[1]["indent"]) :] for row in lines[fence[0] + 1 : number]]
            yield Snippet(page, fence[0] + 2, named, "\n".join(inside) + "\n", words, given)
            fence = None


def snippets_of_header(page: str, text: str) -> Iterator[Snippet]:
    """The fenced blocks in the `///` comments of a header, which are C++ unless they say otherwise."""
    matches = [_DOC_COMMENT.match(line) for line in text.split("\n")]
    comments = [match[1] if match else "" for match in matches]
    code = [re.sub(r"^@(code(\{\.\w+\})?|endcode)\s*$", "```", line) for line in comments]
    yield from snippets_of_page(page, "\n".join(code), language="cpp")


def programs_of(snippets: list[Snippet]) -> Iterator[Program]:
    """Put together what continues, and give each program the output that is shown after it."""
    programs: list[Program] = []
    for snippet in snippets:
        if snippet.words.startswith("output"):
            if not programs:
                raise ValueError(f"{snippet.page}:{snippet.line}: no program stands before this output")
            programs[-1].outputs.append(snippet)
        elif snippet.words == "continues":
            same = [program for program in programs if program.language == snippet.language]
            if not same:
                raise ValueError(f"{snippet.page}:{snippet.line}: nothing stands before it that it could continue")
            same[-1].parts.append(snippet)
        elif snippet.words and snippet.words not in WORDS and not snippet.file:
            raise ValueError(f"{snippet.page}:{snippet.line}: no mark is named '{snippet.words}'")
        else:
            programs.append(Program([snippet]))
    yield from programs
