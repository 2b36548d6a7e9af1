"""Test suite of all operators for the repository of a backend: one line in a pytest file.

    from optest.suites import define_backend_tests

    define_backend_tests("faer_backend_tests", lambda: FaerBackend())

With ``addopts = -p optest.pytest_plugin`` in the project's ini every case of ``optest check`` is a test of its own:
``test_suite.py::faer_backend_tests::softmax_matches_torch::ordinary/1[float32 (4x37)]``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optest.backends import BackendDriver, backend_manager
from optest.core.border import Border
from optest.errors import UsageError
from optest.spec import TIERS, Fault, Reason

TIER_NAMES = tuple(tier.value for tier in TIERS)
_GUARD = "test_that_pytest_has_loaded_the_plug_in_of_optest"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendTests:
    """Suite that a test file defines: its name, the module that workers import to build the driver, and its tier.

    pytest's ``--optest-tier`` overrides the tier.
    """

    name: str
    module: str
    tier: str


def define_backend_tests(name: str, factory: Callable[[], BackendDriver], *, tier: str = "smoke") -> None:
    """Define the tests of a backend in the calling module, as a group called ``name``.

    ``factory`` creates the driver; it is called once in every process that collects or runs tests. ``tier`` is
    ``smoke`` (one call of each operator), ``parity`` or ``full``.

    Raises:
        UsageError: if ``name`` is no identifier or the name of another suite of this file, ``tier`` does not exist,
            ``factory`` cannot be called, or the caller is not at the top level of a module.
    """
    if not name.isidentifier():
        raise UsageError(f"the name of the suite is {name!r}, expected a Python identifier such as my_backend")
    if tier not in TIER_NAMES:
        raise UsageError(f"the tier of suite {name} is {tier!r}, expected one of {', '.join(TIER_NAMES)}")
    if not callable(factory):
        raise UsageError(f"the factory of suite {name} is {factory!r}, expected a function that returns the driver")
    frame = sys._getframe(1)
    namespace: dict[str, Any] = frame.f_globals
    if frame.f_locals is not namespace:
        raise UsageError(f"suite {name} is defined inside {frame.f_code.co_name}; define it at the top level of a file")
    if isinstance(namespace.get(name), BackendTests):
        raise UsageError(f"this file defines two suites called {name}; give them different names")

    def create_driver() -> BackendDriver:
        try:
            with Border(f"the factory of suite {name}", Reason.BAD_CASE, let_through=lambda: True):
                return factory()
        except Fault as fault:
            raise UsageError(fault.message) from None

    backend_manager.register_factory(name, create_driver)
    namespace[name] = BackendTests(name=name, module=namespace["__name__"], tier=tier)
    namespace[_GUARD] = needs_the_plugin


def needs_the_plugin() -> None:
    """Fail, as a test in every module with a suite; the plug-in removes this test."""
    # Without the plug-in the file would have no test, and pytest would pass.
    raise AssertionError("no case was collected; add `addopts = -p optest.pytest_plugin` to pytest's ini")
