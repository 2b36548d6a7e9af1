"""The public API: the one place that wires plans, backends, engine and reports together.

Each function is a command: :func:`run`, :func:`listing`, :func:`explain`, :func:`replay`, :func:`schema`,
:func:`report`, :func:`doctor`. Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["bootstrap"]


def bootstrap(plugins: Iterable[str] | None = None) -> None:
    """Load built-ins, the modules of ``OPTEST_PLUGINS`` (or ``plugins``) and installed entry points; harmless twice.

    Raises:
        UsageError: if a plug-in cannot be imported.
    """
    from optest.core.extensions import load_extensions

    load_extensions(plugins)
