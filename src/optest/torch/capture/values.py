"""Tensors and other arguments of a call as entries of the dialect.

Of a floating tensor only sign and magnitude are kept, and whether it counts: other values of that kind ask the same of
an operator, and zeros or ones, which parameters often are, would ask less. Of integers and masks the values decide what
a call does, so small ones are written out and of the others their bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from optest.numerics import round_to
from optest.spec import contiguous_strides
from optest.spec import dtype as dtype_called
from optest.spec.calls import Device, NotLiteral, TorchName, text_of
from optest.torch.calls.call import values_of_call
from optest.torch.capture.naming import NamedCall, NoCase
from optest.torch.fact_sheet import facts_of, takes_ordered_integers
from optest.torch.model_cases.arguments import value_of
from optest.torch.tensors import DTYPE_NAMES, is_inexact, tensors_of

_MOST_LITERAL = 64
"""So many elements are written out; of tensors that decide what is legal, _MOST_DECIDING."""

_MOST_DECIDING = 4096
_WIDE_AT = 8.0
"""Larger magnitudes are kept: a cosine of 1000 is another question than one of 1."""

_HUGE = 1e30


@dataclass(slots=True)
class Described:
    """A call as keys of a case, the tensors that it takes, and what is to be said of their values."""

    op: str
    inputs: list[dict[str, Any]]
    kwmap: dict[str, Any]
    tensors: list[torch.Tensor]
    notes: list[str] = field(default_factory=list)


def described(call: NamedCall) -> Described:
    """The call as an entry of ``cases``, without its name.

    Raises:
        NoCase: if an argument is more than tensors and literals.
    """
    made = Described(call.name, [], {}, [])
    writer = _Writer(made)
    if facts_of(call.name).is_given_strides:
        _require_own_elements(*call.args, **call.kwargs)
    made.inputs += [writer.entry(value, place) for place, value in enumerate(call.args)]
    for name, value in call.kwargs.items():
        entry = writer.entry(value, name)
        made.kwmap[name] = entry.get("value", entry)
    if len({id(each) for each in made.tensors}) < len(made.tensors):
        made.notes.append("the same tensor several times")
    return made


def _require_own_elements(
    input: torch.Tensor,  # noqa: A002 - the name that torch has for it
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> None:
    """A tensor of a case has the memory from its first to its last element, which is at the beginning of its storage.

    Raises:
        NoCase: for a view of what lies around the tensor in the model.
    """
    begin = 0 if storage_offset is None else storage_offset - input.storage_offset()
    reach = sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    own = sum((count - 1) * step for count, step in zip(input.shape, input.stride(), strict=True))
    if begin < 0 or begin + reach > own or (storage_offset is not None and input.storage_offset()):
        raise NoCase("reach beyond the tensor that they are given, or count from the start of its memory")


def tensor_entries(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The mappings within a case that describe a tensor, in the order of the call."""
    for argument in (*case.get("inputs", ()), *case.get("kwmap", {}).values()):
        yield from _tensors_within(argument)


def _tensors_within(argument: Any) -> Iterator[dict[str, Any]]:
    match argument:
        case {"tensor": tensor}:
            yield tensor
        case {"tensor_list": tensors}:
            yield from tensors
        case {"tuple": parts} | {"list": parts}:
            for each in parts:
                yield from _tensors_within(each)


