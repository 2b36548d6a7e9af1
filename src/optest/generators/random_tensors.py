"""The built-in generator: each input of a case by its fill, as a function of (case key, argument path) alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from optest.generators import draws
from optest.generators.bounds import exact_magnitude, special_magnitude, special_rate
from optest.generators.constants import CONSTANTS
from optest.generators.counter import Stream
from optest.generators.domains import (
    domain_of,
    integer_pieces,
    integers_within,
    legal_signs,
    real_pieces,
    special_values,
)
from optest.generators.fills import check_fill, fill_values
from optest.generators.given_values import GIVEN
from optest.numerics import Array, numpy_dtype, view
from optest.spec import Argument, DType, Fill, Interval, Kind, TestCase
from optest.spec import dtype as dtype_called

Maker = Callable[[str, str, int], Array]
"""(case key, argument path, number of elements) to a new storage."""

_SPECIAL_PATH = "#special"
_PLAIN_INTEGERS = (-8, 7)
"""What randint draws into float types unless told otherwise."""


class RandomTensorGenerator:
    """Draws every input by its :class:`Fill`, into its storage, and views it as the spec says.

    Float types: ``randn`` and ``uniform`` are rounded once, from float64 (float32 ``randn`` is drawn in float32);
    what lies outside the operator's domain for the input is mirrored at its border (:func:`domains.fold`).

    Integer types: without parameters the whole range of the type is drawn from, since integer results wrap: a kernel
    that saturates, loses the sign or reads half of the bits is found. ``randn`` spreads magnitudes evenly over the
    number of bits, ``uniform`` and ``randint`` over the range. Stated parameters mean what they say. Only legal values
    are drawn. bool: both values evenly. Complex: both components are drawn.

    ``special`` sprinkles values that float operators are asked about whatever their domain; into integers only
    legal ones.
    """

    def generate(self, case: TestCase, rng: object = None) -> tuple[tuple[Array, ...], None]:  # noqa: ARG002
        """Return ``(inputs, None)``; ``rng`` is not used: NumPy's streams may change between versions.

        Raises:
            UnknownName, UsageError: for a fill that does not exist or has wrong parameters.
            Fault: BAD_CASE if it cannot be drawn for this tensor, or its file does not fit.
        """
        return tuple([_input(case, argument) for argument in case.inputs]), None


def _input(case: TestCase, argument: Argument) -> Array:
    """New and writeable."""
    fill, spec = argument.fill, argument.spec
    check_fill(fill)
    given = GIVEN.get(fill.kind)
    if given is not None:
        return given(fill_values(fill), spec, argument.name, case)
    interval = domain_of(case).get(argument.name)
    if fill.kind == "special" and "rate" not in fill.parameters:
        rate = special_rate(case, argument)
        fill = fill if rate is None else Fill(kind=fill.kind, parameters={**fill.parameters, "rate": rate})
    # a key of a cache: the text keeps 0.0 and -0.0, 1 and True apart
    parameters = tuple([(name, value, repr(value)) for name, value in fill.parameters.items()])
    make = _maker(fill.kind, parameters, spec.dtype.name, interval, _bound(case, argument))
    if spec.strides is None and not spec.offset:
        made: Array = make(case.key, argument.path, math.prod(spec.shape)).reshape(spec.shape)
    else:
        made = view(make(case.key, argument.path, spec.storage_elements), spec)
    if fill.parameters.get("signs") and interval is None and spec.dtype.kind in (Kind.FLOAT, Kind.INT):
        # Slices take turns: negative (-), positive (+) or as they are (0). They lie along the dimensions that an
        # attribute of the case names, else the last ``dims``.
        stated = fill_values(fill)
        names = [each.name for each in case.descriptor.attributes if each.names_dimensions]
        named = case.attributes.get(names[0]) if names else tuple(range(-stated["dims"], 0))
        along = set(named if isinstance(named, (tuple, list)) else (named,)) - {None} or set(range(made.ndim))
        slices = [1 if {axis, axis - made.ndim} & along else size for axis, size in enumerate(made.shape)]
        signs = np.resize(list(stated["signs"]), math.prod(slices)).reshape(slices)
        is_other = ((signs == "-") & (made >= 0)) | ((signs == "+") & (made < 0))
        np.copyto(made, ~made if made.dtype.kind == "i" else -made, where=is_other)  # integers have no -minimum
    return made


def _bound(case: TestCase, argument: Argument) -> int:
    """The largest magnitude to draw where the fill leaves it open; 0 where nothing needs to be known."""
    if argument.fill.kind == "integer-exact":
        return exact_magnitude(case, argument)
    dtype = argument.spec.dtype
    if argument.fill.kind == "special" and dtype.is_inexact:
        return special_magnitude(case, argument)
    return min(dtype.max_int, 2**63 - 1) if dtype.is_integer else 0  # draws of integers have 63 bits and a sign


@lru_cache(maxsize=1024)
def _maker(
    kind: str, parameters: tuple[tuple[str, Any, str], ...], dtype_name: str, interval: Interval | None, bound: int
) -> Maker:
    dtype = dtype_called(dtype_name)
    stated = fill_values(Fill(kind=kind, parameters={name: value for name, value, _ in parameters}))
    if kind in CONSTANTS:
        return CONSTANTS[kind](stated, dtype)
    if dtype.kind is Kind.COMPLEX:
        components = _maker(kind, parameters, _COMPONENT[dtype_name], interval, bound)
        return lambda key, path, count: components(key, path, 2 * count).view(numpy_dtype(dtype))
    if kind == "special":
        base = _maker(stated["base"], (), dtype_name, interval, 0 if dtype.is_inexact else bound)
        values = special_values(dtype, interval, bound if dtype.is_inexact else 0)
        return lambda key, path, count: draws.sprinkled(
            base(key, path, count), Stream(key, path + _SPECIAL_PATH), values, stated["rate"]
        )
    draw = _draw(kind, stated, dtype, interval, bound)
    return lambda key, path, count: draws.drawn(draw, Stream(key, path), count)


_COMPONENT = {"complex64": "float32", "complex128": "float64"}


def _draw(kind: str, stated: Mapping[str, Any], dtype: DType, interval: Interval | None, bound: int) -> draws.Draw:
    if dtype.kind is Kind.BOOL:
        return draws.booleans(dtype, only_true=kind == "integer-exact")
    if (
        kind == "integer-exact"
        and dtype.is_integer
        and interval is not None
        and math.isfinite(interval.low)
        and math.isfinite(interval.high)
    ):
        return draws.integers(dtype, integer_pieces(interval, dtype))  # indices are no terms, and 0 is one of them
    if kind == "integer-exact":
        return draws.nonzero_integers(dtype, bound, legal_signs(interval, dtype))
    if dtype.is_integer:
        pieces = integer_pieces(interval, dtype)
        if kind == "randn":
            mean, std = stated["mean"], stated["std"]
            if mean is None and std is None:
                return draws.integers_by_bits(dtype, bound, None if interval is None else pieces)
            return draws.normal(dtype, mean, std, pieces)
        first, last = _stated_integers(stated) or (-bound if dtype.min_int else 0, bound)
        return draws.integers(dtype, integers_within(first, last, pieces))
    if kind == "randint":
        first, last = _stated_integers(stated) or _PLAIN_INTEGERS
        return draws.integers(dtype, integers_within(first, last, real_pieces(_whole_numbers(interval, dtype), dtype)))
    if kind == "randn":
        mean, std = stated["mean"], stated["std"]
        limited = interval is not None or mean is not None or std is not None
        return draws.normal(dtype, mean, std, real_pieces(interval, dtype) if limited else None)
    low = -1.0 if stated["low"] is None else float(stated["low"])
    high = 1.0 if stated["high"] is None else float(stated["high"])
    limited = interval is not None or max(abs(low), abs(high)) > 1
    return draws.uniform(dtype, low, high, real_pieces(interval, dtype) if limited else None)


def _whole_numbers(interval: Interval | None, dtype: DType) -> Interval:
    """The part of ``interval`` in which a float type holds every integer."""
    stated, most = interval or Interval(), 2.0**dtype.precision
    return Interval(low=max(stated.low, -most), high=min(stated.high, most), avoid=stated.avoid)


def _stated_integers(stated: Mapping[str, Any]) -> tuple[int, int] | None:
    """The first and last integer of the stated half-open range, None if none is stated."""
    low, high = stated["low"], stated["high"]
    if low is None and high is None:
        return None
    return math.ceil(0 if low is None else low), math.ceil(1 if high is None else high) - 1
