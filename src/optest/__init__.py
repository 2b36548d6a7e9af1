"""optest finds out whether an operator implementation is right and, if not, what is wrong with it.

It is also what pytest finds installed, and does nothing there: ``optest.pytest_plugin`` is the plug-in.
PYTEST_DONT_REWRITE: no test, so whoever imports it before pytest gets no warning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optest.api import RunOptions, bootstrap, cases, run
    from optest.backends.function import kernel

__version__ = "0.1.0"
__all__ = ["RunOptions", "__version__", "bootstrap", "cases", "kernel", "run"]


def __getattr__(name: str) -> Any:
    if name in ("RunOptions", "bootstrap", "cases", "run"):
        from optest import api

        return getattr(api, name)
    if name == "kernel":
        from optest.backends.function import kernel

        return kernel
    raise AttributeError(f"module 'optest' has no attribute {name!r}")
