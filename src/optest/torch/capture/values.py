"""Tensors and other arguments of a call as entries of a model case.

A floating tensor keeps sign, magnitude and whether it holds whole numbers: random values of that kind test an operator
as well, and zeros or ones, which parameters often are, test it less. Integers and masks decide what a call does: small
ones are written out, larger ones keep their bounds.
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

# Largest number of elements that are written out; _MAX_DECIDING for tensors that decide whether a call is legal.
_MAX_LITERAL, _MAX_DECIDING = 64, 4096
# Larger magnitudes are kept: cos(1000) tests argument reduction, cos(1) does not.
_WIDE_AT = 8.0
_HUGE = 1e30
# Some attention masks use a large negative number instead of -inf.
_FAR_BELOW = -1e4
# float32 holds every whole number up to here.
_MAX_WHOLE = 2.0**24


@dataclass(slots=True)
class Described:
    """A call as keys of a case, its tensor arguments, and notes about their values."""

    op: str
    inputs: list[dict[str, Any]]
    kwmap: dict[str, Any]
    tensors: list[torch.Tensor]
    notes: list[str] = field(default_factory=list)


def describe_call(call: NamedCall) -> Described:
    """Describe the call's arguments as the ``inputs`` and ``kwmap`` of a case.

    Raises:
        NoCase: if an argument is neither a supported tensor nor a literal.
    """
    description = Described(call.name, [], {}, [])
    writer = _Writer(description)
    if facts_of(call.name).is_given_strides:
        _require_own_elements(*call.args, **call.kwargs)
    description.inputs += [writer.entry(value, index) for index, value in enumerate(call.args)]
    for name, value in call.kwargs.items():
        entry = writer.entry(value, name)
        description.kwmap[name] = entry.get("value", entry)
    if len({id(tensor) for tensor in description.tensors}) < len(description.tensors):
        description.notes.append("the same tensor several times")
    return description


def _require_own_elements(
    input: torch.Tensor,  # noqa: A002 - torch's name, which may be a keyword
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> None:
    """Check that a strided view, as of ``as_strided``, stays between the first and last element of ``input``.

    Raises:
        NoCase: if it reaches beyond, or has an offset and ``input`` does not start its storage.
    """
    # A case's tensor has memory only from its first to its last element, at the start of its storage.
    begin = 0 if storage_offset is None else storage_offset - input.storage_offset()
    reach = sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    available = sum((count - 1) * step for count, step in zip(input.shape, input.stride(), strict=True))
    if begin < 0 or begin + reach > available or (storage_offset is not None and input.storage_offset()):
        raise NoCase("reach beyond the tensor that they are given, or count from the start of its memory")


def tensor_entries(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the mappings within a case that describe a tensor, in the order of the call."""
    for argument in (*case.get("inputs", ()), *case.get("kwmap", {}).values()):
        yield from _tensors_within(argument)


def _tensors_within(argument: Any) -> Iterator[dict[str, Any]]:
    match argument:
        case {"tensor": tensor}:
            yield tensor
        case {"tensor_list": tensors}:
            yield from tensors
        case {"tuple": parts} | {"list": parts}:
            for part in parts:
                yield from _tensors_within(part)


