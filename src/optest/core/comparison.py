"""A case that was answered, beside what is expected of it: judged as it is, or with other operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from optest.backends import BackendDriver, declared_numerics
from optest.compare import Expected
from optest.compare.verdict import judge
from optest.core.border import Border
from optest.core.expected import expected_of_other_inputs
from optest.core.layers import is_composed
from optest.core.phases import REFERENCE, Clock
from optest.spec import Check, Numerics, Reason, TestCase, Verdict

Array = np.ndarray[Any, Any]
_INTERNAL = Reason.INTERNAL


class Comparison(NamedTuple):
    """The outputs of ``driver`` for these inputs, and what is ``expected`` in their place.

    Whoever calls the driver or a reference once more says so to the ``clock``; ``interrupted`` tells a real Ctrl-C.
    """

    case: TestCase
    driver: BackendDriver
    inputs: Sequence[Array]
    outputs: Sequence[Array]
    expected: Sequence[Expected]
    clock: Clock
    interrupted: Callable[[], bool] | None = None

    @property
    def numerics(self) -> Numerics:
        """What the driver declares for the case."""
        stated = declared_numerics(self.driver, self.case)
        is_wide = stated.accumulator == "float64" and is_composed(self.driver, self.case.descriptor)
        return replace(stated, accumulator=None) if is_wide else stated  # what lies between parts is rounded

    def judged(
        self,
        *,
        numerics: Numerics | None = None,
        every_measure: bool = False,
        checks: tuple[Check, ...] = (),
        draws: bool = False,
    ) -> Verdict:
        """The verdict by the rules alone; ``draws`` adds pictures of wrong outputs.

        Raises:
            Fault: INTERNAL if the comparison itself fails.
        """
        with Border("the comparison", _INTERNAL):
            return judge(
                self.case,
                self.outputs,
                self.expected,
                numerics=numerics or self.numerics,
                every_measure=every_measure,
                inputs=self.inputs,
                checks=checks,
                draws=draws,
            )

    def with_inputs(self, inputs: Sequence[Array]) -> Comparison | str:
        """The same outputs beside what the reference expects of other inputs; or why nobody knows that."""
        with self.clock.announced(REFERENCE):
            expected = expected_of_other_inputs(self.case, inputs, self.driver, self.interrupted)
        return expected if isinstance(expected, str) else self._replace(inputs=inputs, expected=expected)
