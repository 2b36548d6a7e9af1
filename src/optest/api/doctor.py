"""``optest doctor``: versions, backends and devices of this machine, and why a backend is unavailable."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator

from optest import __version__
from optest.api import bootstrap
from optest.backends import backend_manager
from optest.backends.command_abilities import ExplainsItself
from optest.errors import Unavailable, UnknownName, UsageError
from optest.process import fork_and_run
from optest.registry import OPTIONAL, load_entry_points, version_of
from optest.settings import plugin_modules

_GROUPS = ("optest.plugins", "optest.operators", "optest.backends", "optest.reporters")
_LOADED_WITHIN_S = 120.0
_CORE = ("numpy", "ml_dtypes", "click", "PyYAML", "pydantic", "msgspec", "rich")


def doctor(backend: str | None = None) -> Iterator[str]:
    """Yield a description of the machine and of all backends, or of ``backend`` only.

    A broken backend is reported in a line.

    Raises:
        UnknownName: if ``backend`` is not registered.
    """
    bootstrap()
    if backend is None:
        yield f"optest {__version__}, Python {platform.python_version()}, {platform.platform()}"
        for package in (*_CORE, *OPTIONAL):
            version = version_of(package)
            yield f"  {package} {version}" if version else f"  {package} is not installed: pip install {package}"
        yield f"plug-ins: {', '.join(plugin_modules()) or 'none (OPTEST_PLUGINS is empty)'}"
        for group in _GROUPS:
            installed = ", ".join(f"{name} ({path})" for name, path in load_entry_points(group))
            if installed:
                yield f"  installed, {group}: {installed}"
        yield f"C++ compiler: {shutil.which('g++') or shutil.which('c++') or 'none found'}"
    yield "backends:"
    if backend is not None:
        yield from _describe_backend(backend)
        return
    for name in backend_manager.names():
        yield from _describe_in_fork(name)


def _describe_in_fork(name: str) -> Iterator[str]:
    """Yield the lines of :func:`_describe_backend`, or one line if loading the backend crashes or takes too long."""
    # Frameworks have threads and settings that disturb each other in one process.
    fork = fork_and_run(lambda: "\n".join(_describe_backend(name)).encode())
    try:
        text = fork.read(_LOADED_WITHIN_S).decode()
    except TimeoutError:
        text = f"  {name}: not loaded within {_LOADED_WITHIN_S:g} s"
    status, signal = fork.end()
    ending = f"signal {signal}" if signal else f"status {status}"
    yield from text.splitlines() or [f"  {name}: the process that loaded it ended with {ending}"]


def _describe_backend(name: str) -> Iterator[str]:
    try:
        driver = backend_manager.get(name)
        facts = list(driver.doctor()) if isinstance(driver, ExplainsItself) else []
    except Unavailable as error:
        yield f"  {name}: unavailable: {error.remedy}"
        return
    except UnknownName:
        raise
    except UsageError as error:
        yield f"  {name}: {error}"
        return
    chips = f", chips {', '.join(driver.chips)}" if driver.chips else ""
    yield f"  {name}: kind {driver.kind}{chips}"
    for fact in facts:
        yield f"    {fact}"