class _Writer:
    """Writer of one call's arguments into its description; ``place`` is an argument's position or name."""

    def __init__(self, description: Described) -> None:
        self._description = description
        self._facts = facts_of(description.op)
        self._takes_order = self._facts.takes_counts or takes_ordered_integers(description.op)

    def entry(self, value: Any, argument: int | str) -> dict[str, Any]:
        """Return the argument as an entry; append its tensors and their notes to the description."""
        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value, argument)}
        if isinstance(value, (list, tuple)) and any(True for _ in tensors_of(value)):
            is_subscript = self._facts.positions == "subscript" and type(value) is tuple
            if all(isinstance(part, torch.Tensor) for part in value) and not is_subscript:
                return {"tensor_list": [self._tensor(part, argument) for part in value]}
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self.entry(part, argument) for part in value]}
        return _literal_entry(value)

    def _tensor(self, tensor: torch.Tensor, argument: int | str) -> dict[str, Any]:
        self._description.tensors.append(tensor)
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            raise NoCase("take tensors that are not dense")
        if tensor._is_zerotensor():
            raise NoCase("take zeros without memory, as derivatives in forward mode are")
        if tensor.dtype not in DTYPE_NAMES:
            raise NoCase(f"take tensors of {tensor.dtype}, which optest does not know")
        layout: dict[str, Any] = {"shape": list(tensor.shape), "dtype": DTYPE_NAMES[tensor.dtype]}
        strides, offset = list(tensor.stride()), tensor.storage_offset()
        if strides != list(contiguous_strides(tuple(tensor.shape))):
            layout["stride"] = strides
        if offset:
            layout["storage_offset"] = offset
        try:
            fill, note = self._fill(tensor.detach(), argument)
        except (RuntimeError, NotImplementedError, TypeError):
            raise NoCase("take tensors whose values cannot be read, as inside of a transform") from None
        if note:
            self._description.notes.append(f"input{len(self._description.tensors) - 1} {note}")
        return {**layout, **fill}

    def _fill(self, tensor: torch.Tensor, argument: int | str) -> tuple[dict[str, Any], str]:
        """Return init and init_args of a tensor, and a note on its values for the description, or ""."""
        facts = self._facts
        is_ascending = argument in (facts.ascending or ())
        if facts.takes_structured_matrix or is_ascending or (self._takes_order and _may_be_offsets(tensor)):
            if tensor.numel() > _MAX_DECIDING or tensor.dtype.is_complex:
                raise NoCase("take a matrix or offsets that random values cannot replace, too large to be written")
            return _written_out(tensor), ""
        if tensor.numel() == 0 or tensor.device.type == "meta":
            return ({"init": "randn"} if tensor.dtype.is_floating_point else {}), ""
        if tensor.dtype is torch.bool:
            hides = argument in (facts.attention_mask or ())
            return _mask_fill(tensor, must_fit=facts.mask_must_fit and argument != 0, hides=hides)
        if tensor.dtype.is_complex:
            return {"init": "randn"}, ""
        return _float_fill(tensor) if tensor.dtype.is_floating_point else _integer_fill(tensor)


def _may_be_offsets(tensor: torch.Tensor) -> bool:
    """Return whether an integer tensor too large to write out may hold offsets or lengths: of more than 4096
    elements, only if it is monotonic.
    """
    if tensor.dtype is torch.bool or is_inexact(tensor) or tensor.device.type == "meta":
        return False
    if _MAX_LITERAL < tensor.numel() <= _MAX_DECIDING:
        return True
    steps = tensor.detach().flatten().to(torch.int64).diff()
    return tensor.numel() > _MAX_DECIDING and bool((steps >= 0).all() or (steps <= 0).all())


def _mask_fill(tensor: torch.Tensor, *, must_fit: bool, hides: bool) -> tuple[dict[str, Any], str]:
    """Return the fill of a bool mask and a note; ``must_fit``: its count of true elements decides a shape.

    Raises:
        NoCase: if ``must_fit`` and no element is true or too many elements would have to be written.
    """
    count, elements = int(tensor.sum()), tensor.numel()
    if must_fit and not count:
        raise NoCase("choose no element, so nothing would be compared")
    if count and elements <= (_MAX_DECIDING if must_fit or hides else _MAX_LITERAL):
        if count == elements:
            return {"init": "ones"}, f"is true everywhere, as the model's own mask of {elements:,} elements"
        words = words_of_mask(tensor)
        order = f": {words}" if words.count(",") else ""
        return _written_out(tensor), f"is the model's own mask, {count:,} of {elements:,} true{order}"
    if must_fit:
        raise NoCase(f"take a mask of {elements:,} elements, too many to be written, whose count decides a shape")
    return {}, f"is a random mask; in the model {count:,} of {elements:,} are true"


