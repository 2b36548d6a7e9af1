"""Names and parameters of the fills; :mod:`.random_tensors` draws them.

Standard library only, so that reading a plan never imports NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from optest.errors import UnknownName, UsageError
from optest.spec import Fill
from optest.spec.signature import is_integer

# Default of a required parameter.
_NEEDED: Any = object()

_SIGNS: Mapping[str, tuple[str, Any]] = {"signs": ("signs", None), "dims": ("count", 1)}
# By fill and parameter: a key of `_TYPES`, and the default; a default of None depends on the element type.
_PARAMETERS: Mapping[str, Mapping[str, tuple[str, Any]]] = {
    "randn": {"mean": ("number", None), "std": ("positive number", None), **_SIGNS},
    "uniform": {"low": ("number", None), "high": ("number", None), **_SIGNS},
    "randint": {"low": ("integer", None), "high": ("integer", None)},
    "integer-exact": {"terms": ("size", None), "operands": ("count", 2)},
    "ones": {},
    "zeros": {},
    "full": {"value": ("scalar", _NEEDED)},
    "arange": {"start": ("number", 0), "step": ("number", 1)},
    "eye": {},
    "special": {"rate": ("share", 0.25), "base": ("base fill", "randn")},
    "data": {"values": ("nested list", _NEEDED)},
    "file": {"path": ("string", _NEEDED), "key": ("string", None)},
    "opinfo": {
        **dict.fromkeys(("op", "dtype", "digest"), ("string", _NEEDED)),
        **dict.fromkeys(("sample", "tensor"), ("size", _NEEDED)),
        "of": ("string", "samples"),
    },
}

# Names that `generator:` and `--generator` accept in addition to import paths.
FILLS: tuple[str, ...] = tuple(_PARAMETERS)

_BASES = ("randn", "uniform", "randint")


def _is_number(value: Any) -> bool:
    return is_integer(value) or (isinstance(value, float) and math.isfinite(value))


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
    "integer": ("an integer", is_integer),
    "count": ("an integer of 1 or more", lambda value: is_integer(value) and value >= 1),
    "size": ("an integer of 0 or more", lambda value: is_integer(value) and value >= 0),
    "share": ("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1),
    "scalar": ("a number, or one as a string such as 'nan' or '1+2j'", _is_scalar),
    "signs": ("some of -, + and 0", lambda text: isinstance(text, str) and text != "" and set(text) <= set("-+0")),
    "base fill": (f"one of {', '.join(_BASES)}", lambda value: value in _BASES),
    "nested list": (
        "a list of numbers, nested like the shape",
        lambda value: _is_scalar(value) or isinstance(value, (list, tuple)),
    ),
    "string": ("a string", lambda value: isinstance(value, str) and bool(value)),
}


# Names of fills in NumPy, torch and other libraries.
_OTHER_NAMES = {"normal": "randn", "gaussian": "randn", "rand": "uniform", "random": "uniform", "integers": "randint"}


def check_fill(fill: Fill) -> None:
    """Check that the fill exists and that its parameters are complete, of the right type and in range.

    Raises:
        UnknownName: for a fill or a parameter that does not exist.
        UsageError: for a parameter that is missing or of the wrong type, and for an empty range.
    """
    declared = _PARAMETERS.get(fill.kind)
    if declared is None:
        raise UnknownName("generator", fill.kind, FILLS, meant=_OTHER_NAMES.get(fill.kind.casefold()))
    for name, value in fill.parameters.items():
        if name not in declared:
            raise UnknownName(f"parameter of generator {fill.kind}", name, declared)
        type_, default = declared[name]
        words, accepts = _TYPES[type_]
        if not (accepts(value) or (value is None and default is None)):
            raise UsageError(f"{name} of generator {fill.kind} is {value!r}, expected {words}")
    missing = [name for name, (_, default) in declared.items() if default is _NEEDED and name not in fill.parameters]
    if missing:
        raise UsageError(f"generator {fill.kind} needs the parameter {missing[0]}")
    if fill.kind not in _RANGES:
        return
    low, high = fill.parameters.get("low"), fill.parameters.get("high")
    if fill.kind == "randint" and low is not None and high is None:
        raise UsageError(f"generator randint has low={low} but no high; set both, or only high to start at 0")
    start, end = (
        default if value is None else value for value, default in zip((low, high), _RANGES[fill.kind], strict=True)
    )
    if start >= end:
        raise UsageError(f"low of generator {fill.kind} is {start}, expected a number below high, which is {end}")


# Defaults of low and high if only one of them is set.
_RANGES: Mapping[str, tuple[float, float]] = {"uniform": (-1, 1), "randint": (0, math.inf)}


def fill_values(fill: Fill) -> dict[str, Any]:
    """Return all parameters of a checked fill with their values or defaults."""
    return {name: default for name, (_, default) in _PARAMETERS[fill.kind].items()} | dict(fill.parameters)


def parameters_of(name: str) -> list[str]:
    """Describe each parameter of the fill ``name``: ``terms: an integer``, then ``[default]`` or ``(needed)``."""
    # A default of None depends on the element type and is not shown.
    endings = {_NEEDED: " (needed)", None: ""}
    return [
        f"{parameter}: {_TYPES[type_][0]}{endings.get(default, f' [{default}]')}"
        for parameter, (type_, default) in _PARAMETERS[name].items()
    ]
