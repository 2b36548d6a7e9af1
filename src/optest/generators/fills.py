"""The fills that a plan can name, with their parameters as data; what they draw is in :mod:`.random_tensors`.

Standard library only, so that reading a plan never imports NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from optest.errors import UnknownName, UsageError
from optest.spec import Fill

__all__ = ["FILLS", "FILL_KINDS", "NEEDED", "FillKind", "FillParameter", "check_fill", "fill_values"]


class _Needed:
    def __repr__(self) -> str:
        return "NEEDED"


NEEDED: Any = _Needed()
"""The default of a parameter that has to be stated."""


class FillParameter(NamedTuple):
    """One parameter: ``type`` is a key of :data:`_TYPES`; a default of None depends on the element type."""

    name: str
    type: str
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FillKind:
    name: str
    description: str
    parameters: tuple[FillParameter, ...] = ()


FILL_KINDS: Mapping[str, FillKind] = {
    kind.name: kind
    for kind in (
        FillKind(
            name="randn",
            description="normal; integers without mean and std: magnitudes spread evenly over the number of bits",
            parameters=(FillParameter("mean", "number"), FillParameter("std", "positive number")),
        ),
        FillKind(
            name="uniform",
            description="evenly from low to high; integers without either: evenly over a range that adds safely",
            parameters=(FillParameter("low", "number"), FillParameter("high", "number")),
        ),
        FillKind(
            name="randint",
            description="integers from low up to, but without, high",
            parameters=(FillParameter("low", "integer"), FillParameter("high", "integer")),
        ),
        FillKind(
            name="integer-exact",
            description="integers without 0 whose sums of products are exact in any order",
            parameters=(FillParameter("terms", "size"), FillParameter("operands", "count", 2)),
        ),
        FillKind(name="ones", description="1, or True"),
        FillKind(name="zeros", description="0, or False"),
        FillKind(
            name="full",
            description="one value everywhere",
            parameters=(FillParameter("value", "scalar", NEEDED),),
        ),
        FillKind(
            name="arange",
            description="start, start + step, …; starts again where the next value would not be exact",
            parameters=(FillParameter("start", "number", 0), FillParameter("step", "number", 1)),
        ),
        FillKind(name="eye", description="1 on the diagonal of a matrix, 0 elsewhere"),
        FillKind(
            name="special",
            description="NaN, infinities, zeros, subnormal, smallest, largest, powers of two, mixed into another fill",
            parameters=(FillParameter("rate", "share", 0.25), FillParameter("base", "base fill", "randn")),
        ),
        FillKind(
            name="data",
            description="the values as they are written, nested like the shape",
            parameters=(FillParameter("values", "nested list", NEEDED),),
        ),
        FillKind(
            name="file",
            description="read from .npy, .npz, .bin (raw, little-endian), .pt (weights only) or .safetensors",
            parameters=(FillParameter("path", "string", NEEDED), FillParameter("key", "string")),
        ),
        FillKind(
            name="opinfo",
            description="a tensor of a sample in torch's own OpInfo database, made again from its seed; "
            "`of: errors` is one of those that have to be refused",
            parameters=(
                FillParameter("op", "string", NEEDED),
                FillParameter("dtype", "string", NEEDED),
                FillParameter("sample", "size", NEEDED),
                FillParameter("tensor", "size", NEEDED),
                FillParameter("digest", "string", NEEDED),
                FillParameter("of", "string", "samples"),
            ),
        ),
    )
}
"""Every fill by name."""

FILLS: tuple[str, ...] = tuple(FILL_KINDS)
"""Names that ``generator:`` and ``--generator`` take beside a dotted path."""

_BASES = ("randn", "uniform", "randint")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_integer(value) or (isinstance(value, float) and math.isfinite(value))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) or (isinstance(value, str) and _reads_as_number(value))


def _reads_as_number(text: str) -> bool:
    try:
        complex(text)
    except ValueError:
        return False
    return True


_TYPES = {
    "number": ("a finite number", _is_number),
    "positive number": ("a finite number above 0", lambda value: _is_number(value) and value > 0),
    "integer": ("an integer", _is_integer),
    "count": ("an integer of 1 or more", lambda value: _is_integer(value) and value >= 1),
    "size": ("an integer of 0 or more", lambda value: _is_integer(value) and value >= 0),
    "share": ("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1),
    "scalar": ("a number, or one as a string such as 'nan' or '1+2j'", _is_scalar),
    "base fill": (f"one of {', '.join(_BASES)}", lambda value: value in _BASES),
    "nested list": ("a list of numbers, nested like the shape", lambda value: _is_scalar(value) or _is_list(value)),
    "string": ("a string", lambda value: isinstance(value, str) and bool(value)),
}


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


_OTHER_NAMES = {"normal": "randn", "gaussian": "randn", "rand": "uniform", "random": "uniform", "integers": "randint"}
"""What fills are called in NumPy, torch and elsewhere."""


def check_fill(fill: Fill) -> None:
    """Refuse a fill that could not be drawn for any tensor.

    Raises:
        UnknownName: for a fill or a parameter that does not exist.
        UsageError: for a parameter that is missing or of the wrong type, and for an empty range.
    """
    kind = FILL_KINDS.get(fill.kind)
    if kind is None:
        raise UnknownName("generator", fill.kind, FILLS, meant=_OTHER_NAMES.get(fill.kind.casefold()))
    declared = {parameter.name: parameter for parameter in kind.parameters}
    for name, value in fill.parameters.items():
        if name not in declared:
            raise UnknownName(f"parameter of generator {kind.name}", name, declared)
        words, accepts = _TYPES[declared[name].type]
        if not (accepts(value) or (value is None and declared[name].default is None)):
            raise UsageError(f"{name} of generator {kind.name} is {value!r}, but should be {words}")
    missing = [name for name, each in declared.items() if each.default is NEEDED and name not in fill.parameters]
    if missing:
        raise UsageError(f"generator {kind.name} has no {missing[0]}, but needs one")
    _check_range(fill)


def _check_range(fill: Fill) -> None:
    if fill.kind not in _RANGES:
        return
    low, high = fill.parameters.get("low"), fill.parameters.get("high")
    if fill.kind == "randint" and low is not None and high is None:
        raise UsageError(f"generator randint has low={low} but no high; state both, or high alone to start at 0")
    start, end = (
        default if stated is None else stated for stated, default in zip((low, high), _RANGES[fill.kind], strict=True)
    )
    if start >= end:
        raise UsageError(f"low of generator {fill.kind} is {start}, but should be below high, which is {end}")


_RANGES: Mapping[str, tuple[float, float]] = {"uniform": (-1, 1), "randint": (0, math.inf)}
"""What low and high are where only one of them is stated."""


def fill_values(fill: Fill) -> dict[str, Any]:
    """Every parameter of a checked fill with its value, defaults included."""
    values = {parameter.name: parameter.default for parameter in FILL_KINDS[fill.kind].parameters}
    values.update(fill.parameters)
    return values
