"""A process with the frameworks of a run imported, from which its workers are forked.

Otherwise each worker imports torch for itself, which takes longer than a usual check of one function. The user's own
modules are not imported there: each worker has its own, with its own files and threads, and after an edit the new one.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from optest.process import ForkServer
from optest.registry import file_of_module, is_installed, load_object
from optest.settings import environment, resolve, variables_set
from optest.settings.variables import worker_environment

_IMPORTS_TORCH = re.compile(r"^\s*(?:from|import)\s+torch\b", re.MULTILINE)


@contextmanager
def worker_server(given: Mapping[str, Any], usual_jobs: int = 1) -> Iterator[ForkServer | None]:
    """Yield a server for the workers of a run with these options; None if they run no functions and no torch.

    None also if NumPy is imported already: its threads can be limited only before. Without NumPy no code of the user
    has run in this process, so that it has one thread and no open device.
    """
    settings = resolve(given)
    functions = settings["function"] or ()
    is_torch = settings["backend"] == "torch" or any(map(_names_torch, functions))
    is_usable = sys.platform == "linux" and "numpy" not in sys.modules and settings["isolate"] != "none"
    is_usable &= not is_torch or is_installed("torch")  # what is absent is reported by the user's own name for it
    if not is_usable or not (is_torch or functions):
        yield None
        return
    jobs = settings["jobs"] if settings.stated("jobs") else usual_jobs
    variables = worker_environment(environment(), jobs)
    with variables_set(variables), shown(f"loading {'torch' if is_torch else 'numpy'}"):
        run = load_object("optest.core.worker:main")
        if is_torch:
            load_object("optest.torch.driver:TensorCalls")
        server = None
        if len(os.listdir("/proc/self/task")) == 1:
            server = ForkServer(_prepare, lambda argv: run(argv[4:]), variables)  # of python -c CODE optest.core.worker
    try:
        yield server
    finally:
        if server is not None:
            server.close()


def _prepare() -> None:
    sys.dont_write_bytecode = True  # else a second edit within one second keeps the bytecode of the first
    load_object("optest.core.forked:warm_up")()
    gc.freeze()


def _names_torch(function: str) -> bool:
    """Return whether the source of the file of ``[OP=]MODULE:NAME`` imports torch; False if it cannot be read."""
    module = function.rpartition("=")[2].rpartition(":")[0]
    file = file_of_module(module)
    with suppress(OSError):  # reported where the function is loaded
        return module == "torch" or bool(
            file and file.endswith(".py") and _IMPORTS_TORCH.search(Path(file).read_text("utf-8", "replace"))
        )
    return False


@contextmanager
def shown(text: str) -> Iterator[None]:
    """Show ``text`` on a terminal while the block runs."""
    is_terminal = sys.stderr.isatty()
    if is_terminal:
        sys.stderr.write(f"{text} …")
        sys.stderr.flush()
    try:
        yield
    finally:
        if is_terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
