"""A parser of the Markdown that the checks of the documentation need."""

from __future__ import annotations

import re
from collections.abc import Iterator

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$")
_INLINE_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s+\"[^\"]*\")?\s*$")
_HTML_TARGET = re.compile(r"""<[^>]*\b(?:id|name)\s*=\s*["']([^"']+)["']""")
_SCHEME = re.compile(r"^(?:[a-zA-Z][a-zA-Z0-9+.-]*:|//)")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines outside of fenced code."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if fence:
            if match and match[1].startswith(fence) and not line.strip(" `~"):
                fence = ""
        elif match:
            fence = match[1]
        else:
            yield number, line


def code_spans(text: str) -> Iterator[tuple[int, str]]:
    """Inline code as (line, text)."""
    for number, line in prose(text):
        for match in _SPAN.finditer(line):
            yield number, match[2].strip()


def links(text: str) -> Iterator[tuple[int, str]]:
    """Targets of links and images as (line, target)."""
    for number, line in prose(text):
        plain = _SPAN.sub("code", line)
        for match in _INLINE_LINK.finditer(plain):
            yield number, match[1]
        if match := _REFERENCE.match(plain):
            yield number, match[1]


def is_absolute(target: str) -> bool:
    """Whether a link goes to the web or to a mail address."""
    return bool(_SCHEME.match(target))


def headings(text: str) -> Iterator[tuple[int, str]]:
    """Headings as (line, text), without the markup of code, emphasis and links."""
    for number, line in prose(text):
        if match := _HEADING.match(line):
            without_links = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
            yield number, re.sub(r"[`*]", "", without_links).strip()


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Everything in a page that a link can target."""
    found: set[str] = set()
    counts: dict[str, int] = {}
    for _, heading in headings(text):
        name = slug(heading)
        count = counts.get(name, 0)
        counts[name] = count + 1
        found.add(f"{name}-{count}" if count else name)
    for _, line in prose(text):
        found.update(_HTML_TARGET.findall(line))
    return found


def first_column(text: str) -> Iterator[tuple[int, str]]:
    """The first cells of the rows of all tables, without headings, as (line, text)."""
    rows = [(number, line.strip()) for number, line in prose(text)]
    is_body = False
    for number, line in rows:
        if not line.startswith("|"):
            is_body = False
        elif re.fullmatch(r"[|:\- \t]+", line):
            is_body = True
        elif is_body:
            yield number, line.strip("|").split("|")[0].strip()


def words(text: str) -> set[str]:
    """All words of letters, digits and underscores."""
    return set(re.findall(r"\w+", text))
