"""Option table, configuration file and environment variables, and their resolution to the settings of a run."""

from optest.guests import Option
from optest.settings.config_file import ConfigFile, config_file, find_modules_here
from optest.settings.options import OPTIONS, RunOptions, split_values
from optest.settings.resolution import Origin, Settings, Value, plugin_modules, resolve
from optest.settings.variables import environment, infini_root, variables_set

__all__ = [
    "OPTIONS",
    "ConfigFile",
    "Option",
    "Origin",
    "RunOptions",
    "Settings",
    "Value",
    "config_file",
    "environment",
    "find_modules_here",
    "infini_root",
    "plugin_modules",
    "resolve",
    "split_values",
    "variables_set",
]
