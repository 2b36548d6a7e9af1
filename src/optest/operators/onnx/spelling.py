"""Registry of ONNX's names, and the checks of inputs and attributes that their meanings share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from optest.operators.shapes import Specs, require_spec
from optest.spec import Attribute, Kind, Meaning, Spelling, TensorSpec, UnfitArguments

# By ONNX's name. Names of ONNX that differ from an operator's only in the name are aliases instead.
SPELLINGS: dict[str, Spelling] = {}
# Largest integer up to which float64, in which plans hold numbers, has all of them.
_LARGEST_EXACT = 2**53


def spelled(
    name: str,
    operators: str | tuple[str, ...],
    signature: str,
    *attributes: Attribute,
    inputs: tuple[int, ...] = (),
    description: str = "",
) -> Callable[[Meaning], Meaning]:
    """Register the decorated function as the meaning of ONNX's ``name``; the fields are those of :class:`Spelling`."""

    def added(meaning: Meaning) -> Meaning:
        SPELLINGS[name] = Spelling(
            name=name,
            operators=(operators,) if isinstance(operators, str) else operators,
            signature=signature,
            meaning=meaning,
            attributes=attributes,
            inputs=inputs,
            description=description,
        )
        return meaning

    return added


def input_of(specs: Specs, name: str = "X") -> TensorSpec:
    """Return the first input; ``name`` is for the message if it is left out."""
    return require_spec(specs, 0, name)


def refuse_onnx_bool(spec: TensorSpec, name: str, operator: str) -> None:
    """Raise UnfitArguments for a bool input, which ONNX's ``name`` does not accept, but torch's ``operator`` does."""
    if spec.dtype.kind is Kind.BOOL:
        raise UnfitArguments(f"ONNX has no {name} of bool; write `op: {operator}` to test torch's")


def require_exact(name: str, value: float, spec: TensorSpec) -> None:
    """Require a number that the dtype of ``spec`` holds: an integer for integers, 0 or 1 for bool.

    Raises:
        UnfitArguments: for another number, or an integer so large that a plan does not keep its last digits.
    """
    if spec.dtype.is_inexact:
        return
    if spec.dtype.kind is Kind.BOOL:
        is_exact, expected = value in (0.0, 1.0), "0 or 1"
    else:
        is_exact, expected = value.is_integer() and abs(value) <= _LARGEST_EXACT, "an integer from -2**53 to 2**53"
    if not is_exact:
        raise UnfitArguments(f"{name} is {value:.17g}, expected {expected}: in ONNX it is {spec.dtype}, as the input")


def axis_of(axis: int, rank: int, name: str = "axis", *, last: int = -1) -> int:
    """Return the axis counted from the front; the highest allowed one is ``rank + last``.

    Raises:
        UnfitArguments: if it is out of range; ``name`` is the attribute in the message.
    """
    if rank + last < -rank:
        raise UnfitArguments(f"{name} is {axis}, expected an input with dimensions: it is a scalar")
    if not -rank <= axis <= rank + last:
        raise UnfitArguments(f"{name} is {axis}, expected {-rank} to {rank + last}")
    return axis + rank if axis < 0 else axis


def refuse(name: str, value: Any, only: Any, reason: str) -> None:
    """Raise UnfitArguments for any value except ``only``; ``reason`` ends the message with why, or what to do."""
    if value != only:
        # Plans write ONNX's flags as 1 and 0.
        shown, expected = (int(number) if isinstance(number, bool) else number for number in (value, only))
        raise UnfitArguments(f"{name} is {shown!r}, expected {expected!r}: {reason}")
