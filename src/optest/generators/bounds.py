"""Bounds for random values, so that sums of an operator stay exact or finite."""

from __future__ import annotations

from optest.generators.domains import input_specs
from optest.generators.fills import fill_values
from optest.registry import load_object
from optest.spec import Argument, Fault, Kind, Reason, RuleClass, TestCase

_SUMS = (RuleClass.ACCUMULATE, RuleClass.COMPOSED)


def exact_magnitude(case: TestCase, argument: Argument) -> int:
    """Return the largest integer for which sums of ``terms`` products of ``operands`` factors are exact in any order.

    ``terms`` and ``operands`` are parameters of the fill; without ``terms`` the number of elements is taken. The sum
    of all magnitudes, with one more term for a bias, stays within the exact integers of the accumulator (2**24 in
    float32, 2**53 for float64 inputs) and finite in the output dtype; but the result is at least 1. The argument's
    dtype holds the integer exactly.

    Raises:
        Fault: BAD_CASE if the fill sets so many terms that the sum is not exact even with factors of 1.
    """
    parameters = fill_values(argument.fill)
    dtype = argument.spec.dtype
    # Up to here the accumulator holds every integer.
    exact = max(dtype.max_int, 2**31 - 1) if not dtype.is_inexact else 2**53 if dtype.precision == 53 else 2**24
    terms = argument.spec.elements if parameters["terms"] is None else parameters["terms"]
    parts = 2 if dtype.is_complex else 1
    if parameters["terms"] is not None and terms * parts > exact:
        raise Fault(
            Reason.BAD_CASE,
            f"{argument.name} is filled with integer-exact for {terms} terms, expected at most {exact // parts} "
            f"for {dtype}; use randn or uniform",
        )
    results = [spec.dtype for spec in case.outputs if spec.dtype.kind is not Kind.BOOL] or [dtype]
    limit = min(exact, *(int(x.max_finite) if x.is_inexact else x.max_int for x in results))
    operands = argument.fill.parameters.get("operands") or _factor_count(case)
    # Up to here a type holds every integer; draws of magnitudes take 31 bits.
    largest = min(2**dtype.precision if dtype.is_inexact else dtype.max_int, 2**31 - 1)
    # The largest integer whose power of ``operands`` is not above ``product``.
    product = limit // (parts * (terms + 1))
    # The float root may be off by one.
    root: int = round(product ** (1 / operands))
    while root**operands > product:
        root -= 1
    while (root + 1) ** operands <= product:
        root += 1
    return max(1, min(root, largest))


def _factor_count(case: TestCase) -> int:
    """Return the number of factors of a product: 2, or the number of operands of a variadic contraction (einsum)."""
    signature = case.descriptor.tensors
    return max(2, len(case.inputs)) if signature.is_variadic and case.descriptor.category == "contraction" else 2


def special_rate(case: TestCase, argument: Argument) -> float | None:
    """Return the share of special values for an input that is summed: about one in each sum, at most 0.25.

    Return None for operators that do not sum, and integers: the fill's default applies.
    """
    # At the default rate every sum would be NaN, and a wrong kernel would pass.
    rule = case.descriptor.rule
    if rule is None or rule.kind not in _SUMS or not argument.spec.dtype.is_inexact:
        return None
    return min(0.25, 1.0 / _longest_sum_of(case, argument))


def _longest_sum_of(case: TestCase, argument: Argument) -> int:
    """Return the number of terms of the longest sum: by the operator's ``sum_length``, else an upper bound."""
    hook = case.descriptor.sum_length
    if hook is not None:
        length: int = load_object(hook)(input_specs(case), case.attributes)
        return max(length, 1)
    results = sum(spec.elements for spec in case.outputs)
    return max(*argument.spec.shape, argument.spec.elements // max(results, 1), 1)


def special_magnitude(case: TestCase, argument: Argument) -> int:
    """Return the largest finite special value of a float input for which no partial sum of products overflows.

    Return 0 if every value of the type is allowed: for operators that do not sum, and integers.
    """
    # After an overflow infinity, NaN and the finite sum would all be correct, depending on the order of summation.
    rule, dtype = case.descriptor.rule, argument.spec.dtype
    if rule is None or rule.kind not in _SUMS or not dtype.is_inexact:
        return 0
    # In float64 the exponent range is halved: the error terms square the products.
    top = 511 if dtype.precision == 53 else 127
    largest = int(2 ** ((top - 2 - argument.spec.elements.bit_length()) // _factor_count(case)))
    return largest if largest < dtype.max_finite else 0
