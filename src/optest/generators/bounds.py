"""How large integers may be drawn so that what the operator does with them stays exact or at least in range."""

from __future__ import annotations

from optest.generators.domains import input_specs
from optest.generators.fills import fill_values
from optest.registry import load_object
from optest.spec import Argument, DType, Fault, Kind, Reason, RuleClass, TestCase

_SUMS = (RuleClass.ACCUMULATE, RuleClass.COMPOSED)


def exact_magnitude(case: TestCase, argument: Argument) -> int:
    """The largest factor for which sums of ``terms`` products of ``operands`` factors are exact in any order.

    The sum of all magnitudes, with one more term for a bias, stays within the exact integers of the accumulator
    (2**24 in float32, 2**53 for float64 inputs) and, if that is possible without 0, finite in the result. The
    factor itself is one that its type holds exactly. Without ``terms``, one for each element of the input.

    Raises:
        Fault: BAD_CASE if so many stated terms are not exact even with factors of 1.
    """
    stated = fill_values(argument.fill)
    dtype = argument.spec.dtype
    exact = _exact_integers(dtype)
    terms = argument.spec.elements if stated["terms"] is None else stated["terms"]
    parts = 2 if dtype.is_complex else 1
    if stated["terms"] is not None and terms * parts > exact:
        raise Fault(
            Reason.BAD_CASE,
            f"{argument.name}: {terms} terms is too many for integer-exact, but should be at most {exact // parts} "
            f"for {dtype}; use randn or uniform",
        )
    results = [spec.dtype for spec in case.outputs if spec.dtype.kind is not Kind.BOOL] or [dtype]
    limit = min(exact, *(int(each.max_finite) if each.is_inexact else each.max_int for each in results))
    operands = argument.fill.parameters.get("operands") or _factors(case)
    # Up to here a type holds every integer; draws of magnitudes take 31 bits.
    largest = min(2**dtype.precision if dtype.is_inexact else dtype.max_int, 2**31 - 1)
    # The largest integer whose power of ``operands`` is not above ``product``.
    product = limit // (parts * (terms + 1))
    root: int = round(product ** (1 / operands))
    while root**operands > product:
        root -= 1
    while (root + 1) ** operands <= product:
        root += 1
    return max(1, min(root, largest))


def _factors(case: TestCase) -> int:
    """How many factors a product has: two, or one of each operand where a contraction takes any number of them."""
    signature = case.descriptor.tensors
    return max(2, len(case.inputs)) if signature.is_variadic and case.descriptor.category == "contraction" else 2


def special_rate(case: TestCase, argument: Argument) -> float | None:
    """The share of special values where an output element depends on many inputs: about one in what it adds up.

    At the rate for elementwise operators every sum would be NaN, and a wrong kernel as right as any. None where the
    fill's own rate serves.
    """
    rule = case.descriptor.rule
    if rule is None or rule.kind not in _SUMS or not argument.spec.dtype.is_inexact:
        return None
    return min(0.25, 1.0 / _terms_of(case, argument))


def _terms_of(case: TestCase, argument: Argument) -> int:
    """The longest sum that an output element is: what the operator says, else the longest there can be."""
    hook = case.descriptor.sum_length
    if hook is not None:
        length: int = load_object(hook)(input_specs(case), case.attributes)
        return max(length, 1)
    results = sum(spec.elements for spec in case.outputs)
    return max(*argument.spec.shape, argument.spec.elements // max(results, 1), 1)


def special_magnitude(case: TestCase, argument: Argument) -> int:
    """The largest finite special value of a sum's float input: no sum of products of all operands overflows on its way.

    Where it could, infinity, NaN and the finite sum would all be right, depending on the order of summation. 0 where
    every value of the type serves.
    """
    rule, dtype = case.descriptor.rule, argument.spec.dtype
    if rule is None or rule.kind not in _SUMS or not dtype.is_inexact:
        return 0
    top = 511 if dtype.precision == 53 else 127  # float64 error terms square once more
    largest = int(2 ** ((top - 2 - argument.spec.elements.bit_length()) // _factors(case)))
    return largest if largest < dtype.max_finite else 0


def _exact_integers(dtype: DType) -> int:
    if dtype.is_inexact:
        return 2**53 if dtype.precision == 53 else 2**24
    return max(dtype.max_int, 2**31 - 1)