class _Writer:
    """Writes the arguments of one call; ``place`` is an argument's position or its name."""

    def __init__(self, made: Described) -> None:
        self._made = made
        self._facts = facts_of(made.op)
        self._takes_order = self._facts.takes_counts or takes_ordered_integers(made.op)

    def entry(self, value: Any, place: int | str) -> dict[str, Any]:
        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value, place)}
        if isinstance(value, (list, tuple)) and any(True for _ in tensors_of(value)):
            is_subscript = self._facts.positions == "subscript" and type(value) is tuple
            if all(isinstance(each, torch.Tensor) for each in value) and not is_subscript:
                return {"tensor_list": [self._tensor(each, place) for each in value]}
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self.entry(each, place) for each in value]}
        return _literal(value)

    def _tensor(self, tensor: torch.Tensor, place: int | str) -> dict[str, Any]:
        self._made.tensors.append(tensor)
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            raise NoCase("take tensors that are not dense")
        if tensor._is_zerotensor():
            raise NoCase("take zeros without memory, as derivatives in forward mode are")
        if tensor.dtype not in DTYPE_NAMES:
            raise NoCase(f"take tensors of {tensor.dtype}, which optest does not know")
        found: dict[str, Any] = {"shape": list(tensor.shape), "dtype": DTYPE_NAMES[tensor.dtype]}
        strides, offset = list(tensor.stride()), tensor.storage_offset()
        if strides != list(contiguous_strides(tuple(tensor.shape))):
            found["stride"] = strides
        if offset:
            found["storage_offset"] = offset
        try:
            fill, note = self._fill(tensor.detach(), place)
        except (RuntimeError, NotImplementedError, TypeError):
            raise NoCase("take tensors whose values cannot be read, as inside of a transform") from None
        if note:
            self._made.notes.append(f"input{len(self._made.tensors) - 1} {note}")
        return {**found, **fill}

    def _fill(self, tensor: torch.Tensor, place: int | str) -> tuple[dict[str, Any], str]:
        """init and init_args, and what is to be said of the values."""
        facts = self._facts
        is_ascending = place in (facts.ascending or ())
        if facts.takes_structured_matrix or is_ascending or (self._takes_order and _is_order(tensor)):
            if tensor.numel() > _MOST_DECIDING or tensor.dtype.is_complex:
                raise NoCase("take a matrix or offsets that no drawn one can stand for, too large to be written")
            return _data(tensor), ""
        if tensor.numel() == 0 or tensor.device.type == "meta":
            return ({"init": "randn"} if tensor.dtype.is_floating_point else {}), ""
        if tensor.dtype is torch.bool:
            hides = place in (facts.attention_mask or ())
            return _mask(tensor, must_fit=facts.mask_must_fit and place != 0, hides=hides)
        if tensor.dtype.is_complex:
            return {"init": "randn"}, ""
        return _floats(tensor) if tensor.dtype.is_floating_point else _integers(tensor)


def _is_order(tensor: torch.Tensor) -> bool:
    """Whether integers may be offsets or lengths: they are few, or ascend or descend."""
    if tensor.dtype is torch.bool or is_inexact(tensor) or tensor.device.type == "meta":
        return False
    if _MOST_LITERAL < tensor.numel() <= _MOST_DECIDING:
        return True
    steps = tensor.detach().flatten().to(torch.int64).diff()
    return tensor.numel() > _MOST_DECIDING and bool((steps >= 0).all() or (steps <= 0).all())


def _mask(tensor: torch.Tensor, *, must_fit: bool, hides: bool) -> tuple[dict[str, Any], str]:
    count, elements = int(tensor.sum()), tensor.numel()
    if must_fit and not count:
        raise NoCase("choose no element, so nothing would be compared")
    if count and elements <= (_MOST_DECIDING if must_fit or hides else _MOST_LITERAL):
        if count == elements:
            return {"init": "ones"}, f"is true everywhere, as the model's own mask of {elements:,} elements"
        words = words_of_mask(tensor)
        order = f": {words}" if words.count(",") else ""
        return _data(tensor), f"is the model's own mask, {count:,} of {elements:,} true{order}"
    if must_fit:
        raise NoCase(f"take a mask of {elements:,} elements, too many to be written, and need one of that count")
    return {}, f"is a mask, drawn; in the model {count:,} of {elements:,} are true"


def _integers(tensor: torch.Tensor, dtype: str | None = None) -> tuple[dict[str, Any], str]:
    if tensor.numel() <= _MOST_LITERAL:
        return _data(
            tensor, dtype
        ), f"holds the model's own {'whole numbers' if tensor.is_floating_point() else 'integers'}"
    low, high = int(tensor.min()), int(tensor.max())
    return {"init": "randint", "init_args": {"low": low, "high": high + 1}}, (
        f"is drawn from the model's {'whole numbers' if tensor.is_floating_point() else 'range'}, {low} to {high}"
    )


