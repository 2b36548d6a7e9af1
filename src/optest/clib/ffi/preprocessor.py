"""Run the C preprocessor over headers, neutralising compiler extensions, and split the text into declarations."""

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
# Compiler extensions that change neither the types nor the order of parameters.
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

# The compiler's message names the header that is wrong.
_MOST_NAMED = 4


def preprocess(headers: Sequence[Path], include: Sequence[Path]) -> tuple[str, dict[Path, str]]:
    """Return the preprocessed text of ``headers``, and errors by refused header; raise UsageError without any text."""
    program = _find_compiler()
    options = [f"-D{macro}" for macro in _NEUTRAL] + [f"-I{path.resolve()}" for path in include]
    with tempfile.TemporaryDirectory(prefix="optest-headers-") as folder:
        unit = _Unit(Path(folder), program, options)
        errors = unit.refusal(headers)
        refused: dict[Path, str] = {}
        if errors and len(headers) > 1:
            # One by one, since an error in one header hides the others'.
            refused = {path: message for path in headers if (message := unit.refusal([path]))}
            accepted = [path for path in headers if path not in refused]
            errors = unit.refusal(accepted) if accepted else errors
        if errors:
            listed = shortened([*map(str, headers)], _MOST_NAMED)
            hint = "\n  headers are read as C; put C++ code between #ifdef __cplusplus and #endif"
            indented = "\n  ".join(errors.splitlines()[:12])
            raise UsageError(f"{os.path.basename(program)} -E refuses {listed}\n  {indented}{hint}")
        return unit.output.read_text(errors="replace"), refused


class _Unit:
    """A translation unit that includes headers, in its own folder."""

    def __init__(self, folder: Path, program: str, options: Sequence[str]) -> None:
        self.output = folder / "unit.i"
        self._folder, self._source, self._stand_ins = folder, folder / "unit.c", folder / "stand-ins"
        self._stand_ins.mkdir()
        command = [program, "-E", "-dD", "-x", "c", "-std=gnu11", *options]  # -dD keeps #define lines.
        # After all other folders, so that real headers have precedence.
        self._command = [*command, "-idirafter", str(self._stand_ins), str(self._source), "-o", str(self.output)]

    def refusal(self, headers: Sequence[Path]) -> str:
        """Preprocess ``headers`` into ``output``; return the preprocessor's errors, empty on success."""
        self._source.write_text("".join(f'#include "{path.resolve()}"\n' for path in headers))
        missing = ""
        while True:
            process = run(self._command, cwd=str(self._folder), env=_compiler_environment(), timeout_s=_TIMEOUT_S)
            if process.returncode == 0 and not process.timed_out:
                return ""
            errors = process.stderr_tail.strip() or f"exit status {process.returncode}"
            header_match = _MISSING.search(errors)
            if header_match is None or header_match[1] == missing:  # The same header again: the stand-in did not help.
                return errors
            missing = header_match[1]
            # Headers of the C++ standard library have no suffix. ``cstddef`` and the like are replaced by the C header,
            # the others by nothing, since no function with C linkage needs their declarations.
            c_header = f"<{missing[1:]}.h>"
            text = f"#if __has_include({c_header})\n#include {c_header}\n#endif\n" if missing.startswith("c") else ""
            (self._stand_ins / missing).write_text(text)


_MISSING = re.compile(r"fatal error: '?([a-z_0-9]+)'?(?:: No such file or directory| file not found)")


def _compiler_environment() -> dict[str, str]:
    """Return the environment with English messages and without LD_PRELOAD, which may hold a sanitizer."""
    return {name: value for name, value in environment().items() if name != "LD_PRELOAD"} | {"LC_ALL": "C"}


def find_header(name: str) -> Path:
    """Return the file of ``#include <name>``; raise Unavailable if there is no such header, or no compiler."""
    program = _find_compiler()
    with tempfile.TemporaryDirectory(prefix="optest-headers-") as folder:
        unit, output = Path(folder, "unit.c"), Path(folder, "unit.d")
        unit.write_text(f"#include <{name}>\n")
        command = [program, "-M", "-MT", "unit", "-x", "c", str(unit), "-o", str(output)]
        process = run(command, cwd=folder, env=_compiler_environment(), timeout_s=_TIMEOUT_S)
        dependencies = output.read_text() if process.returncode == 0 else ""
    for word in dependencies.replace("\\\n", " ").split():
        if word.endswith(f"/{name}"):
            return Path(word)
    raise Unavailable(f"header {name}", "the C compiler does not find it; specify its path under `headers`")


def _find_compiler() -> str:
    for name in _COMPILERS:
        if path := shutil.which(name):
            return path
    compilers = ", ".join(_COMPILERS)
    raise Unavailable("reading C headers", f"it needs a C compiler's preprocessor; none of {compilers} is on the PATH")


_MARKER = re.compile(r'#\s*(?:line\s+)?(\d+)\s+"((?:[^"\\]|\\.)*)"([ \d]*)')
_DEFINE = re.compile(r"#\s*define\s+([A-Za-z_]\w*)(?:[ \t]+(.*))?$")
# Tokens of C, as precise as brackets, words and ends of declarations need; operators are single tokens.
_TOKEN = re.compile(
    r"""[LuU]?"(?:[^"\\\n]|\\.)*"|[LuU]?'(?:[^'\\\n]|\\.)*'|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*|\.\.\.|"""
    r"<<|>>|<=|>=|==|!=|&&|\|\||\S"
)
_SYSTEM_FLAG = "3"  # of a line marker, as GCC documents them


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """Tokens of one declaration, without a function's body, and its start; ``is_system``: in a system header."""

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


def split_declarations(text: str) -> tuple[list[Declaration], list[Macro]]:
    """Return the declarations, also an unfinished one, and the object-like macros of a preprocessed text."""
    declarations: list[Declaration] = []
    macros: list[Macro] = []
    file, line, is_system = "", 0, False
    start = (file, line, is_system)
    words: list[str] = []
    depth, has_body = 0, False

    def finish_declaration() -> None:
        nonlocal words, depth, has_body
        if words != [";"]:
            file, line, is_system = start
            declarations.append(Declaration(words=words, file=file, line=line, is_system=is_system, has_body=has_body))
        words, depth, has_body = [], 0, False

    for row in text.splitlines():
        if marker := _MARKER.match(row):
            # the next line has the marker's number
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
                # Braces of extern "C" { … }
                if token in ("{", "}"):
                    continue
                start = (file, line, is_system)
            # Linkage says nothing about types.
            if words == ["extern"] and token in ('"C"', '"C++"'):
                words = []
                continue
            has_body = has_body or (token == "{" and depth == 0 and words[-1:] == [")"])
            # An unbalanced bracket must not hide later declarations.
            depth = max(depth + (token in ("{", "(", "[")) - (token in ("}", ")", "]")), 0)
            if not has_body:
                words.append(token)
            if depth == 0 and token == ("}" if has_body else ";"):
                finish_declaration()
    if words:
        finish_declaration()
    return declarations, macros
