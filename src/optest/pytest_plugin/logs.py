"""Log records of cases, captured for their reports by one handler for consecutive cases.

pytest adds two handlers to every logger that does not propagate, and removes them, six times in each test. Torch has
some forty such loggers, so that this costs more than the rest of pytest's work for a case. Cases have no fixtures that
read records, so one handler for all cases in a row suffices.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import pytest

from optest.pytest_plugin.nodes import CaseItem

_PLUGIN = "logging-plugin"
_PHASES = ("pytest_runtest_setup", "pytest_runtest_call", "pytest_runtest_teardown")
_OPTIONS_OF_MORE = ("log_level", "log_cli_level", "log_cli")


class Logs(logging.Handler):
    """A handler in place of pytest's logging plug-in for cases, unless its options differ from the defaults."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        self._manager = config.pluginmanager
        self._replaced = _default_logging_plugin(config)
        self._lines: list[str] = []
        self._attached: list[logging.Logger] = []
        self._logger_count = 0
        if self._replaced is not None:
            self.setFormatter(self._replaced.formatter)

    def set_hooks(self, items: Iterable[pytest.Item]) -> None:
        """Exclude pytest's logging plug-in from the phases of cases."""
        if self._replaced is None:
            return
        hooks: dict[Any, Any] = {}
        for item in items:
            if isinstance(item, CaseItem):
                if item.path not in hooks:
                    hooks[item.path] = self._hooks(item.ihook)
                item.hooks = hooks[item.path]

    def _hooks(self, relay: Any) -> Any:
        """Return the hooks without the plug-in; None if the relay of other conftests does not list its exclusions."""
        excluded = () if relay is self._manager.hook else getattr(relay, "remove_mods", None)
        return None if excluded is None else _Hooks(relay, self._manager, {*excluded, self._replaced})

    def start(self, item: pytest.Item) -> None:
        """Attach the handler to all loggers for a case; detach it for another test, which has pytest's handlers."""
        if getattr(item, "hooks", None) is None or not isinstance(item, CaseItem):
            self.stop()
            return
        loggers = logging.root.manager.loggerDict
        if len(loggers) == self._logger_count:  # else the case before this one has created loggers
            return
        self.stop()
        separate = [x for x in loggers.values() if isinstance(x, logging.Logger) and not x.propagate]
        for logger in [logging.root, *separate]:
            logger.addHandler(self)
            self._attached.append(logger)
        self._logger_count = len(loggers)

    def stop(self) -> None:
        """Detach the handler from all loggers."""
        for logger in self._attached:
            logger.removeHandler(self)
        self._attached.clear()
        self._logger_count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))

    def report(self, item: pytest.Item, when: str) -> None:
        """Move the records of a phase to the item's report."""
        if self._lines:
            item.add_report_section(when, "log", "\n".join(self._lines).strip())
            self._lines.clear()


LOGS = pytest.StashKey[Logs]()


def _default_logging_plugin(config: pytest.Config) -> Any:
    """Return pytest's logging plug-in; None if it is absent, or has a level or live logging."""
    plugin = config.pluginmanager.get_plugin(_PLUGIN)
    if getattr(plugin, "formatter", None) is None:
        return None
    has_options = any(config.getoption(name, None) or config.getini(name) for name in _OPTIONS_OF_MORE)
    return None if has_options else plugin


class _Hooks:
    """Hooks of an item, without some plug-ins in its phases."""

    def __init__(self, relay: Any, manager: pytest.PytestPluginManager, excluded: set[Any]) -> None:
        self._relay = relay
        for name in _PHASES:
            setattr(self, name, manager.subset_hook_caller(name, excluded))

    def __getattr__(self, name: str) -> Any:
        hook = getattr(self._relay, name)
        setattr(self, name, hook)
        return hook