def _floats(tensor: torch.Tensor) -> tuple[dict[str, Any], str]:
    low, high = [float(each) for each in (tensor.float() if tensor.element_size() == 1 else tensor).aminmax()]
    if not (low > -_HUGE and high < _HUGE) or _hides(tensor, low, high):  # NaN is neither
        return _unusual(tensor)
    if low < high and max(-low, high) <= _MOST_COUNTED and _counts(tensor):
        return _integers(tensor.to(torch.float64), DTYPE_NAMES[tensor.dtype])
    is_signed = low < 0 or high == 0
    largest = max(-low, high)
    if largest <= _WIDE_AT:
        return {"init": "randn" if is_signed else "rand"}, ""
    bound = 2.0 ** math.ceil(math.log2(largest))
    return {"init": "uniform", "init_args": {"low": -bound if is_signed else 0.0, "high": bound}}, ""


def _hides(tensor: torch.Tensor, low: float, high: float) -> bool:
    """Whether it is 0 and one number far below it, as masks of 16 bits and those of before infinity are."""
    return (
        low <= _FAR_BELOW and high == 0 and tensor.numel() <= _MOST_DECIDING and len(tensor.double().unique()) == _FEW
    )


_FAR_BELOW = -1e4
_MOST_COUNTED = 2.0**24


def _counts(tensor: torch.Tensor) -> bool:
    """Whether all elements are whole numbers, as of counts, steps, levels of a quantisation, masks of 0 and 1."""
    row = tensor[(0,) * (tensor.dim() - 1)]
    if not all(value.is_integer() for value in row[:64].tolist()):
        return False
    known = tensor.float() if tensor.element_size() == 1 else tensor
    return bool(torch.equal(known.round(), known))


def _unusual(tensor: torch.Tensor) -> tuple[dict[str, Any], str]:
    """Infinite and huge values decide which others count: they stay where they are."""
    if tensor.numel() > _MOST_DECIDING:
        return {"init": "randn"}, "is drawn without the infinite or huge values that it has in the model"
    values = tensor.to(torch.float64)
    first = float(values.flatten()[0])
    if math.isfinite(first) and bool((values == first).all()):  # written out, infinity is meant
        value = shortest(first, DTYPE_NAMES[tensor.dtype])
        return {"init": "full", "init_args": {"value": value}}, f"is {value_text(first)} everywhere, as in the model"
    is_usual = values.isfinite() & (values.abs() < _HUGE)
    if len(values[is_usual].unique()) <= _FEW:
        words = words_of_mask(values)
        return _data(tensor), f"is the model's own mask{': ' if words else ''}{words}"
    made_up = torch.arange(values.numel(), dtype=torch.float64).reshape(values.shape) * 7 % 17 / 4 - 2
    return _data(values.where(~is_usual, made_up), DTYPE_NAMES[tensor.dtype]), (
        "has the model's own infinite and huge values, and others between"
    )


_FEW = 2


def _data(tensor: torch.Tensor, dtype: str | None = None) -> dict[str, Any]:
    is_bool = tensor.dtype is torch.bool
    return {
        "init": "data",
        "init_args": written(tensor.int() if is_bool else tensor, dtype or DTYPE_NAMES[tensor.dtype]),
    }


def _literal(value: Any) -> dict[str, Any]:
    """A value that is no tensor: as it is where the dialect reads that back, else as a literal of Python."""
    inner = values_of_call(value, _leaf)
    if inner is None or type(inner) in (bool, int) or (type(inner) is float and math.isfinite(inner)):
        return {"value": inner}
    if isinstance(inner, (TorchName, Device)):
        return {"value": inner.name}
    if isinstance(inner, str) and isinstance(value_of(inner), (str, Device)):
        return {"value": inner}
    if isinstance(inner, list) and all(type(each) is int for each in inner):
        return {"value": inner}
    try:
        return {"py": text_of(inner)}
    except (TypeError, NotLiteral):
        raise NoCase(f"take a {type(value).__name__}, which no file of cases can hold") from None


