"""How a snippet of each language is tested."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from snippets import Program, Snippet

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("DROVER_BUILD_DIR", "build/dev")
TOOL = BUILD / "cli" / "drover"
_LIMIT_S = 120.0  # ends a run that has gone wrong
_FLAGS = (
    "-std=c++20",
    "-O0",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-missing-field-initializers",
    f"-I{ROOT / 'include'}",
)
_PRELUDE = ("array", "chrono", "csignal", "cstdint", "fstream", "iostream", "memory", "span", "string", "vector")
# A fragment need not use all that it declares, and may leave out what to do with a result.
_FRAGMENT_FLAGS = ("-Wno-unused", "-Wno-unused-result", "-Wno-unused-parameter")
_PRINTED = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)
_FOLDERS = ("benchmarks/", "docs/", "examples/", "scripts/", "tests/")


def run(command: list[str], folder: Path, status: int = 0, **variables: str) -> str:
    """Run a program to its end; what it wrote to standard output."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    shown = " ".join(map(str, command))[:300]
    assert done.returncode == status, f"{shown} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def _plain(text: str, has_other_numbers: bool) -> list[str]:
    """The lines to compare; numbers, and the columns they are in, may be free."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    if has_other_numbers:
        lines = [re.sub(r"\s+", " ", re.sub(r"[\d.]*\d", "N", line)) for line in lines]
    return lines


def check_output(program: Program, printed: str) -> None:
    """What the page shows as output is what was printed; a line of three dots stands for any lines."""
    if not program.outputs:
        return
    has_other_numbers = any("other numbers" in shown.words for shown in program.outputs)
    wanted = _plain("".join(shown.text for shown in program.outputs), has_other_numbers)
    pattern = "\n".join(r"(?:.*\n?)*?" if line.strip() == "..." else re.escape(line) for line in wanted)
    got = "\n".join(_plain(printed, has_other_numbers))
    assert re.fullmatch(pattern, got), (
        f"{program.outputs[0].page}:{program.outputs[0].line} shows\n{wanted}\nnot\n{got}"
    )


def check_python(program: Program, folder: Path) -> None:
    """Run the program as a file; a comment behind a `print` is what it prints."""
    source = "\n".join(part.given + "\n" + part.text for part in program.parts)
    for module in sorted(set(re.findall(r"^\s*(?:import|from) (\w+)", source, re.MULTILINE))):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}, which is not installed")
    if 'device="cuda"' in source and "is_available" not in source and not _has_gpu():
        pytest.skip("needs a GPU")
    (folder / "program.py").write_text(source, encoding="utf-8")
    if any(part.words == "not run" for part in program.parts):
        run([sys.executable, "-m", "py_compile", "program.py"], folder)
        return
    printed = run([sys.executable, "program.py"], folder, PYTHONUNBUFFERED="1")
    rest = printed.splitlines()
    for wanted in _PRINTED.findall(source):
        assert wanted in rest, f"{wanted!r} was not printed, but\n{printed}"
        rest = rest[rest.index(wanted) + 1 :]
    check_output(program, printed)


def _has_gpu() -> bool:
    return run([str(TOOL), "devices"], ROOT).startswith("backend: cuda")


def prelude() -> Path:
    """Precompile what nearly every snippet includes, once for each state of the headers."""
    headers = sorted((ROOT / "include").rglob("*.h*"))
    content = b"".join(header.read_bytes() for header in headers) + repr(_FLAGS + _PRELUDE).encode()
    folder = BUILD / "snippets" / hashlib.sha256(content).hexdigest()[:16]
    header = folder / "prelude.hpp"
    if not (folder / "prelude.hpp.gch").is_file():
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True)
        names = [*_PRELUDE, "drover/drover.hpp"]
        header.write_text("".join(f"#include <{name}>\n" for name in names), encoding="utf-8")
        run([_compiler(), *_FLAGS, "-x", "c++-header", str(header), "-o", f"{header}.new"], folder)
        Path(f"{header}.new").rename(f"{header}.gch")
    return header


def _compiler() -> str:
    return os.environ.get("CXX", "c++")


def _located(snippet: Snippet, text: str) -> str:
    return f'#line {snippet.line} "{snippet.page}"\n{text}\n'


def cpp_source(program: Program) -> str:
    """The text to compile: a program as it is, a fragment inside of a function, with its includes before that."""
    parts = [(part.given, part.text) for part in program.parts]
    is_whole = any(re.search(r"\bint main\(", text) for _, text in parts)
    if is_whole or program.parts[0].words in ("namespace scope", "test") or program.parts[0].file:
        return "".join(f"{part.given}\n{_located(part, part.text)}" for part in program.parts)
    includes, bodies = [], []
    for part in program.parts:
        for text, place in ((part.given, ""), (part.text, part.page)):
            includes += re.findall(r"^#include.*$", text, re.MULTILINE)
            rest = re.sub(r"^#include.*$", "", text, flags=re.MULTILINE)
            bodies.append(_located(part, rest) if place else rest + "\n")
    return (
        "\n".join(includes)
        + "\nusing namespace drover;\n[[maybe_unused]] static void snippet(int argc, char** argv) {\n"
        + "".join(bodies)
        + "}\n"
    )


def check_cpp(program: Program, folder: Path) -> None:
    """Compile the snippet; link and run it if it is a program."""
    source = cpp_source(program)
    first = program.parts[0]
    (folder / "snippet.cpp").write_text(source, encoding="utf-8")
    command = [_compiler(), *_FLAGS, "-c", "snippet.cpp", "-o", "snippet.o"]
    is_program = "int main(" in source
    if not is_program:
        command += _FRAGMENT_FLAGS
    if first.words == "test":
        includes = [ROOT / "tests", ROOT / "src", ROOT / ".deps/include", "/usr/src/googletest/googletest/include"]
        command += ["-fsyntax-only", *(f"-I{path}" for path in includes)]
    else:
        command += ["-include", str(prelude())]
    run(command, folder)
    if not is_program or first.words == "not run" or first.file:
        return
    run([_compiler(), "snippet.o", str(BUILD / "libdrover.a"), "-pthread", "-ldl", "-o", "program"], folder)
    check_output(program, run(["./program"], folder, DROVER_KEEPER=""))


def check_json(program: Program, _: Path) -> None:
    """It is JSON."""
    json.loads(program.parts[0].text)


def check_cmake(program: Program, folder: Path) -> None:
    """It configures, where a package named drover is installed."""
    package = folder / "prefix" / "lib" / "cmake" / "drover"
    package.mkdir(parents=True)
    (package / "droverConfig.cmake").write_text("add_library(drover::drover INTERFACE IMPORTED)\n", encoding="utf-8")
    version = "set(PACKAGE_VERSION_COMPATIBLE TRUE)\n"
    (package / "droverConfigVersion.cmake").write_text(version, encoding="utf-8")
    (folder / "main.cpp").write_text("int main() {}\n", encoding="utf-8")
    (folder / "CMakeLists.txt").write_text(program.parts[0].text, encoding="utf-8")
    run(["cmake", "-S", ".", "-B", "out", f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}"], folder)


def check_bash(program: Program, folder: Path, files: list[Snippet]) -> None:
    """Check its syntax and what it names; run it if it is marked so."""
    text = "\n".join(part.text for part in program.parts)
    if program.language == "console":
        text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
        assert text, "a console block has a line that begins with '$ '"
    run(["bash", "-n", "-c", text], folder)
    if program.parts[0].words == "run":
        for file in files:
            (folder / file.file).write_text(file.text, encoding="utf-8")
        local = folder / ".local"  # as `cmake --install --prefix ~/.local` leaves it
        (local / "lib").mkdir(parents=True)
        (local / "include").symlink_to(ROOT / "include")
        (local / "lib" / "libdrover.a").symlink_to(BUILD / "libdrover.a")
        path = os.pathsep.join([str(TOOL.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
        check_output(program, run(["bash", "-ec", text], folder, HOME=str(folder), PATH=path))
        return
    for line in text.replace("\\\n", " ").splitlines():
        check_command(line)


def check_command(line: str) -> None:
    """One command line: targets, presets, options of the tool and files of the tree that it names exist."""
    words = [word for word in shlex.split(line, comments=True) if not re.fullmatch(r"\w+=.*", word)]
    for word in words:
        if word.startswith(_FOLDERS):
            assert (ROOT / word.partition("::")[0]).exists(), f"{word} does not exist"
    if not words:
        return
    program = words[0].rpartition("/")[2]
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(words[1:]) <= set(targets), f"the Makefile lacks a target of {line!r}"
    elif program == "cmake":
        presets = re.findall(r'"name": "([\w-]+)"', (ROOT / "CMakePresets.json").read_text(encoding="utf-8"))
        named = [after for word, after in itertools.pairwise(words) if word == "--preset"]
        assert set(named) <= set(presets), f"there is no such preset: {line!r}"
    elif program == "drover":
        check_tool(words[1 : words.index("|")] if "|" in words else words[1:])


def check_tool(arguments: list[str]) -> None:
    """Subcommands and options of the tool are those that its help knows."""
    chain: list[str] = []
    for word in arguments:
        known = run([str(TOOL), *chain, "--help"], ROOT)
        if word.startswith("--"):
            assert re.search(rf"{re.escape(word)}\b", known), f"`drover {' '.join(chain)}` has no option {word}"
        elif re.search(rf"^ +{re.escape(word)} ", known, re.MULTILINE):
            chain.append(word)
        else:
            assert chain, f"the tool has no command {word}"
