"""What is logged while a case is asked for, caught for its report by one handler that stays.

pytest adds two handlers to every logger that does not propagate, and takes them away again, six times in each test.
Torch has some forty such loggers, so that this costs more than all else that pytest does for a case. Cases have no
fixture that could ask for records, hence the handler of this module does for them, and stays for all of a row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import pytest

from optest.pytest_plugin.nodes import CaseItem

_PLUGIN = "logging-plugin"
_PHASES = ("pytest_runtest_setup", "pytest_runtest_call", "pytest_runtest_teardown")
_ASKS_FOR_MORE = ("log_level", "log_cli_level", "log_cli")


class Logs(logging.Handler):
    """Records of cases as pytest's own plug-in would tell them, where nobody asked that for more than its default."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        self._manager = config.pluginmanager
        self._replaced = _replaced(config)
        self._lines: list[str] = []
        self._attached: list[logging.Logger] = []
        self._known = 0
        if self._replaced is not None:
            self.setFormatter(self._replaced.formatter)

    def give_hooks(self, items: Iterable[pytest.Item]) -> None:
        """Let pytest's plug-in out of the phases of cases."""
        if self._replaced is None:
            return
        hooks: dict[Any, Any] = {}
        for item in items:
            if isinstance(item, CaseItem):
                if item.path not in hooks:
                    hooks[item.path] = self._hooks(item.ihook)
                item.hooks = hooks[item.path]

    def _hooks(self, relay: Any) -> Any:
        """The hooks without the plug-in; None where it is not known how to leave it out beside other conftests."""
        gone = () if relay is self._manager.hook else getattr(relay, "remove_mods", None)
        return None if gone is None else _Hooks(relay, self._manager, {*gone, self._replaced})

    def take_turn(self, item: pytest.Item) -> None:
        """Hear all loggers there are while a case has its turn; new ones may have come with the one before it.

        A test that is no case has handlers of its own.
        """
        if getattr(item, "hooks", None) is None or not isinstance(item, CaseItem):
            self.stop()
            return
        loggers = logging.root.manager.loggerDict
        if len(loggers) == self._known:
            return
        self.stop()
        apart = [each for each in loggers.values() if isinstance(each, logging.Logger) and not each.propagate]
        for logger in [logging.root, *apart]:
            logger.addHandler(self)
            self._attached.append(logger)
        self._known = len(loggers)

    def stop(self) -> None:
        """Hear no more."""
        for logger in self._attached:
            logger.removeHandler(self)
        self._attached.clear()
        self._known = 0

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))

    def tell(self, item: pytest.Item, when: str) -> None:
        """Give what was heard in a phase to the item's report."""
        if self._lines:
            item.add_report_section(when, "log", "\n".join(self._lines).strip())
            self._lines.clear()


LOGS = pytest.StashKey[Logs]()


def _replaced(config: pytest.Config) -> Any:
    """pytest's plug-in, None where there is none or more is wanted of it: a level, records as they come."""
    plugin = config.pluginmanager.get_plugin(_PLUGIN)
    if getattr(plugin, "formatter", None) is None:
        return None
    wants_more = any(config.getoption(name, None) or config.getini(name) for name in _ASKS_FOR_MORE)
    return None if wants_more else plugin


class _Hooks:
    """Hooks of an item; those of its phases without some plug-ins."""

    def __init__(self, relay: Any, manager: pytest.PytestPluginManager, gone: set[Any]) -> None:
        self._relay = relay
        for name in _PHASES:
            setattr(self, name, manager.subset_hook_caller(name, gone))

    def __getattr__(self, name: str) -> Any:
        hook = getattr(self._relay, name)
        setattr(self, name, hook)
        return hook
