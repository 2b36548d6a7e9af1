"""optest finds out whether an operator implementation is right and, if not, what is wrong with it.

This module is also the entry point that pytest loads, and does nothing there: ``optest.pytest_plugin`` is the plug-in.
PYTEST_DONT_REWRITE: it has no assertions, and without this mark an import before pytest would cause a warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optest import testing
    from optest.api import RunOptions, bootstrap, cases, check, run
    from optest.api.report import Report
    from optest.backends.function import kernel

__version__ = "0.1.0"
__all__ = ["Report", "RunOptions", "__version__", "bootstrap", "cases", "check", "kernel", "run", "testing"]


# Public names are imported at their first use: `import optest` stays fast.
_MODULES = {
    **dict.fromkeys(("RunOptions", "bootstrap", "cases", "check", "run"), "optest.api"),
    "Report": "optest.api.report",
    "kernel": "optest.backends.function",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name == "testing":
        import optest.testing as module

        return module
    if name in _MODULES:
        from optest.registry import load_object

        return load_object(f"{_MODULES[name]}:{name}")
    raise AttributeError(f"module 'optest' has no attribute {name!r}")