def _integer_fill(tensor: torch.Tensor, dtype: str | None = None) -> tuple[dict[str, Any], str]:
    """Return the fill of whole numbers and a note: written out up to 64 elements, else drawn from their range."""
    is_float = tensor.is_floating_point()
    if tensor.numel() <= _MAX_LITERAL:
        return _written_out(tensor, dtype), f"holds the model's own {'whole numbers' if is_float else 'integers'}"
    low, high = int(tensor.min()), int(tensor.max())
    note = f"is drawn from the model's {'whole numbers' if is_float else 'range'}, {low} to {high}"
    return {"init": "randint", "init_args": {"low": low, "high": high + 1}}, note


def _float_fill(tensor: torch.Tensor) -> tuple[dict[str, Any], str]:
    """Return the fill of floats and a note: of their sign and magnitude; masks and infinities are written out."""
    # torch has no aminmax for dtypes of 8 bits.
    low, high = [float(bound) for bound in (tensor.float() if tensor.element_size() == 1 else tensor).aminmax()]
    # A mask of 0 and one large negative number.
    may_be_mask = low <= _FAR_BELOW and high == 0 and tensor.numel() <= _MAX_DECIDING
    if not (low > -_HUGE and high < _HUGE) or (may_be_mask and len(tensor.double().unique()) == 2):  # also for NaN
        return _huge_values(tensor)
    if low < high and max(-low, high) <= _MAX_WHOLE and _has_whole_numbers(tensor):
        return _integer_fill(tensor.to(torch.float64), DTYPE_NAMES[tensor.dtype])
    is_signed = low < 0 or high == 0
    largest = max(-low, high)
    if largest <= _WIDE_AT:
        return {"init": "randn" if is_signed else "rand"}, ""
    bound = 2.0 ** math.ceil(math.log2(largest))
    return {"init": "uniform", "init_args": {"low": -bound if is_signed else 0.0, "high": bound}}, ""


def _has_whole_numbers(tensor: torch.Tensor) -> bool:
    """Return whether all elements are whole numbers, as in counts, quantisation levels and masks of 0 and 1."""
    # Most tensors fail in the first row, without a comparison of all their elements.
    row = tensor[(0,) * (tensor.dim() - 1)]
    if not all(value.is_integer() for value in row[:64].tolist()):
        return False
    wide = tensor.float() if tensor.element_size() == 1 else tensor
    return bool(torch.equal(wide.round(), wide))


def _huge_values(tensor: torch.Tensor) -> tuple[dict[str, Any], str]:
    """Return the fill of a tensor with infinite, NaN or huge values, and a note.

    Up to 4096 elements, such values are written at their positions, since they decide which others matter; the others
    are replaced unless they have at most two distinct values.
    """
    if tensor.numel() > _MAX_DECIDING:
        return {"init": "randn"}, "is drawn without the infinite or huge values that it has in the model"
    values = tensor.to(torch.float64)
    first = float(values.flatten()[0])
    if math.isfinite(first) and bool((values == first).all()):
        value = shortest(first, DTYPE_NAMES[tensor.dtype])
        return {"init": "full", "init_args": {"value": value}}, f"is {value_text(first)} everywhere, as in the model"
    is_usual = values.isfinite() & (values.abs() < _HUGE)
    if len(values[is_usual].unique()) <= 2:
        words = words_of_mask(values)
        return _written_out(tensor), f"is the model's own mask{': ' if words else ''}{words}"
    replacements = torch.arange(values.numel(), dtype=torch.float64).reshape(values.shape) * 7 % 17 / 4 - 2
    return _written_out(values.where(~is_usual, replacements), DTYPE_NAMES[tensor.dtype]), (
        "has the model's own infinite and huge values, and others between"
    )


def _written_out(tensor: torch.Tensor, dtype: str | None = None) -> dict[str, Any]:
    values = tensor.int() if tensor.dtype is torch.bool else tensor
    return {"init": "data", "init_args": written(values, dtype or DTYPE_NAMES[tensor.dtype])}


def _literal_entry(value: Any) -> dict[str, Any]:
    """Return a non-tensor as ``{"value": …}`` if a case file reads that back, else as ``{"py": literal}``.

    Raises:
        NoCase: if it has no Python literal.
    """
    inner = values_of_call(value, _plain_value)
    if inner is None or type(inner) in (bool, int) or (type(inner) is float and math.isfinite(inner)):
        return {"value": inner}
    if isinstance(inner, (TorchName, Device)):
        return {"value": inner.name}
    if isinstance(inner, str) and isinstance(value_of(inner), (str, Device)):
        return {"value": inner}
    if isinstance(inner, list) and all(type(item) is int for item in inner):
        return {"value": inner}
    try:
        return {"py": text_of(inner)}
    except (TypeError, NotLiteral):
        raise NoCase(f"take a {type(value).__name__}, which case files cannot hold") from None


