"""The C preprocessor, run over headers with whatever is not standard C taken out by macros; its text cut into top-level
declarations, so that one that cannot be parsed spoils no other."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from optest.errors import Unavailable, UsageError, shortened
from optest.process import run
from optest.settings import environment

_COMPILERS = ("cc", "gcc", "clang")
_TIMEOUT_S = 60.0
_NEUTRAL = (
    "__attribute__(x)=",
    "__attribute(x)=",
    "__declspec(x)=",
    "_declspec(x)=",
    "__asm__(x)=",
    "__asm(x)=",
    "asm(x)=",
    "__alignof__(x)=0",
    "__extension__=",
    "__cdecl=",
    "__stdcall=",
    "__fastcall=",
    "__restrict=",
    "__restrict__=",
    "__inline=inline",
    "__inline__=inline",
    "__const=const",
    "__const__=const",
    "__signed=signed",
    "__signed__=signed",
    "__volatile__=volatile",
    "__complex__=_Complex",
    "_Noreturn=",
    "__thread=",
)
"""Words of compilers that change neither the types nor the order of parameters."""

_MOST_NAMED = 4
"""Of the headers; what the compiler says names the one that is wrong."""


def preprocess(headers: Sequence[Path], include: Sequence[Path]) -> tuple[str, dict[Path, str]]:
    """The text of ``headers``, one after the other in one translation unit, with line markers and ``#define`` lines;
    and those that the preprocessor refuses, with what it said, which are left out.

    Raises:
        Unavailable: if there is no C compiler.
        UsageError: if the preprocessor refuses all of them, or all of them together, with what it said.
    """
    program = _program()
    options = [f"-D{macro}" for macro in _NEUTRAL] + [f"-I{path.resolve()}" for path in include]
    with tempfile.TemporaryDirectory(prefix="optest-headers-") as folder:
        unit = _Unit(Path(folder), program, options)
        errors = unit.refusal(headers)
        refused: dict[Path, str] = {}
        if errors and len(headers) > 1:
            refused = {each: alone for each in headers if (alone := unit.refusal([each]))}
            read = [each for each in headers if each not in refused]
            errors = unit.refusal(read) if read else errors
        if errors:
            listed = shortened([*map(str, headers)], _MOST_NAMED)
            hint = "\n  headers are read as C; C++ in them should stand behind #ifdef __cplusplus"
            indented = "\n  ".join(errors.splitlines()[:12])
            raise UsageError(f"{os.path.basename(program)} -E refuses {listed}\n  {indented}{hint}")
        return unit.output.read_text(errors="replace"), refused


class _Unit:
    """A translation unit that includes headers, in a folder of its own."""

    def __init__(self, folder: Path, program: str, options: Sequence[str]) -> None:
        self.output = folder / "unit.i"
        self._folder, self._source, self._stand_ins = folder, folder / "unit.c", folder / "stand-ins"
        self._stand_ins.mkdir()
        command = [program, "-E", "-dD", "-x", "c", "-std=gnu11", *options]
        self._command = [*command, "-idirafter", str(self._stand_ins), str(self._source), "-o", str(self.output)]

    def refusal(self, headers: Sequence[Path]) -> str:
        """What the preprocessor says against ``headers``; empty if it takes them, and then ``output`` has the text.

        Headers of the C++ standard library, which have no suffix, are stood in for: by the header of C that ``cstddef``
        and the like stand for, the others by nothing, since no function with C linkage needs what they declare.
        """
        self._source.write_text("".join(f'#include "{path.resolve()}"\n' for path in headers))
        missing = ""
        while True:
            ended = run(self._command, cwd=str(self._folder), env=_environment(), timeout_s=_TIMEOUT_S)
            if ended.returncode == 0 and not ended.timed_out:
                return ""
            errors = ended.stderr_tail.strip() or f"it ended with status {ended.returncode}"
            found = _MISSING.search(errors)
            if found is None or found[1] == missing:
                return errors
            missing = found[1]
            of_c = f"<{missing[1:]}.h>"
            text = f"#if __has_include({of_c})\n#include {of_c}\n#endif\n" if missing.startswith("c") else ""
            (self._stand_ins / missing).write_text(text)


_MISSING = re.compile(r"fatal error: '?([a-z_0-9]+)'?(?:: No such file or directory| file not found)")


def _environment() -> dict[str, str]:
    """Without what is preloaded into this process: the compiler has no use for a sanitizer. It speaks English."""
    return {name: value for name, value in environment().items() if name != "LD_PRELOAD"} | {"LC_ALL": "C"}


def find_header(name: str) -> Path:
    """Where the compiler finds ``#include <name>``.

    Raises:
        Unavailable: if there is no such header, or no compiler.
    """
    program = _program()
    with tempfile.TemporaryDirectory(prefix="optest-headers-") as folder:
        unit, output = Path(folder, "unit.c"), Path(folder, "unit.d")
        unit.write_text(f"#include <{name}>\n")
        command = [program, "-M", "-MT", "unit", "-x", "c", str(unit), "-o", str(output)]
        ended = run(command, cwd=folder, env=_environment(), timeout_s=_TIMEOUT_S)
        found = output.read_text() if ended.returncode == 0 else ""
    for word in found.replace("\\\n", " ").split():
        if word.endswith(f"/{name}"):
            return Path(word)
    raise Unavailable(f"header {name}", "the C compiler does not find it; state where it lies under `headers`")


def _program() -> str:
    for name in _COMPILERS:
        if found := shutil.which(name):
            return found
    compilers = ", ".join(_COMPILERS)
    raise Unavailable("reading C headers", f"no C compiler ({compilers}) is on the PATH; its preprocessor is needed")


_MARKER = re.compile(r'#\s*(?:line\s+)?(\d+)\s+"((?:[^"\\]|\\.)*)"([ \d]*)')
_DEFINE = re.compile(r"#\s*define\s+([A-Za-z_]\w*)(?:[ \t]+(.*))?$")
_TOKEN = re.compile(
    r"""[LuU]?"(?:[^"\\\n]|\\.)*"|[LuU]?'(?:[^'\\\n]|\\.)*'|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*|\.\.\.|"""
    r"<<|>>|<=|>=|==|!=|&&|\|\||\S"
)
"""The tokens of C as far as brackets, words and the ends of declarations need them; operators stay whole."""
_SYSTEM_FLAG = "3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One declaration as its tokens, and where it begins. ``is_system`` is the preprocessor's opinion of its file.

    ``has_body`` is true of a function that the header defines; its body is cut off.
    """

    words: list[str]
    file: str
    line: int
    is_system: bool
    has_body: bool = False

    @property
    def text(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Macro:
    """An object-like macro: ``#define name value``."""

    name: str
    value: str
    file: str
    is_system: bool


