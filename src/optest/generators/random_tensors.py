"""The built-in generator: it draws each input of a case by its fill, depending only on case key and argument path."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from optest.generators import draws
from optest.generators.bounds import exact_magnitude, special_magnitude, special_rate
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
from optest.generators.given_values import CONSTANTS, GIVEN, StorageFactory
from optest.numerics import Array, numpy_dtype, view
from optest.spec import Argument, DType, Fill, Interval, Kind, TestCase
from optest.spec import dtype as dtype_called

_SPECIAL_PATH = "#special"
# Range of randint in float types without parameters.
_PLAIN_INTEGERS = (-8, 7)


class RandomTensorGenerator:
    """Generator that draws every input by its :class:`Fill`, in the layout of its spec.

    Float types: ``randn`` and ``uniform`` are rounded once, from float64 (float32 ``randn`` is drawn in float32);
    values outside the operator's domain for the input are mirrored at its border (:func:`domains.fold`).

    Integer types: without parameters values come from the whole range of the type, to detect kernels that saturate,
    lose the sign or read half of the bits. ``randn`` draws uniform numbers of bits, ``uniform`` and ``randint`` uniform
    values. With parameters the distribution is that of the parameters. Only legal values are drawn. bool: both values
    are equally likely. Complex: both components are drawn.

    ``special`` replaces elements by special values; in float inputs regardless of the domain, in integers only by legal
    ones.
    """

    def generate(self, case: TestCase, rng: object = None) -> tuple[tuple[Array, ...], None]:  # noqa: ARG002
        """Return ``(inputs, None)``; ``rng`` is ignored.

        Raises:
            UnknownName: for a fill or parameter that does not exist.
            UsageError: for wrong parameters.
            Fault: BAD_CASE if a fill cannot be drawn for its tensor, or its file does not fit.
        """
        # NumPy's generators are not used: their streams may change between versions.
        return tuple([_generate_input(case, argument) for argument in case.inputs]), None


def _generate_input(case: TestCase, argument: Argument) -> Array:
    """Return a new, writeable array with the values and layout of one input."""
    fill, spec = argument.fill, argument.spec
    check_fill(fill)
    fixed_values = GIVEN.get(fill.kind)
    if fixed_values is not None:
        return fixed_values(fill_values(fill), spec, argument.name, case)
    interval = domain_of(case).get(argument.name)
    if fill.kind == "special" and "rate" not in fill.parameters:
        rate = special_rate(case, argument)
        fill = fill if rate is None else Fill(kind=fill.kind, parameters={**fill.parameters, "rate": rate})
    # a key of a cache: the text keeps 0.0 and -0.0, 1 and True apart
    parameters = tuple([(name, value, repr(value)) for name, value in fill.parameters.items()])
    create = _storage_factory(fill.kind, parameters, spec.dtype.name, interval, _largest_magnitude(case, argument))
    if spec.strides is None and not spec.offset:
        array: Array = create(case.key, argument.path, math.prod(spec.shape)).reshape(spec.shape)
    else:
        array = view(create(case.key, argument.path, spec.storage_elements), spec)
    if fill.parameters.get("signs") and interval is None and spec.dtype.kind in (Kind.FLOAT, Kind.INT):
        _set_signs(array, case, fill_values(fill))
    return array


def _set_signs(array: Array, case: TestCase, parameters: Mapping[str, Any]) -> None:
    """Change signs in place: the slices become negative (-), positive (+) or unchanged (0) in the order of ``signs``.

    The slices extend along the dimensions that an attribute of the case names, else the last ``dims`` dimensions.
    """
    names = [attribute.name for attribute in case.descriptor.attributes if attribute.names_dimensions]
    named = case.attributes.get(names[0]) if names else tuple(range(-parameters["dims"], 0))
    along = set(named if isinstance(named, (tuple, list)) else (named,)) - {None} or set(range(array.ndim))
    slices = [1 if {axis, axis - array.ndim} & along else size for axis, size in enumerate(array.shape)]
    signs = np.resize(list(parameters["signs"]), math.prod(slices)).reshape(slices)
    is_wrong = ((signs == "-") & (array >= 0)) | ((signs == "+") & (array < 0))
    # The negative of the smallest integer does not exist; its complement does.
    np.copyto(array, ~array if array.dtype.kind == "i" else -array, where=is_wrong)


def _largest_magnitude(case: TestCase, argument: Argument) -> int:
    """Return the largest magnitude to draw if the fill does not set it; 0 if no bound is needed."""
    if argument.fill.kind == "integer-exact":
        return exact_magnitude(case, argument)
    dtype = argument.spec.dtype
    if argument.fill.kind == "special" and dtype.is_inexact:
        return special_magnitude(case, argument)
    # Draws of integers have 63 bits and a sign.
    return min(dtype.max_int, 2**63 - 1) if dtype.is_integer else 0


@lru_cache(maxsize=1024)
def _storage_factory(
    kind: str, parameters: tuple[tuple[str, Any, str], ...], dtype_name: str, interval: Interval | None, bound: int
) -> StorageFactory:
    """Return the factory of storages for a fill; ``parameters`` are (name, value, repr), ``bound`` the magnitude."""
    dtype = dtype_called(dtype_name)
    values = fill_values(Fill(kind=kind, parameters={name: value for name, value, _ in parameters}))
    if kind in CONSTANTS:
        return CONSTANTS[kind](values, dtype)
    if dtype.kind is Kind.COMPLEX:
        components = _storage_factory(kind, parameters, _COMPONENT[dtype_name], interval, bound)
        return lambda key, path, count: components(key, path, 2 * count).view(numpy_dtype(dtype))
    if kind == "special":
        base = _storage_factory(values["base"], (), dtype_name, interval, 0 if dtype.is_inexact else bound)
        special = special_values(dtype, interval, bound if dtype.is_inexact else 0)
        return lambda key, path, count: draws.sprinkled(
            base(key, path, count), Stream(key, path + _SPECIAL_PATH), special, values["rate"]
        )
    draw = _random_draw(kind, values, dtype, interval, bound)
    return lambda key, path, count: draws.drawn(draw, Stream(key, path), count)


_COMPONENT = {"complex64": "float32", "complex128": "float64"}


def _random_draw(
    kind: str, parameters: Mapping[str, Any], dtype: DType, interval: Interval | None, bound: int
) -> draws.Draw:
    """Return the draw of a random fill for a real, integer or bool type within ``interval``."""
    if dtype.kind is Kind.BOOL:
        return draws.booleans(dtype, only_true=kind == "integer-exact")
    if (
        kind == "integer-exact"
        and dtype.is_integer
        and interval is not None
        and math.isfinite(interval.low)
        and math.isfinite(interval.high)
    ):
        # A finite domain means indices: they are not summed, and 0 is legal.
        return draws.integers(dtype, integer_pieces(interval, dtype))
    if kind == "integer-exact":
        return draws.nonzero_integers(dtype, bound, legal_signs(interval, dtype))
    if dtype.is_integer:
        pieces = integer_pieces(interval, dtype)
        if kind == "randn":
            mean, std = parameters["mean"], parameters["std"]
            if mean is None and std is None:
                return draws.integers_by_bits(dtype, bound, None if interval is None else pieces)
            return draws.normal(dtype, mean, std, pieces)
        first, last = _integer_range(parameters) or (-bound if dtype.min_int else 0, bound)
        return draws.integers(dtype, integers_within(first, last, pieces))
    if kind == "randint":
        first, last = _integer_range(parameters) or _PLAIN_INTEGERS
        # The part of the interval in which a float type holds every integer.
        legal, most = interval or Interval(), 2.0**dtype.precision
        exact = Interval(low=max(legal.low, -most), high=min(legal.high, most), avoid=legal.avoid)
        return draws.integers(dtype, integers_within(first, last, real_pieces(exact, dtype)))
    if kind == "randn":
        mean, std = parameters["mean"], parameters["std"]
        limited = interval is not None or mean is not None or std is not None
        return draws.normal(dtype, mean, std, real_pieces(interval, dtype) if limited else None)
    low = -1.0 if parameters["low"] is None else float(parameters["low"])
    high = 1.0 if parameters["high"] is None else float(parameters["high"])
    limited = interval is not None or max(abs(low), abs(high)) > 1
    return draws.uniform(dtype, low, high, real_pieces(interval, dtype) if limited else None)


def _integer_range(parameters: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the first and last integer of the half-open range ``low`` to ``high``, or None if both are None."""
    low, high = parameters["low"], parameters["high"]
    if low is None and high is None:
        return None
    return math.ceil(0 if low is None else low), math.ceil(1 if high is None else high) - 1
