"""A case with its actual and expected outputs: compared as it is, or for other inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from optest.backends import BackendDriver, declared_numerics
from optest.compare import Expected
from optest.compare.verdict import compare_outputs
from optest.core.border import Border
from optest.core.expected import expected_of_other_inputs
from optest.core.layers import is_composed
from optest.core.phases import REFERENCE, Clock
from optest.numerics import Array
from optest.spec import Check, Numerics, Reason, TestCase, Verdict

_INTERNAL = Reason.INTERNAL


class Comparison(NamedTuple):
    """Actual outputs of ``driver`` for a case, and the ``expected`` ones.

    Further calls of the driver or a reference are announced to the ``clock``; ``interrupted`` returns whether the user
    pressed Ctrl-C.
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
        """Numerics that the driver declares for the case."""
        declared = declared_numerics(self.driver, self.case)
        is_wide = declared.accumulator == "float64" and is_composed(self.driver, self.case.descriptor)
        # The parts of a layer round their results to the dtype of the case, whatever accumulates them.
        return replace(declared, accumulator=None) if is_wide else declared

    def verdict(
        self,
        *,
        numerics: Numerics | None = None,
        every_measure: bool = False,
        checks: tuple[Check, ...] = (),
        draws: bool = False,
    ) -> Verdict:
        """Return the verdict by the tolerance rules only; ``draws`` adds pictures of wrong outputs.

        Raises:
            Fault: INTERNAL if the comparison itself fails.
        """
        with Border("the comparison", _INTERNAL):
            return compare_outputs(
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
        """Return the same outputs with the reference's expected outputs for other inputs, or why these are unknown."""
        with self.clock.announced(REFERENCE):
            expected = expected_of_other_inputs(self.case, inputs, self.driver, self.interrupted)
        return expected if isinstance(expected, str) else self._replace(inputs=inputs, expected=expected)
