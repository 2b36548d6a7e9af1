"""C++ sources as shared objects, kept on disk by what they are made of: text, headers, flags and compiler."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from optest.errors import Unavailable
from optest.process import command
from optest.settings import environment
from optest.spec import Fault, Reason
from optest.store import write_atomically

_TIMEOUT_S = 300.0
_TAIL_LINES = 25
_SEARCHED = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH")
_OF_THE_COMPILER = ("/usr/include/", "/usr/lib/")
"""Headers that change with the system; the compiler's version stands for them."""
_building: dict[str, threading.Lock] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """A compiler with g++'s options: the one that ``variable`` names, else ``usual``."""

    variable: str
    usual: str
    flags: tuple[str, ...]

    def compiler(self) -> tuple[str, ...]:
        """With the options that stand behind it, ``ccache g++``.

        Raises:
            Unavailable: if it is not there.
        """
        name = environment().get(self.variable) or self.usual
        first, *options = shlex.split(name)
        path = shutil.which(first)
        if path is None:
            raise Unavailable(f"compiler {name}", f"install {self.usual}, or name another one by {self.variable}")
        return (path, *options)

    def lack(self) -> str | None:
        """Why there is none, None if there is one."""
        try:
            self.compiler()
        except Unavailable as error:
            return str(error)
        return None


GXX = Toolchain(
    variable="CXX",
    usual="g++",
    flags=("-std=c++20", "-O2", "-g", "-fPIC", "-shared", "-pthread", "-Wl,-z,defs", "-Wall", "-fno-gnu-unique"),
)


@cache
def _identity(compiler: tuple[str, ...]) -> str:
    ended = command.run([*compiler, "--version"], cwd="/", env=environment(), timeout_s=30)
    return ended.stdout_tail


def compiled(source: Path, includes: Sequence[Path], *, rebuild: bool = False, toolchain: Toolchain = GXX) -> Path:
    """The shared object of a source file; the one that was made of the same before, unless ``rebuild``.

    Raises:
        Fault: BAD_CASE if the file is missing, COMPILE with the compiler's words.
        Unavailable: without a compiler.
    """
    if not source.is_file():
        raise Fault(Reason.BAD_CASE, f"source {source} is not there")
    compiler = toolchain.compiler()
    unknown = ("-fno-gnu-unique",) if "clang" in _identity(compiler) else ()  # it makes no such symbols
    flags = [each for each in toolchain.flags if each not in unknown]
    arguments = [*flags, *(f"-I{each}" for each in (source.parent, *includes)), str(source)]

    def build(stem: str) -> None:
        words = [*compiler, *arguments, "-MD", "-MF", f"{stem}.d", "-o", f"{stem}.so"]
        ended = command.run(words, cwd=source.parent, env=environment(), timeout_s=_TIMEOUT_S, tail_bytes=1 << 16)
        if ended.timed_out:
            raise Fault(Reason.COMPILE, f"{source} took more than {_TIMEOUT_S:.0f} s to compile")
        if ended.returncode:
            lines = ended.stderr_tail.strip().splitlines()
            first = next((index for index, line in enumerate(lines) if "error" in line or "undefined ref" in line), 0)
            text = "\n".join(lines[first : first + _TAIL_LINES])
            raise Fault(Reason.COMPILE, f"{source.name} does not compile:\n{text}")

    return kept(compiler, arguments, source, build, rebuild)


def kept(
    compiler: tuple[str, ...],
    arguments: Sequence[str],
    source: Path,
    build: Callable[[str], None],
    rebuild: bool = False,
) -> Path:
    """Return the object of a compiler's command, compiled only if no object of the same files is on disk.

    ``build(stem)`` writes the object to ``stem.so``, and to ``stem.d`` the make rules of all files that it reads.

    Raises:
        Fault: COMPILE if a file changed meanwhile. Whatever ``build`` raises passes.
    """
    searched = {name: environment().get(name) for name in _SEARCHED}
    key = _digest(repr((compiler, arguments, searched, _identity(compiler))).encode() + source.read_bytes())
    folder = _cache()
    manifest = folder / f"{key}.json"
    # without the lock, threads that prepare two cases of a scene would compile the same at once
    with _building.setdefault(key, threading.Lock()), tempfile.TemporaryDirectory(dir=folder) as scratch:
        if not rebuild and (earlier := _kept(manifest)):
            return earlier
        began_ns = time.time_ns()
        build(f"{scratch}/made")
        files = _headers(Path(scratch, "made.d").read_text(), source)
        if any(Path(each).stat().st_mtime_ns > began_ns for each in (str(source), *files)):
            raise Fault(Reason.COMPILE, f"{source.name} or a header of it was changed while it was compiled")
        headers = {each: _digest(Path(each).read_bytes()) for each in files}
        name = f"{_digest(json.dumps([key, headers]).encode())}.so"
        os.replace(f"{scratch}/made.so", folder / name)
        write_atomically(manifest, json.dumps({"object": name, "headers": headers}).encode())
    return folder / name


def _kept(manifest: Path) -> Path | None:
    """What was compiled, if it is there and no header has changed."""
    try:
        record: dict[str, Any] = json.loads(manifest.read_text())
        made = manifest.parent / record["object"]
        is_same = all(_digest(Path(each).read_bytes()) == digest for each, digest in record["headers"].items())
        return made if is_same and made.is_file() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # a torn entry is made again
        return None


def _headers(rule: str, source: Path) -> list[str]:
    """Return the files that make rules name behind their targets, except the source itself."""
    rules = rule.replace("\\\n", " ").replace("\\ ", "\0").splitlines()
    words = [word for each in rules for word in each.partition(":")[2].split()]
    files = [str((source.parent / word.replace("\0", " ")).absolute()) for word in words]
    return [each for each in dict.fromkeys(files) if each != str(source) and not each.startswith(_OF_THE_COMPILER)]


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@cache
def _cache() -> Path:
    """``.optest/cache`` in the working directory, where it can be written; else a folder of the user's own among
    temporary files.

    Raises:
        Unavailable: if that is somebody else's: what lies there is loaded.
    """
    folder = Path(".optest", "cache", "scenes").absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder.parent / ".gitignore").write_text("*\n")
        with tempfile.TemporaryDirectory(dir=folder):
            return folder
    except OSError:
        fallback = Path(tempfile.gettempdir(), f"optest-scenes-{os.getuid()}")
        fallback.mkdir(mode=0o700, exist_ok=True)
        if fallback.lstat().st_uid != os.getuid():
            raise Unavailable("a folder for compiled scenes", f"make {folder} writable") from None
        return fallback
