"""Start of a command: loading of plug-ins, and a process with imported frameworks from which workers are forked."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optest.registry import file_of_module, is_installed, load_object
from optest.settings import environment, resolve, variables_set
from optest.settings.variables import worker_environment

if TYPE_CHECKING:
    from optest.process import ForkServer

_IMPORTS_TORCH = re.compile(r"^\s*(?:from|import)\s+torch\b", re.MULTILINE)


def bootstrap(plugins: Iterable[str] | None = None, *, accept_config: bool = False) -> None:
    """Load built-in operators, the modules of ``OPTEST_PLUGINS`` (or ``plugins``) and entry points; idempotent.

    Raises:
        UsageError: if a plug-in cannot be imported; or, without ``accept_config``, if code under test changed a
            plug-in or the configuration in an earlier run.
    """
    from optest.core.extensions import load_extensions
    from optest.core.trusted_files import refuse_changed_configuration

    refuse_changed_configuration(accept=accept_config)
    load_extensions(plugins)


def configuration_watched() -> AbstractContextManager[None]:
    """Return a context that prints changes of the configuration in its block; :func:`bootstrap` refuses them."""
    from optest.core.trusted_files import configuration_watched as watched

    return watched()


@contextmanager
def worker_server(options: Mapping[str, Any], default_jobs: int = 1) -> Iterator[ForkServer | None]:
    """Yield a server for the workers of a run; None if it runs neither functions nor torch, or cannot fork workers.

    Without it each worker would import torch, which takes longer than a usual check of one function. The server imports
    no user modules: each worker does, with its own files and threads, and in their present version.
    """
    settings = resolve(options)
    functions = settings["function"] or ()
    is_torch = settings["backend"] == "torch" or any(map(_imports_torch, functions))
    # NumPy's threads can be limited only before its import. Without it no user code has run in this process, so that it
    # has one thread and no open device.
    is_usable = sys.platform == "linux" and "numpy" not in sys.modules and settings["isolate"] != "none"
    is_usable &= not is_torch or is_installed("torch")  # the backend reports a missing torch
    if not is_usable or not (is_torch or functions):
        yield None
        return
    jobs = settings["jobs"] if settings.is_set("jobs") else default_jobs
    variables = worker_environment(environment(), jobs)
    with variables_set(variables), progress_shown(f"loading {'torch' if is_torch else 'numpy'}"):
        run = load_object("optest.core.worker:main")
        if is_torch:
            load_object("optest.torch.driver:TensorCalls")
        server = None
        if len(os.listdir("/proc/self/task")) == 1:
            from optest.process import ForkServer  # slow, and `import optest` does not need it

            server = ForkServer(_prepare, lambda argv: run(argv[4:]), variables)  # python -c CODE optest.core.worker …
    try:
        yield server
    finally:
        if server is not None:
            server.close()


def _prepare() -> None:
    sys.dont_write_bytecode = True  # else a second edit within one second keeps the bytecode of the first
    load_object("optest.core.forked:warm_up")()
    gc.freeze()


def _imports_torch(function: str) -> bool:
    """Return whether the source file of ``[OP=]MODULE:NAME`` imports torch; False if it cannot be read."""
    module = function.rpartition("=")[2].rpartition(":")[0]
    file = file_of_module(module)
    with suppress(OSError):  # reported when the function is loaded
        return module == "torch" or bool(
            file and file.endswith(".py") and _IMPORTS_TORCH.search(Path(file).read_text("utf-8", "replace"))
        )
    return False


@contextmanager
def progress_shown(text: str) -> Iterator[None]:
    """Show ``text`` on the terminal of stderr while the block runs."""
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
