"""Which operands are legal, where that depends on the dtype; standard library only."""

from __future__ import annotations

from collections.abc import Mapping

from optest.operators.shapes import Attributes, Specs
from optest.spec import Interval, TensorSpec

__all__ = ["div_domain", "pow_domain", "quotient_domain"]

_DIVISOR = Interval(low=-8.0, high=8.0, avoid=0.25)


def div_domain(specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    """Divisors away from 0; a rounded quotient of integers takes any but 0."""
    return {"other": _DIVISOR} if attributes.get("rounding_mode") is None else quotient_domain(specs, attributes)


def quotient_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """An integer over 0 is an error in torch, and the smallest one over -1 is undefined in C."""
    dividend, divisor = (specs[index] if index < len(specs) else None for index in range(2))
    other = Interval(avoid=1) if _is_integer(divisor) else _DIVISOR
    if dividend is not None and _is_integer(dividend):
        return {"input": Interval(low=-dividend.dtype.max_int, high=dividend.dtype.max_int), "other": other}
    return {"other": other}


def pow_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Floats: bases above 0, whose powers float16 holds. Integers: any base, exponents from -2 to 66."""
    base, exponent = (specs[index] if index < len(specs) else None for index in range(2))
    if _is_integer(base) and _is_integer(exponent):
        return {"exponent": Interval(low=-2, high=66)}
    return {"input": Interval(low=0.0625, high=8.0), "exponent": Interval(low=-4.0, high=4.0)}


def _is_integer(spec: TensorSpec | None) -> bool:
    return spec is not None and not spec.dtype.is_inexact