def cut(text: str) -> tuple[list[Declaration], list[Macro]]:
    """Declarations and object-like macros of a preprocessed text, in order.

    What is begun and never ended is a declaration too: one that its reader will refuse.
    """
    declarations: list[Declaration] = []
    macros: list[Macro] = []
    file, line, is_system = "", 0, False
    began = (file, line, is_system)
    words: list[str] = []
    depth, has_body = 0, False

    def end() -> None:
        nonlocal words, depth, has_body
        if words != [";"]:
            file, line, is_system = began
            declarations.append(Declaration(words=words, file=file, line=line, is_system=is_system, has_body=has_body))
        words, depth, has_body = [], 0, False

    for row in text.splitlines():
        if marker := _MARKER.match(row):
            line, file = int(marker[1]) - 1, marker[2].replace("\\\\", "\\").replace('\\"', '"')
            is_system = _SYSTEM_FLAG in marker[3].split()
            continue
        line += 1
        if row.startswith("#"):
            if macro := _DEFINE.match(row):
                macros.append(Macro(name=macro[1], value=(macro[2] or "").strip(), file=file, is_system=is_system))
            continue
        for token in _TOKEN.findall(row):
            if not words:
                if token in ("{", "}"):  # of extern "C" { … }
                    continue
                began = (file, line, is_system)
            if words == ["extern"] and token in ('"C"', '"C++"'):  # which says nothing about types
                words = []
                continue
            has_body = has_body or (token == "{" and depth == 0 and words[-1:] == [")"])
            depth = max(depth + (token in ("{", "(", "[")) - (token in ("}", ")", "]")), 0)
            if not has_body:
                words.append(token)
            if depth == 0 and token == ("}" if has_body else ";"):
                end()
    if words:
        end()
    return declarations, macros
