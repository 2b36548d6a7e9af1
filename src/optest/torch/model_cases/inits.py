"""Translation of ``init`` and ``init_args`` of a model case to the generator of a plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from optest.errors import did_you_mean
from optest.plan.values import Misfit, shown
from optest.spec import DType, Kind, format_shape

_ARGS = ("init_args",)
# A plan's randint without bounds draws from a range that suits the dtype; of bool both values.
_RANDINT = "randint"


class Init(NamedTuple):
    """An init: the function that builds the generator of a plan, its arguments, and an example of them."""

    make: Callable[[Any, DType, Sequence[int]], Any]
    takes: tuple[str, ...] = ()
    example: str = ""


def fill_of(entry: Mapping[str, Any], dtype: DType, shape: Sequence[int]) -> Any:
    """Return the generator of a plan for ``init`` and ``init_args``; the default is rand.

    Raises:
        Misfit: for an unknown init, or arguments that it does not take.
    """
    name, given = entry.get("init", "rand"), entry.get("init_args")
    init = INITS.get(name)
    if init is None:
        message = f"init is {name!r}, expected one of {', '.join(INITS)}"
        raise Misfit(message, path=("init",), hint=did_you_mean(name, INITS))
    try:
        return init.make(given if name == "data" else _taken(given, init), dtype, shape)
    except Misfit as misfit:
        misfit.hint = misfit.hint or init.example
        raise


def _taken(given: Any, init: Init) -> dict[str, Any]:
    """Return the arguments of an init without those that are null; raise Misfit for unknown ones."""
    if given is not None and not isinstance(given, dict):
        hint = init.example or "remove init_args"
        raise Misfit(f"init_args is {shown(given)}, expected a mapping", path=_ARGS, hint=hint)
    stated = given or {}
    strange = next((name for name in stated if name not in init.takes), None)
    if strange is not None:
        takes = f"takes {', '.join(init.takes)}" if init.takes else "takes none"
        hint = did_you_mean(strange, init.takes, f"remove {strange}")
        raise Misfit(f"init_args has {strange!r}, but this init {takes}", path=(*_ARGS, strange), hint=hint)
    return {name: value for name, value in stated.items() if value is not None}


def _number(stated: Mapping[str, Any], name: str, default: float) -> float:
    """Return a finite number among the arguments, ``default`` if it is not set; raise Misfit for anything else."""
    value = stated.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _TOO_LARGE:
        is_quoted = isinstance(value, str) and _reads_as_number(value)
        hint = "write it without quotes" if is_quoted else f"for example init_args: {{{name}: {default:g}}}"
        raise Misfit(f"{name} is {shown(value)}, expected a finite number", path=(*_ARGS, name), hint=hint)
    return value


# Python integers are unbounded; NaN fails the comparison, too.
_TOO_LARGE = 2**1023


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _range(stated: Mapping[str, Any], low: float, high: float | None) -> tuple[float, float]:
    """Return low and high of ``stated``; ``low`` and ``high`` are the defaults.

    Raises:
        Misfit: if high is missing or not above low.
    """
    start = _number(stated, "low", low)
    if "high" not in stated and high is None:
        raise Misfit("init_args has low but no high", path=_ARGS)
    end = _number(stated, "high", 0 if high is None else high)
    if start >= end:
        message = f"low is {shown(start)}, expected below high, which is {shown(end)}"
        raise Misfit(message, path=_ARGS, hint="high is excluded from the range")
    return start, end


def _integer_range(low: float, high: float, dtype: DType) -> dict[str, Any]:
    """Return the generator of integers from low up to high, exclusive, with at least one value."""
    start = math.ceil(low)
    end = max(math.ceil(high), start + 1)
    if dtype.is_integer and not (dtype.min_int <= start and end - 1 <= dtype.max_int):
        message = f"the range is {start} to {end - 1}, expected within {dtype}, {dtype.min_int} to "
        raise Misfit(f"{message}{dtype.max_int}", path=_ARGS, hint=_WIDER)
    return {"fill": "randint", "low": start, "high": end}


_WIDER = "choose a wider dtype, or low and high within its range"


def _rand(stated: Mapping[str, Any], dtype: DType, _: Sequence[int]) -> Any:
    """Return the uniform generator on [0, 1) or the given range; of integers without a range, and of bool, randint."""
    low, high = _range(stated, 0.0, 1.0)
    if dtype.kind is Kind.BOOL or not (dtype.is_inexact or stated):
        return _RANDINT
    return {"fill": "uniform", "low": low, "high": high} if dtype.is_inexact else _integer_range(low, high, dtype)


def _randint(stated: Mapping[str, Any], dtype: DType, _: Sequence[int]) -> Any:
    """Return the generator of integers in the given range, which needs ``high``; of bool, and without one, of any."""
    if not stated:
        return _RANDINT
    low, high = _range(stated, 0, None)
    return _RANDINT if dtype.kind is Kind.BOOL else _integer_range(low, high, dtype)


def _xavier(stated: Mapping[str, Any], dtype: DType, shape: Sequence[int]) -> Any:
    """Return a uniform generator on [-a, a], a = gain·sqrt(6 / (fan in + fan out)) (Glorot and Bengio, 2010)."""
    gain = _number(stated, "gain", 1.0)
    if gain <= 0:
        raise Misfit(f"gain is {shown(gain)}, expected above 0", path=(*_ARGS, "gain"))
    if not dtype.is_inexact:
        return _RANDINT
    sizes = list(shape) or [1]
    receptive = math.prod(sizes[2:])
    fans = (sizes[0] + (sizes[1] if len(sizes) > 1 else sizes[0])) * receptive
    bound = gain * math.sqrt(6.0 / max(fans, 1))
    return {"fill": "uniform", "low": -bound, "high": bound}


def _full_fill(stated: Mapping[str, Any], dtype: DType, _: Sequence[int]) -> Any:
    if len(stated) != 1:
        words = "both value and fill_value" if stated else "no value"
        raise Misfit(f"init is full and init_args has {words}, expected one value", path=_ARGS)
    (name, value), *_rest = stated.items()
    return {"fill": "full", "value": _convert_element(value, dtype, (*_ARGS, name))}


def _convert_element(value: Any, dtype: DType, path: tuple[str | int, ...]) -> Any:
    """Return one element as a number that a plan accepts.

    Raises:
        Misfit: for a value that is not a number, or outside of the dtype.
    """
    known = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
    number = known.get(value, value) if isinstance(value, str) else value
    if not isinstance(number, (bool, int, float)):
        raise Misfit(f"an element is {shown(value)}, expected a number", path=path)
    if dtype.is_integer and not (number == number and abs(number) < 2**64 and int(number) == number):
        raise Misfit(f"an element is {shown(value)}, expected an integer for {dtype}", path=path)
    if dtype.is_integer and not dtype.min_int <= number <= dtype.max_int:
        raise Misfit(
            f"an element is {shown(value)}, expected {dtype.min_int} to {dtype.max_int} for {dtype}", path=path
        )
    if dtype.kind is Kind.BOOL and number not in (0, 1):
        raise Misfit(f"an element is {shown(value)}, expected true, false, 0 or 1 for bool", path=path)
    return int(number) if dtype.is_integer else number


def _values_of_data(given: Any) -> tuple[Any, tuple[str | int, ...]]:
    """Return the nested list of ``init: data`` and its path within the tensor entry.

    Raises:
        Misfit: if there are no values.
    """
    if isinstance(given, dict):
        stated = _taken(given, INITS["data"])
        if len(stated) == 1:
            (name, values), *_rest = stated.items()
            return values, (*_ARGS, name)
        given = None
    if given is None:
        raise Misfit("init is data and init_args has no values", path=_ARGS, hint=INITS["data"].example)
    return given, _ARGS


def shape_of_data(given: Any) -> list[int]:
    """Return the shape of the nested lists of ``init: data``; raise Misfit if rows have different shapes."""
    return _nesting(*_values_of_data(given))


def _nesting(values: Any, path: tuple[str | int, ...]) -> list[int]:
    """Return the shape of nested lists; raise Misfit if rows have different shapes."""
    if not isinstance(values, list):
        return []
    rows = [_nesting(row, path) for row in values]
    if any(row != rows[0] for row in rows):
        raise Misfit("the data have rows of different shapes, expected equal ones", path=path)
    return [len(values), *(rows[0] if rows else [])]


def _data_fill(given: Any, dtype: DType, shape: Sequence[int]) -> Any:
    """Return the generator of written values; raise Misfit if they have another shape or do not fit the dtype."""
    values, path = _values_of_data(given)
    found = _nesting(values, path)
    if found != list(shape) and not (0 in found and 0 in shape):
        message = f"the data have shape {format_shape(tuple(found))}, expected {format_shape(tuple(shape))}"
        raise Misfit(message, path=path, hint="remove shape to use that of the data")
    return {"fill": "data", "values": _convert_elements(values, dtype, path)}


def _convert_elements(values: Any, dtype: DType, path: tuple[str | int, ...]) -> Any:
    if isinstance(values, list):
        return [_convert_elements(value, dtype, path) for value in values]
    return _convert_element(values, dtype, path)


def _arange_fill(stated: Mapping[str, Any], _: DType, __: Sequence[int]) -> Any:
    return {"fill": "arange", "start": _number(stated, "start", 0), "step": _number(stated, "step", 1)}


def _eye(_: Mapping[str, Any], __: DType, shape: Sequence[int]) -> Any:
    """Return the name of the fill ``eye``; raise Misfit unless ``shape`` has two sizes."""
    if len(shape) != 2:
        message = f"init is eye and the tensor has {len(shape)} dimensions, expected 2"
        raise Misfit(message, path=("init",), hint="write a shape of two sizes")
    return "eye"


_OF_RANGE = Init(_rand, ("low", "high"), "init_args: {low: -1, high: 1}")

INITS: Mapping[str, Init] = {
    "rand": _OF_RANGE,
    "randn": Init(lambda *_: "randn"),
    "zeros": Init(lambda *_: "zeros"),
    "ones": Init(lambda *_: "ones"),
    "arange": Init(_arange_fill, ("start", "step"), "init_args: {start: 0, step: 1}"),
    "randint": Init(_randint, ("low", "high"), "init_args: {low: 0, high: 100}"),
    "uniform": _OF_RANGE,
    "data": Init(_data_fill, ("values", "data"), "init_args: [[1, 2], [3, 4]]"),
    "full": Init(_full_fill, ("value", "fill_value"), "init_args: {value: 1.5}"),
    "eye": Init(_eye),
    "xavier": Init(_xavier, ("gain",), "init_args: {gain: 1}"),
    "file": Init(lambda stated, *_: {"fill": "file", **stated}, ("path", "key"), "init_args: {path: x.pt}"),
}
