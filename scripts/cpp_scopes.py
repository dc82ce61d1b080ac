"""Types and functions that a C++ text declares, found without a compiler.

Good for text that clang-format has written: it follows braces and statements, and knows no macros and no semantics.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from repo import blank_comments

UNNAMED = "{}"  # stands for an unnamed namespace
_LITERAL = re.compile(r""""(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'""")
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
# What stands before the words that matter: attributes, alignment, annotations by macros.
_DECORATION = re.compile(
    r"\[\[.*?\]\]|\b(?:alignas|decltype|noexcept|explicit|[A-Z][A-Z0-9_]+)\s*\((?:[^()]|\([^()]*\))*\)"
)
_ACCESS = re.compile(r"^(?:\s*(?:public|protected|private)\s*:(?!:))+")
_NAMESPACE = re.compile(r"(?:inline\s+)?namespace\s*(?P<name>[\w:]*)$")
_TYPE = re.compile(
    r"(?:typedef\s+)?(?:class|struct|union|enum(?:\s+(?:class|struct))?)\b\s*"
    r"(?P<name>[\w:]*)\s*(?P<arguments><.*>)?\s*(?:final)?\s*(?::(?!:).*)?$"
)
_ALIAS = re.compile(r"using\s+(?P<name>\w+)\s*=")
_FUNCTION_NAME = re.compile(
    r"(?P<qualifier>(?:\w+(?:<[^()]*>)?::)*)(?P<name>operator\s*(?:\(\)|[^\s\w(]+|[\w:<>,*& ]+)|~?\w+)\s*$"
)
_OPERATOR = re.compile(r"\boperator\b(?:\s*\(\))?")
_NO_FUNCTION = re.compile(r"(?:friend|using|typedef|static_assert|template\s+class|extern\s+template)\b")
_CONTINUES = frozenset(";,).")  # after a brace that has closed: it belonged to an expression


@dataclass
class Type:
    """A class, struct, union, enumeration or alias."""

    name: str  # with its namespaces
    line: int
    is_at_namespace_scope: bool
    is_class: bool = False  # or a struct or a union
    is_specialisation: bool = False
    methods: list[str] = field(default_factory=list)  # constructors, operators and overloads included

    def operations(self) -> set[str]:
        """The names of its methods, without constructors, destructor and operators."""
        own = self.name.rsplit("::", 1)[-1]
        return {name for name in self.methods if name not in (own, f"~{own}") and not name.startswith("operator")}


@dataclass(frozen=True)
class Function:
    """A function that is defined at namespace scope; the qualifier is that of a member: `Pool::`."""

    qualifier: str
    name: str


@dataclass
class _Scope:
    kind: str  # "namespace", "type" or "code"
    name: str = ""
    type: Type | None = None
    statement: str = ""


def _without_templates(statement: str) -> str:
    """The statement without `template <...>` and `requires` before it."""
    while match := re.match(r"template\s*<", statement):
        depth, round_brackets, place = 1, 0, match.end()
        while depth and place < len(statement):
            round_brackets += {"(": 1, ")": -1}.get(statement[place], 0)
            depth += 0 if round_brackets else {"<": 1, ">": -1}.get(statement[place], 0)
            place += 1
        statement = statement[place:].lstrip()
    if statement.startswith("requires"):
        match = re.search(r"\b(?:class|struct|union)\s+\w+\s*(?:final\s*)?(?::(?!:).*)?$", statement)
        statement = statement[match.start() :] if match else statement
    return statement


def _head(statement: str) -> str:
    """The statement on one line, reduced to the words that say what it declares."""
    text = _ACCESS.sub("", " ".join(statement.split()))
    return _without_templates(" ".join(_DECORATION.sub(" ", text).split()))


def _parameters_at(head: str) -> int | None:
    """Where the parameters of the function begin that a statement declares, or None if it declares none."""
    depth = 0
    for place, sign in enumerate(head):
        if match := _OPERATOR.match(head, place):
            opening = head.find("(", match.end())
            return opening if opening > 0 else None
        if sign == "=" and depth == 0:
            return None
        depth += {"<": 1, ">": -1}.get(sign, 0)
        if sign == "(" and depth == 0:
            return None if head.startswith("*", place + 1) else place
    return None


def _function_of(statement: str) -> Function | None:
    """The function that a statement declares or defines, or None."""
    head = _head(statement)
    opening = None if _NO_FUNCTION.match(head) else _parameters_at(head)
    match = _FUNCTION_NAME.search(head[:opening]) if opening is not None else None
    return Function(match["qualifier"], match["name"].replace(" ", "")) if match else None


class CppText:
    """What one C++ text declares."""

    def __init__(self, text: str) -> None:
        """Read it."""
        clean = blank_comments(text, blank_raw_strings=True)
        clean = _LITERAL.sub(lambda match: " " * len(match.group()), clean)
        self._text = _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), clean)
        self.types: list[Type] = []
        self.functions: list[Function] = []
        self._scopes = [_Scope("namespace")]
        self._read()

    def _read(self) -> None:
        """Walk over the braces and semicolons."""
        line = 1
        depth = 0  # of code, which is not looked into
        for place, sign in enumerate(self._text):
            line += sign == "\n"
            if depth:
                depth += {"{": 1, "}": -1}.get(sign, 0)
                if depth == 0:
                    self._end_code(place)
            elif sign == "{":
                depth = 0 if self._open(line) else 1
            elif sign == "}" and len(self._scopes) > 1:
                closed = self._scopes.pop()
                self._scopes[-1].statement = "" if closed.kind == "namespace" else "type "
            elif sign == ";":
                self._end_statement(line)
            else:
                self._scopes[-1].statement += sign

    def _qualified(self, name: str) -> str:
        return "::".join([scope.name for scope in self._scopes if scope.name] + [name])

    def _open(self, line: int) -> bool:
        """Enter a namespace or a type; false for code."""
        scope = self._scopes[-1]
        head = _head(scope.statement)
        if match := _NAMESPACE.match(head):
            self._scopes.append(_Scope("namespace", match["name"] or UNNAMED))
            return True
        if head == "extern":
            self._scopes.append(_Scope("namespace"))
            return True
        match = _TYPE.match(head)
        if match is None:
            return False
        found = Type(
            self._qualified(match["name"]),
            line,
            is_at_namespace_scope=scope.kind == "namespace",
            is_class=not head.startswith("enum"),
            is_specialisation=match["arguments"] is not None,
        )
        if match["name"]:
            self.types.append(found)
        self._scopes.append(_Scope("type", match["name"], found))
        return True

    def _end_statement(self, line: int) -> None:
        scope = self._scopes[-1]
        if match := _ALIAS.match(_head(scope.statement)):
            self.types.append(Type(self._qualified(match["name"]), line, scope.kind == "namespace"))
        elif scope.type is not None and (found := _function_of(scope.statement)):
            scope.type.methods.append(found.name)
        scope.statement = ""

    def _end_code(self, place: int) -> None:
        """Go on with the statement, or end it, if the braces were the body of a function."""
        scope = self._scopes[-1]
        following = self._text[place + 1 :].lstrip()[:1]
        if following in _CONTINUES or (following == "{" and _function_of(scope.statement)):
            return
        if found := _function_of(scope.statement):
            if scope.type is not None:
                scope.type.methods.append(found.name)
            elif scope.kind == "namespace":
                self.functions.append(found)
        scope.statement = ""
