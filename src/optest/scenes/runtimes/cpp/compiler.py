"""C++ sources compiled to shared objects, which are cached on disk by source, headers, flags and compiler."""

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
# Headers that change with the system: the compiler's version is in the key instead.
_OF_THE_COMPILER = ("/usr/include/", "/usr/lib/")
_building: dict[str, threading.Lock] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """A compiler with g++'s options: the value of the environment variable ``variable``, else ``usual``."""

    variable: str
    usual: str
    flags: tuple[str, ...]

    def compiler(self) -> tuple[str, ...]:
        """Return the compiler's path and the options after it, as of ``ccache g++``; raise Unavailable without it."""
        name = environment().get(self.variable) or self.usual
        first, *options = shlex.split(name)
        path = shutil.which(first)
        if path is None:
            raise Unavailable(f"compiler {name}", f"install {self.usual}, or set {self.variable} to another one")
        return (path, *options)

    def lack(self) -> str | None:
        """Return why the compiler is unavailable, None if it is available."""
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
def _version_text(compiler: tuple[str, ...]) -> str:
    ended = command.run([*compiler, "--version"], cwd="/", env=environment(), timeout_s=30)
    return ended.stdout_tail


def compile_source(
    source: Path, includes: Sequence[Path], *, rebuild: bool = False, toolchain: Toolchain = GXX
) -> Path:
    """Return the shared object of a source file, from the cache unless ``rebuild``.

    Raises:
        Fault: BAD_CASE if the file is missing, COMPILE with the compiler's message.
        Unavailable: without a compiler.
    """
    if not source.is_file():
        raise Fault(Reason.BAD_CASE, f"source {source} does not exist")
    compiler = toolchain.compiler()
    unknown = ("-fno-gnu-unique",) if "clang" in _version_text(compiler) else ()  # Clang emits no such symbols
    flags = [flag for flag in toolchain.flags if flag not in unknown]
    arguments = [*flags, *(f"-I{folder}" for folder in (source.parent, *includes)), str(source)]

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
    """Return the shared object of a compiler's command; call ``build`` unless the cache has it for the same files.

    ``build(stem)`` writes the object to ``stem.so``, and make rules with all files that it reads to ``stem.d``.

    Raises:
        Fault: COMPILE if a file changed meanwhile. Exceptions of ``build`` are not caught.
    """
    searched = {name: environment().get(name) for name in _SEARCHED}
    key = _digest(repr((compiler, arguments, searched, _version_text(compiler))).encode() + source.read_bytes())
    folder = _cache_folder()
    manifest = folder / f"{key}.json"
    # Without the lock, threads that prepare two cases of a scene would compile the same at once.
    with _building.setdefault(key, threading.Lock()), tempfile.TemporaryDirectory(dir=folder) as scratch:
        if not rebuild and (cached := _read_cache(manifest)):
            return cached
        began_ns = time.time_ns()
        build(f"{scratch}/built")
        files = _files_in_rules(Path(scratch, "built.d").read_text(), source)
        if any(Path(file).stat().st_mtime_ns > began_ns for file in (str(source), *files)):
            raise Fault(Reason.COMPILE, f"{source.name} or a header of it was changed while it was compiled")
        headers = {file: _digest(Path(file).read_bytes()) for file in files}
        name = f"{_digest(json.dumps([key, headers]).encode())}.so"
        os.replace(f"{scratch}/built.so", folder / name)
        write_atomically(manifest, json.dumps({"object": name, "headers": headers}).encode())
    return folder / name


def _read_cache(manifest: Path) -> Path | None:
    """Return the cached object, None if it is missing or a header has changed."""
    try:
        record: dict[str, Any] = json.loads(manifest.read_text())
        path = manifest.parent / record["object"]
        is_same = all(_digest(Path(file).read_bytes()) == digest for file, digest in record["headers"].items())
        return path if is_same and path.is_file() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # an incomplete manifest is written again
        return None


def _files_in_rules(text: str, source: Path) -> list[str]:
    """Return the absolute prerequisites of make rules, once each, without the source and the system's headers."""
    rules = text.replace("\\\n", " ").replace("\\ ", "\0").splitlines()
    words = [word for rule in rules for word in rule.partition(":")[2].split()]
    files = [str((source.parent / word.replace("\0", " ")).absolute()) for word in words]
    return [file for file in dict.fromkeys(files) if file != str(source) and not file.startswith(_OF_THE_COMPILER)]


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


@cache
def _cache_folder() -> Path:
    """Return ``.optest/cache/scenes`` in the working directory if it is writable, else a temporary folder of the user.

    Raises:
        Unavailable: if that belongs to another user, who could replace the objects that are loaded.
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
