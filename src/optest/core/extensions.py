"""Loading of the user's extensions: modules of ``OPTEST_PLUGINS`` and entry points of installed packages."""

from __future__ import annotations

from collections.abc import Iterable

from optest.backends import backend_manager
from optest.errors import UsageError
from optest.operators import operators
from optest.registry import is_loaded_plugin, load_entry_points, load_extension, load_plugins
from optest.settings import plugin_modules
from optest.spec import OperatorDescriptor

_done: set[str] = set()


def load_extensions(plugins: Iterable[str] | None = None) -> None:
    """Import the plug-in modules and register the backends and operators of entry points.

    ``plugins`` default to those of ``OPTEST_PLUGINS``. A module that is loaded, and the entry points after the first
    call, are skipped. Backends are registered by path and imported when they are first used; operators are imported
    now.

    Raises:
        UsageError: if a plug-in or an operator cannot be imported; if a plug-in replaces a name that verdicts depend
            on; if an operator's entry point is neither an OperatorDescriptor nor a tuple of them.
    """
    _load(plugin_modules() if plugins is None else plugins)
    if "entry points" in _done:
        return
    _done.add("entry points")
    _load(path for _, path in load_entry_points("optest.plugins"))
    for name, path in load_entry_points("optest.backends"):
        backend_manager.register_path(name, path)
    for name, path in load_entry_points("optest.operators"):
        extension = load_extension(f"operator entry point {name!r}", path)
        descriptors = extension if isinstance(extension, (tuple, list)) else (extension,)
        for descriptor in descriptors:
            if not isinstance(descriptor, OperatorDescriptor):
                raise UsageError(
                    f"entry point {name!r} of optest.operators is {type(descriptor).__name__}, "
                    "expected an OperatorDescriptor or a tuple of them"
                )
            operators.register(descriptor)


def _load(modules: Iterable[str]) -> None:
    """Load the plug-ins that are not loaded; raise UsageError for one that replaces watched names."""
    modules = [module for module in modules if not is_loaded_plugin(module)]
    if not modules:
        return
    # both import NumPy, which `--help` must not
    from optest.core.monkeypatches import patch_watch
    from optest.core.side_effects import refuse_patches

    patches = patch_watch()
    patches.renew()
    for module in modules:  # one at a time, so that an error names the plug-in that replaced something
        load_plugins([module])
        refuse_patches(patches, f"plug-in {module!r}")
