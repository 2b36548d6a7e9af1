"""The suite of all operators in a backend's own repository: one line in a test file of pytest.

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

TIER_NAMES = tuple(each.value for each in TIERS)
_GUARD = "test_that_pytest_has_loaded_the_plug_in_of_optest"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendTests:
    """What a test file defines: the name of the group, the module that a worker imports to make the same driver, and
    the tier that is asked unless pytest's ``--optest-tier`` names another."""

    name: str
    module: str
    tier: str


def define_backend_tests(name: str, factory: Callable[[], BackendDriver], *, tier: str = "smoke") -> None:
    """Define the tests of a backend in the calling module, as a group called ``name``.

    ``factory`` makes the driver; it is called once in every process that collects or runs tests. ``tier`` is ``smoke``
    (one call of each operator), ``parity`` or ``full``.

    Raises:
        UsageError: for a name that is no identifier, another tier, something that cannot be called, and inside a
            function.
    """
    if not name.isidentifier():
        raise UsageError(f"the suite is called {name!r}, but should have the name of a variable, such as my_backend")
    if tier not in TIER_NAMES:
        raise UsageError(f"the tier of suite {name} is {tier!r}, but should be {', '.join(TIER_NAMES)}")
    if not callable(factory):
        raise UsageError(f"the factory of suite {name} is {factory!r}, but should be a function that makes the driver")
    frame = sys._getframe(1)
    namespace: dict[str, Any] = frame.f_globals
    if frame.f_locals is not namespace:
        raise UsageError(f"suite {name} is defined inside {frame.f_code.co_name}, where pytest finds no test of it")
    if isinstance(namespace.get(name), BackendTests):
        raise UsageError(f"this file defines two suites called {name}; give them different names")

    def make() -> BackendDriver:
        try:
            with Border(f"the factory of suite {name}", Reason.BAD_CASE, let_through=lambda: True):
                return factory()
        except Fault as fault:
            raise UsageError(fault.message) from None

    backend_manager.register_factory(name, make)
    namespace[name] = BackendTests(name=name, module=namespace["__name__"], tier=tier)
    namespace[_GUARD] = needs_the_plugin


def needs_the_plugin() -> None:
    """A test of modules with suites, which the plug-in takes out: without it they would pass with no test at all."""
    raise AssertionError("no case was collected; add `addopts = -p optest.pytest_plugin` to pytest's ini")
