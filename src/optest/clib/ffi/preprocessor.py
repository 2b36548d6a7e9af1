"""The C preprocessor, run over headers with whatever is not standard C taken out by macros."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from optest.errors import Unavailable, UsageError
from optest.process import run
from optest.settings import environment

__all__ = ["find_header", "preprocess"]

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


def preprocess(
    headers: Sequence[Path], *, include: Sequence[Path] = (), define: Sequence[str] = (), compiler: str = ""
) -> str:
    """The text of ``headers``, one after the other in one translation unit, with line markers and ``#define`` lines.

    ``compiler`` is a program such as ``gcc``; empty takes the first of cc, gcc, clang on the PATH.

    Raises:
        Unavailable: if there is no C compiler.
        UsageError: if the preprocessor refuses a header, with what it said.
    """
    program = _program(compiler)
    with tempfile.TemporaryDirectory(prefix="optest-headers-") as folder:
        unit, output = Path(folder, "unit.c"), Path(folder, "unit.i")
        unit.write_text("".join(f'#include "{path.resolve()}"\n' for path in headers))
        command = [program, "-E", "-dD", "-x", "c", "-std=gnu11"]
        command += [f"-D{macro}" for macro in (*_NEUTRAL, *define)]
        command += [f"-I{path.resolve()}" for path in include]
        ended = run([*command, str(unit), "-o", str(output)], cwd=folder, env=_environment(), timeout_s=_TIMEOUT_S)
        if ended.returncode != 0 or ended.timed_out:
            more = f" and {len(headers) - _MOST_NAMED} more" if len(headers) > _MOST_NAMED else ""
            listed = ", ".join(map(str, headers[:_MOST_NAMED])) + more
            said = ended.stderr_tail.strip() or f"it ended with status {ended.returncode}"
            hint = "\n  headers are read as C; C++ in them should stand behind #ifdef __cplusplus"
            raise UsageError(f"{os.path.basename(program)} -E refuses {listed}\n  {_indented(said)}{hint}")
        return output.read_text(errors="replace")


def _environment() -> dict[str, str]:
    """Without what is preloaded into this process: the compiler has no use for a sanitizer."""
    return {name: value for name, value in environment().items() if name != "LD_PRELOAD"}


def find_header(name: str) -> Path:
    """Where the compiler finds ``#include <name>``.

    Raises:
        Unavailable: if there is no such header, or no compiler.
    """
    program = _program("")
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


def _program(compiler: str) -> str:
    for name in (compiler,) if compiler else _COMPILERS:
        if found := shutil.which(name):
            return found
    wanted = compiler or ", ".join(_COMPILERS)
    raise Unavailable("reading C headers", f"no C compiler ({wanted}) is on the PATH; its preprocessor is needed")


def _indented(text: str) -> str:
    return "\n  ".join(text.splitlines()[:12])
