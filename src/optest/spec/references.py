"""What references and their error terms yield beside plain arrays, and the rule by which a result is judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from optest.spec.dtypes import DType


class Terms(NamedTuple):
    """What each output element of a sum or contraction adds up, in float64, shaped like the output.

    ``absolute`` is Σ|t|, ``squared`` is Σt², ``count`` the number of terms (one number, or one for each element).
    ``divided`` says that the terms are quotients: right kernels divide the sum, multiply it by the inverse, or divide
    each element, so that whole numbers have no one right answer. ``repeats`` is Σm²/Σm of terms that occur m times
    each: equal terms are rounded alike, so that their errors add up.
    """

    absolute: Any
    squared: Any
    count: Any
    divided: bool = False
    repeats: Any = 1.0


class ErrorBudget(NamedTuple):
    """What a composed operator may lose before its final rounding, shaped like the output.

    ``worst`` is the largest error in multiples of the unit roundoff of the arithmetic; ``variance`` the
    expected squared error in multiples of its square, None where no statistic can be given. ``of_operands`` is what
    operands of float32 cost in worst and variance that are cut before they are multiplied in a contraction, in
    multiples of the unit roundoff to which they are cut; None where there is no contraction.
    """

    worst: Any
    variance: Any | None = None
    of_operands: tuple[Any, Any] | None = None


class Unrounded(NamedTuple):
    """An expected output before its rounding: float64 values, and the dtype that the output has.

    For references whose outputs are of other dtypes than the first inexact input.
    """

    values: Any
    dtype: DType


class AsRight(NamedTuple):
    """What an operator's ``alternatives`` may say of one output beside the bare mask.

    ``mask`` is True where an element that differs from the reference's is as right. ``doubt`` says why a pass that
    needs the mask proves little; such a pass is suspect. ``uneven`` says how draws at random do not follow
    their probabilities, which no single element shows.
    """

    mask: Any
    doubt: str = ""
    uneven: str = ""


class NamedOutput(NamedTuple):
    """An expected output that the signature does not name, because the case asks for it: a gradient.

    ``value`` is an array or :class:`Unrounded`, ``rule`` judges this output in place of the operator's, ``terms`` are
    its own. Named outputs stand behind all others.
    """

    name: str
    value: Any
    rule: Rule | None = None
    terms: Any = None


class ReferenceNote(NamedTuple):
    """What a reference has to say about what it expects, among its outputs; it stands in the record of the case.

    ``itself_on`` is the device on which the operator under test was its own reference: a backend that answers from
    there is compared with itself.
    """

    text: str
    itself_on: str = ""


class RuleClass(str, Enum):
    """How results of an operator are judged when the user states no tolerance."""

    MOVEMENT = "movement"
    """Elements move and never change: bits are compared, with NaN equal to NaN."""
    EXACT = "exact"
    """One right answer: comparison, logic, integers, conversion."""
    ULP = "ulp"
    """An elementwise function: a few units in the last place."""
    ACCUMULATE = "accumulate"
    """A sum or contraction: bounds that grow with Σ|terms|."""
    COMPOSED = "composed"
    """Built from the others: the operator states its own error budget."""
    CLOSE = "close"
    """A function of which nothing else is known: the tolerance that torch.testing has for the output's dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The built-in rule of an operator.

    ``ulp`` is the ceiling in units in the last place of the arithmetic (float32 for 16- and 8-bit results),
    where 0.5 means correctly rounded; ``cpu_ulp`` is a sharper one, for what runs on a CPU. ``source`` says where the
    ceiling comes from, ``formula`` what a composed budget adds up. ``stands`` keeps it where a plan or a case states a
    tolerance: one number for all lengths of a sum is too narrow for the long ones and too wide for the short.
    ``close`` are rtol and atol of the class CLOSE, in place of those that torch.testing has for the dtype.
    """

    kind: RuleClass
    ulp: float = 0.5
    cpu_ulp: float | None = None
    source: str = ""
    formula: str = ""
    stands: bool = False
    close: tuple[float, float] | None = None

    def ceiling(self, processor: str | None) -> float:
        """The ceiling for a :attr:`Numerics.processor`."""
        return self.cpu_ulp if self.cpu_ulp is not None and processor == "cpu" else self.ulp


def undeclared_output_dtype(reference: DType, inputs: Sequence[DType]) -> DType:
    """The dtype of an output that neither plan nor inference declares.

    A reference that yields float64 stands for the dtype of the first inexact input; any other dtype stands for itself.
    """
    if reference.name in ("float64", "complex128"):
        return next((entry for entry in inputs if entry.is_inexact), reference)
    return reference
