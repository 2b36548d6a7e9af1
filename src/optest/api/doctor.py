"""What this machine has: versions, backends, devices, and why something is unavailable."""

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
    """Yield lines for a person; a broken backend is a line, never an exception.

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
        yield from _backend(backend)
        return
    for name in backend_manager.names():
        yield from _alone(name)


def _alone(name: str) -> Iterator[str]:
    """What :func:`_backend` says, in a fork: frameworks have threads and settings that are not for one another."""
    fork = fork_and_run(lambda: "\n".join(_backend(name)).encode())
    try:
        said = fork.read(_LOADED_WITHIN_S).decode()
    except TimeoutError:
        said = f"  {name}: it is not loaded after {_LOADED_WITHIN_S:g} s"
    status, signal = fork.end()
    yield from said.splitlines() or [f"  {name}: loading it failed, with {f'signal {signal}' if signal else status}"]


def _backend(name: str) -> Iterator[str]:
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
