"""Environment variables for a worker that loads a library: a sanitizer's runtime, and threads that do not spin.

AddressSanitizer must be the first library of a process, so it is preloaded; its report ends the worker, and the
worker's last output becomes the case's reason (``core/worker_death``).
"""

from __future__ import annotations

import ctypes
import mmap
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from optest.clib.ffi.libraries import find_library
from optest.clib.library.config import FfiConfig
from optest.errors import Unavailable
from optest.process import run
from optest.settings import environment

# Threads that spin while they wait would take the processors from other workers.
_COMMON = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
# Python itself leaks by design; the library's leaks are counted call by call.
_ASAN_OPTIONS = (
    *("detect_leaks=0", "halt_on_error=1", "abort_on_error=0", "exitcode=1"),
    *("allocator_may_return_null=1", "detect_odr_violation=0", "alloc_dealloc_mismatch=0"),
)

_MARK = b"__asan_init"  # a symbol that every instrumented object refers to
_RUNTIME = re.compile(rb"\blib(?:asan\.so\.\d+|clang_rt\.asan[\w-]*\.so)\b")
_COMPILER_TIMEOUT_S = 30.0


def environment_of(configs: Sequence[FfiConfig]) -> Mapping[str, str]:
    """Return a worker's variables for these configurations; raise Unavailable if a sanitizer's runtime is missing."""
    if not configs:
        return {}
    sanitized = next((config for config in configs if config.section.sanitizer == "asan"), None)
    if sanitized is None:
        return _COMMON
    return {**_COMMON, "LD_PRELOAD": _runtime_path(sanitized), "ASAN_OPTIONS": ":".join(_ASAN_OPTIONS)}


def require_runtime(config: FfiConfig) -> None:
    """Raise Unavailable for a library whose sanitizer would end this process, and for ``asan`` without one."""
    instrumented = [path for path in _library_files(config) if _contains_mark(path)]
    if config.section.sanitizer == "asan" and not instrumented:
        raise Unavailable("AddressSanitizer", "the library was built without it; build it with -fsanitize=address")
    if instrumented and not hasattr(ctypes.CDLL(None), _MARK.decode()):
        remedy = (
            "its runtime must be preloaded at the start of the process; run in a worker (--isolate worker)"
            if config.section.sanitizer == "asan"
            else f"{instrumented[0]} was built with it; set `sanitizer: asan` (--sanitizer asan)"
        )
        raise Unavailable("AddressSanitizer", remedy)


def _library_files(config: FfiConfig) -> list[Path]:
    """Return the library's objects that are non-empty files; a missing one is reported when it is loaded."""
    files = []
    for name in config.objects or config.mapping.library:
        try:
            path = Path(find_library(name, root=None if config.objects else config.root))
        except Unavailable:
            continue
        if path.is_file() and path.stat().st_size:
            files.append(path)
    return files


def _contains_mark(path: Path) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(_MARK) >= 0


def _runtime_path(config: FfiConfig) -> str:
    """Return the path of the runtime that the library names, as its compiler finds it."""
    for path in _library_files(config):
        named = _RUNTIME.search(path.read_bytes())
        if named is not None:
            return _locate_runtime(named[0].decode())
    return _locate_runtime("libasan.so")


def _locate_runtime(name: str) -> str:
    """Return the path of a runtime as gcc, clang or cc locates it; a versioned name is left to the loader."""
    for compiler in ("gcc", "clang", "cc"):
        program = shutil.which(compiler)
        if program is None:
            continue
        command = [program, f"-print-file-name={name}"]
        result = run(command, cwd=Path.cwd(), env=environment(), timeout_s=_COMPILER_TIMEOUT_S)
        file = Path(result.stdout_tail.strip())
        if file.is_absolute() and file.is_file():
            return str(file.resolve())
    if name.rpartition(".")[2].isdecimal():
        return name  # the loader may find it by its name
    raise Unavailable("AddressSanitizer", f"no compiler has {name}; install gcc's libasan, or the library's compiler")
