"""What this machine has: versions, backends, devices, and why something is unavailable."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator

from optest import __version__
from optest.api import bootstrap
from optest.backends import backend_manager
from optest.backends.abilities import ExplainsItself
from optest.errors import Unavailable
from optest.registry import EXTRAS, load_entry_points, version_of
from optest.settings import plugin_modules

__all__ = ["doctor"]

_GROUPS = ("optest.plugins", "optest.operators", "optest.backends", "optest.reporters")
_CORE = ("numpy", "ml_dtypes", "click", "PyYAML", "pydantic", "msgspec", "rich")


def doctor(backend: str | None = None) -> Iterator[str]:
    """Yield lines for a person; a broken backend is a line, never an exception.

    Raises:
        UnknownName: if ``backend`` is not registered.
    """
    bootstrap()
    if backend is None:
        yield f"optest {__version__}, Python {platform.python_version()}, {platform.platform()}"
        yield from _packages()
        yield from _plugins()
        yield f"C++ compiler: {shutil.which('g++') or shutil.which('c++') or 'none found'}"
    yield "backends:"
    for name in backend_manager.names() if backend is None else (backend,):
        yield from _backend(name)


def _packages() -> Iterator[str]:
    for package in _CORE:
        yield f"  {package} {version_of(package)}"
    for package, remedy in EXTRAS.items():
        version = version_of(package)
        yield f"  {package} {version}" if version else f"  {package} is not installed: pip install '{remedy}'"


def _plugins() -> Iterator[str]:
    """What OPTEST_PLUGINS names, and what installed packages bring by their entry points."""
    yield f"plug-ins: {', '.join(plugin_modules()) or 'none (OPTEST_PLUGINS is empty)'}"
    for group in _GROUPS:
        installed = ", ".join(f"{name} ({path})" for name, path in load_entry_points(group))
        if installed:
            yield f"  installed, {group}: {installed}"


def _backend(name: str) -> Iterator[str]:
    try:
        driver = backend_manager.get(name)
        facts = list(driver.doctor()) if isinstance(driver, ExplainsItself) else []
    except Unavailable as error:
        yield f"  {name}: unavailable: {error.remedy}"
        return
    chips = f", chips {', '.join(driver.chips)}" if driver.chips else ""
    yield f"  {name}: kind {driver.kind}{chips}"
    for fact in facts:
        yield f"    {fact}"