_DTYPES_OF_PYTHON = {
    bool: TorchName("torch.bool"),
    int: TorchName("torch.int64"),
    float: TorchName("torch.float64"),
    complex: TorchName("torch.complex128"),
}
"""torch takes a type of Python's for the dtype of that name."""


def _leaf(value: Any) -> Any:
    """A value that is no constant of torch's; of types that are derived from Python's, Python's own."""
    if isinstance(value, type):
        return _DTYPES_OF_PYTHON.get(value, value)
    if isinstance(value, torch.device):
        return Device(str(value))
    if isinstance(value, torch.Tensor):
        return value.__index__()  # the bound of a slice
    if isinstance(value, (int, float, complex)) and not isinstance(value, bool):
        kind: Any = next(each for each in (int, float, complex) if isinstance(value, each))
        return kind(value)
    return value


# Values of a tensor as they are written into a file: so short that reading them back gives the same bits.


def written(tensor: torch.Tensor, dtype: str) -> Any:
    """The nested list of a tensor of real numbers, of which ``dtype`` holds every one."""
    values = tensor.tolist()
    if not tensor.dtype.is_floating_point:
        return values
    distinct = {value: shortest(value, dtype) for value in tensor.flatten().tolist() if value}
    return _replaced(values, distinct)


def _replaced(values: Any, by: dict[float, float]) -> Any:
    if isinstance(values, list):
        return [_replaced(each, by) for each in values]
    return by.get(values, values)


def shortest(value: float, dtype: str) -> float:
    """The number with the fewest digits that is ``value`` when it is rounded to ``dtype``."""
    if not math.isfinite(value):
        return value
    kind = dtype_called(dtype)
    for digits in range(1, 17):
        found = float(f"{value:.{digits}g}")
        if math.isfinite(found) and float(round_to(np.array([found]), kind)[0]) == value:
            return found
    return value


def value_text(value: Any) -> str:
    """A number as notes have it: ``-inf``, ``0.0``, ``-3.4e+38``; ``true`` and ``false`` of a mask that is bool."""
    if isinstance(value, torch.Tensor) and value.dtype is torch.bool:
        return "true" if bool(value) else "false"
    found = float(value) + 0.0  # without a sign of zero
    return f"{found:.3g}" if abs(found) >= 1e6 and math.isfinite(found) else repr(found)


# What can be said of a mask in words: where it changes from one value to another.


def words_of_mask(values: torch.Tensor) -> str:
    """``causal (0.0 up to the diagonal, -inf above)``; the two values alone where there is no such order, else ""."""
    found = values.unique()
    if len(found) != 2:
        return ""
    low, high = found
    both = f"{value_text(high)} and {value_text(low)}"
    if values.dim() < 2:
        return both
    last = values.reshape(-1, *values.shape[-2:])
    if not bool((last == last[:1]).all()):
        return f"{both}, the same in every row" if _is_same_in_every_row(values) else both
    return _words_of_matrix(last[0], high, low) or both


def _is_same_in_every_row(values: torch.Tensor) -> bool:
    return bool((values == values[..., :1, :]).all())


def _words_of_matrix(matrix: torch.Tensor, high: torch.Tensor, low: torch.Tensor) -> str:
    """Of a matrix with two values; "" where it has no order that has a name."""
    rows, columns = matrix.shape
    if _is_same_in_every_row(matrix):
        return f"{value_text(high)} and {value_text(low)}, the same in every row"
    column = torch.arange(columns, device=matrix.device)
    offsets = column - torch.arange(rows, device=matrix.device)[:, None]
    first, final = 1 - rows, columns - 1
    for value, other in ((high, low), (low, high)):
        inside = offsets[matrix == value]
        start, end = int(inside.min()), int(inside.max())
        if not torch.equal(matrix == value, (offsets >= start) & (offsets <= end)):
            continue
        here, there = value_text(value), value_text(other)
        if start == first:
            order = f"{here} up to {_diagonal(end)}, {there} above"
            return f"causal ({order})" if end == columns - rows else order
        if end != final:
            return f"a band ({here} from {_diagonal(start)} to {_diagonal(end)}, {there} elsewhere)"
    return ""


def _diagonal(offset: int) -> str:
    return f"diagonal {offset}" if offset else "the diagonal"
