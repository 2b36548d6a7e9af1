"""Options, declared once, and what they are worth in a run; it owns the environment."""

from optest.settings.options import OPTIONS, Option, RunOptions
from optest.settings.resolution import Origin, Settings, Value, resolve
from optest.settings.variables import environment, infini_root, plugin_modules, variables_set

__all__ = [
    "OPTIONS",
    "Option",
    "Origin",
    "RunOptions",
    "Settings",
    "Value",
    "environment",
    "infini_root",
    "plugin_modules",
    "resolve",
    "variables_set",
]