# torch accepts a Python type as the dtype of the same name.
_DTYPES_OF_PYTHON = {
    bool: TorchName("torch.bool"),
    int: TorchName("torch.int64"),
    float: TorchName("torch.float64"),
    complex: TorchName("torch.complex128"),
}


def _plain_value(value: Any) -> Any:
    """Return a type, device, 0-d tensor or number as the value that a case file holds; any other value unchanged."""
    if isinstance(value, type):
        return _DTYPES_OF_PYTHON.get(value, value)
    if isinstance(value, torch.device):
        return Device(str(value))
    if isinstance(value, torch.Tensor):
        return value.__index__()  # the bound of a slice
    if isinstance(value, (int, float, complex)) and not isinstance(value, bool):
        # Subclasses, such as np.float64, have another repr.
        kind: Any = next(base for base in (int, float, complex) if isinstance(value, base))
        return kind(value)
    return value


def written(tensor: torch.Tensor, dtype: str) -> Any:
    """Return a real tensor as a nested list of the shortest decimals that give the same bits in ``dtype``."""
    values = tensor.tolist()
    if not tensor.dtype.is_floating_point:
        return values
    distinct = {value: shortest(value, dtype) for value in tensor.flatten().tolist() if value}

    def replaced(item: Any) -> Any:
        return [replaced(part) for part in item] if isinstance(item, list) else distinct.get(item, item)

    return replaced(values)


def shortest(value: float, dtype: str) -> float:
    """Return the number with the fewest decimal digits that rounds to ``value`` in ``dtype``."""
    if not math.isfinite(value):
        return value
    kind = dtype_called(dtype)
    for digits in range(1, 17):
        candidate = float(f"{value:.{digits}g}")
        if math.isfinite(candidate) and float(round_to(np.array([candidate]), kind)[0]) == value:
            return candidate
    return value


def value_text(value: Any) -> str:
    """Format a number for a note: ``-inf``, ``0.0``, ``-3.4e+38``; ``true`` or ``false`` for a bool tensor."""
    if isinstance(value, torch.Tensor) and value.dtype is torch.bool:
        return "true" if bool(value) else "false"
    number = float(value) + 0.0  # -0.0 becomes 0.0
    return f"{number:.3g}" if abs(number) >= 1e6 and math.isfinite(number) else repr(number)


def words_of_mask(values: torch.Tensor) -> str:
    """Describe a mask of two values: ``causal (0.0 up to the diagonal, -inf above)``, or only the two values if they
    have no such order; "" if there are not two values.
    """
    distinct = values.unique()
    if len(distinct) != 2:
        return ""
    low, high = distinct
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
    """Describe the order of two values in a matrix: same rows, causal, a diagonal or a band; else ""."""
    rows, columns = matrix.shape
    if _is_same_in_every_row(matrix):
        return f"{value_text(high)} and {value_text(low)}, the same in every row"
    column = torch.arange(columns, device=matrix.device)
    offsets = column - torch.arange(rows, device=matrix.device)[:, None]
    first, final = 1 - rows, columns - 1
    for value, rest in ((high, low), (low, high)):
        inside = offsets[matrix == value]
        start, end = int(inside.min()), int(inside.max())
        if not torch.equal(matrix == value, (offsets >= start) & (offsets <= end)):
            continue
        here, there = value_text(value), value_text(rest)
        if start == first:
            order = f"{here} up to {_diagonal(end)}, {there} above"
            return f"causal ({order})" if end == columns - rows else order
        if end != final:
            return f"a band ({here} from {_diagonal(start)} to {_diagonal(end)}, {there} elsewhere)"
    return ""


def _diagonal(offset: int) -> str:
    return f"diagonal {offset}" if offset else "the diagonal"
