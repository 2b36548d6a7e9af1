"""What a backend made of a case: outputs or a fault, what was looked at beside them, and further answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from optest.backends import BackendDriver, FurtherAnswer
from optest.backends.abilities import GivesFurtherAnswers
from optest.core.actual import actual_outputs
from optest.core.border import Border
from optest.spec import Check, CheckState, Fault, Reason, TensorSpec, TestCase

__all__ = ["BackendAnswer", "ask_backend", "further_answers"]

Array = np.ndarray[Any, Any]


class BackendAnswer(NamedTuple):
    """What the backend made of a case, or its fault, with what else was looked at."""

    outputs: Sequence[Array]
    checks: tuple[Check, ...]
    fault: Fault | None = None
    further: Sequence[FurtherAnswer] | None = None
    """Other answers, where they are known; None where the driver is asked when the first has passed."""


def ask_backend(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    layouts: Sequence[tuple[str, TensorSpec]] | None,
    notes: tuple[Check, ...],
    interrupted: Callable[[], bool] | None,
) -> BackendAnswer:
    """Ask the backend; ``layouts`` are the outputs' names and specs as the reference has them, ``notes`` what is to be
    said of the expected values."""
    try:
        outputs, checks = actual_outputs(case, driver, inputs, layouts, interrupted)
    except Fault as fault:
        return BackendAnswer((), notes + _checks_of_driver(case, driver), fault)
    further = notes + _checks_of_driver(case, driver)
    return BackendAnswer(outputs, _together(checks, further) if further else checks)


def further_answers(case: TestCase, driver: BackendDriver) -> Sequence[FurtherAnswer]:
    """Answers with other bits that the driver got while it last ran the case.

    Raises:
        Fault: RAISED if the driver fails to say.
    """
    if not isinstance(driver, GivesFurtherAnswers):
        return ()
    with Border("the backend's `further`", Reason.RAISED):
        return tuple(driver.further(case))


def _together(checks: tuple[Check, ...], further: tuple[Check, ...]) -> tuple[Check, ...]:
    """What was not possible here stands only where the driver did not see to it itself."""
    seen_to = {check.name for check in further if check.state is CheckState.DONE}
    return tuple(c for c in checks if c.state is not CheckState.NOT_POSSIBLE or c.name not in seen_to) + further


def _checks_of_driver(case: TestCase, driver: BackendDriver) -> tuple[Check, ...]:
    """What the driver itself looked at; a driver that fails to say so is not believed, but keeps its outputs."""
    try:
        with Border("the backend's `checks`", Reason.RAISED):
            return tuple(driver.checks(case))
    except Fault as fault:
        return (Check(name="the backend's own checks", state=CheckState.INCONCLUSIVE, detail=fault.message),)
