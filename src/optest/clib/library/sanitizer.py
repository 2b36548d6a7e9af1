"""What a worker's environment needs before it loads a library: a sanitizer's runtime, and threads that do not spin.

AddressSanitizer has to be the first library of a process, so it is preloaded; its report ends the worker, and what the
worker said last becomes the case's reason (``core/worker_death``).
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

_ALWAYS = {
    "OMP_WAIT_POLICY": "passive",
    "GOMP_SPINCOUNT": "0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}
_ASAN_OPTIONS = (
    *("detect_leaks=0", "halt_on_error=1", "abort_on_error=0", "exitcode=1"),
    *("allocator_may_return_null=1", "detect_odr_violation=0", "alloc_dealloc_mismatch=0"),
)
"""Python itself leaks by design; leaks of the library are looked for call by call."""

_MARK = b"__asan_init"
_RUNTIME = re.compile(rb"\blib(?:asan\.so\.\d+|clang_rt\.asan[\w-]*\.so)\b")
_ASK_S = 30.0


def environment_of(configs: Sequence[FfiConfig]) -> Mapping[str, str]:
    """Variables by name, for a worker that runs cases with these configurations.

    Raises:
        Unavailable: if the sanitizer's runtime is not found.
    """
    if not configs:
        return {}
    sanitized = next((config for config in configs if config.stated.sanitizer == "asan"), None)
    if sanitized is None:
        return _ALWAYS
    return {**_ALWAYS, "LD_PRELOAD": _runtime(sanitized), "ASAN_OPTIONS": ":".join(_ASAN_OPTIONS)}


def require_runtime(config: FfiConfig) -> None:
    """Raise for a library that would end the process when it is loaded here, and for one that has no sanitizer.

    Raises:
        Unavailable: with what to do.
    """
    instrumented = [path for path in _files(config) if _contains_mark(path)]
    if config.stated.sanitizer == "asan" and not instrumented:
        raise Unavailable("AddressSanitizer", "the library was built without it; build it with -fsanitize=address")
    if instrumented and not hasattr(ctypes.CDLL(None), _MARK.decode()):
        remedy = (
            "it has to be there when the process starts; run in a worker (--isolate worker)"
            if config.stated.sanitizer == "asan"
            else f"{instrumented[0]} was built with it; state `sanitizer: asan` (--sanitizer asan)"
        )
        raise Unavailable("AddressSanitizer", remedy)


def _files(config: FfiConfig) -> list[Path]:
    """The library's objects that are files here; one that is not found is told when it is loaded."""
    found = []
    for name in config.objects or config.mapping.library:
        try:
            path = Path(find_library(name, root=None if config.objects else config.root))
        except Unavailable:
            continue
        if path.is_file() and path.stat().st_size:
            found.append(path)
    return found


def _contains_mark(path: Path) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(_MARK) >= 0


def _runtime(config: FfiConfig) -> str:
    """The file of the runtime that the library names, as its compiler finds it."""
    for path in _files(config):
        named = _RUNTIME.search(path.read_bytes())
        if named is not None:
            return _found_by_compiler(named[0].decode())
    return _found_by_compiler("libasan.so")


def _found_by_compiler(name: str) -> str:
    for compiler in ("gcc", "clang", "cc"):
        program = shutil.which(compiler)
        if program is None:
            continue
        ended = run([program, f"-print-file-name={name}"], cwd=Path.cwd(), env=environment(), timeout_s=_ASK_S)
        file = Path(ended.stdout_tail.strip())
        if file.is_absolute() and file.is_file():
            return str(file.resolve())
    if name.rpartition(".")[2].isdecimal():
        return name  # the loader may find it by its name
    raise Unavailable(
        "AddressSanitizer", f"no compiler here has {name}; install gcc's libasan, or the library's compiler"
    )
