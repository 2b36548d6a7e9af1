"""Outputs of references other than plain arrays, error terms, and the built-in rules of comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from optest.spec.dtypes import DType


class Terms(NamedTuple):
    """Magnitudes of the terms t that are summed for each output element, in float64, shaped like the output.

    ``absolute`` is Σ|t|, ``squared`` is Σt², ``count`` the number of terms (one number, or one for each element).
    ``divided`` is True if the terms are quotients: correct kernels divide the sum, multiply it by the inverse, or
    divide each element, so that even whole numbers have several correct results. ``repeats`` is Σm²/Σm over terms that
    occur m times each: equal terms are rounded equally, so that their errors add up.
    """

    absolute: Any
    squared: Any
    count: Any
    divided: bool = False
    repeats: Any = 1.0


class ErrorBudget(NamedTuple):
    """Allowed error of a composed operator before its final rounding, shaped like the output.

    ``worst`` is the largest error in multiples of the unit roundoff of the arithmetic; ``variance`` is the expected
    squared error in multiples of its square, None if it is unknown. ``of_operands`` is the additional worst and
    variance if float32 operands of a contraction are reduced in precision, in multiples of the unit roundoff of that
    precision; None without a contraction.
    """

    worst: Any
    variance: Any | None = None
    of_operands: tuple[Any, Any] | None = None


class Unrounded(NamedTuple):
    """Expected output before its rounding: float64 values, and the dtype of the output.

    For references whose outputs have another dtype than the first inexact input.
    """

    values: Any
    dtype: DType


class AsRight(NamedTuple):
    """Result of an operator's ``alternatives`` for one output, if it is more than a mask.

    ``mask`` is True for an element that differs from the reference and is equally correct. ``doubt`` is the reason why
    a pass that needs the mask is inconclusive (SUSPECT). ``uneven`` describes how random draws deviate from their
    probabilities, which no single element shows.
    """

    mask: Any
    doubt: str = ""
    uneven: str = ""


class NamedOutput(NamedTuple):
    """Expected output that the case requests in addition to the signature: a gradient.

    ``value`` is an array or :class:`Unrounded`; ``rule`` and ``terms`` replace the operator's for this output. Named
    outputs come after all others.
    """

    name: str
    value: Any
    rule: Rule | None = None
    terms: Any = None


class ReferenceNote(NamedTuple):
    """Note of a reference about its outputs, returned among them; the result of the case contains it.

    ``itself_on`` is the device on which the operator under test computed its own expected outputs: a backend that runs
    on that device is compared with itself.
    """

    text: str
    itself_on: str = ""


class RuleClass(str, Enum):
    """Kind of comparison for an operator's results if no tolerance is set."""

    # Elements are moved, not computed: bits are compared, with NaN equal to NaN.
    MOVEMENT = "movement"
    # One correct result: comparison, logic, integers, conversion.
    EXACT = "exact"
    # An elementwise function: a few units in the last place.
    ULP = "ulp"
    # A sum or contraction: bounds grow with Σ|terms|.
    ACCUMULATE = "accumulate"
    # A composition of other operators: the operator computes an error budget.
    COMPOSED = "composed"
    # Any other function: the tolerance of torch.testing for the output's dtype.
    CLOSE = "close"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Built-in rule of an operator.

    ``ulp`` is the bound in units in the last place of the arithmetic (float32 for 16- and 8-bit results), 0.5 for
    correct rounding; ``cpu_ulp`` is a tighter bound for CPUs. ``source`` names the origin of the bound, ``formula`` the
    sum of a composed budget. With ``stands`` a tolerance in a plan or a case does not override the rule. ``close`` are
    rtol and atol of the class CLOSE, in place of those of torch.testing for the dtype.
    """

    kind: RuleClass
    ulp: float = 0.5
    cpu_ulp: float | None = None
    source: str = ""
    formula: str = ""
    # For sums: one tolerance for all lengths is too narrow for long sums and too wide for short ones.
    fixed: bool = False
    close: tuple[float, float] | None = None

    def ceiling(self, processor: str | None) -> float:
        """Return the bound in ulp for a :attr:`Numerics.processor`: ``cpu_ulp`` for ``cpu``, if set, else ``ulp``."""
        return self.cpu_ulp if self.cpu_ulp is not None and processor == "cpu" else self.ulp


def undeclared_output_dtype(reference: DType, inputs: Sequence[DType]) -> DType:
    """Return the dtype of an output that neither the plan nor shape inference declares.

    It is that of the reference's output; but for float64 and complex128 it is that of the first inexact input.
    """
    # References compute in float64 regardless of the dtype of the inputs.
    if reference.name in ("float64", "complex128"):
        return next((entry for entry in inputs if entry.is_inexact), reference)
    return reference
