"""Records of ONNX's names, and what their meanings ask of inputs and attributes again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from optest.operators.shapes import Specs, given
from optest.spec import Attribute, Kind, Meaning, Spelling, TensorSpec, UnfitArguments

SPELLINGS: dict[str, Spelling] = {}
"""By ONNX's name; of a name that is not here and is no alias either, the catalogue has no operator."""
_LAST_WHOLE = 2**53
"""Up to here a float has every whole number."""


def spelled(
    name: str,
    operators: str | tuple[str, ...],
    signature: str,
    *attributes: Attribute,
    inputs: tuple[int, ...] = (),
    description: str = "",
) -> Callable[[Meaning], Meaning]:
    """The decorated function is the meaning of ONNX's ``name``; the fields are those of :class:`Spelling`."""

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
    """The first input."""
    return given(specs, 0, name)


def refuse_bool(spec: TensorSpec, name: str, own: str) -> None:
    """``name`` is that of ONNX, ``own`` the operator that gives numbers for bool.

    Raises:
        UnfitArguments: for bool, of which ONNX has no such operator.
    """
    if spec.dtype.kind is Kind.BOOL:
        raise UnfitArguments(f"ONNX has no {name} of bool; torch's is `op: {own}`")


def require_exact(name: str, value: float, spec: TensorSpec) -> None:
    """A number that ONNX has in the dtype of ``spec``: of integers a whole one, of bool 0 or 1.

    Raises:
        UnfitArguments: for another, or one so large that a plan does not keep its last digits.
    """
    if spec.dtype.is_inexact:
        return
    if spec.dtype.kind is Kind.BOOL:
        is_exact, wanted = value in (0.0, 1.0), "0 or 1"
    else:
        is_exact, wanted = value.is_integer() and abs(value) <= _LAST_WHOLE, "a whole number from -2**53 to 2**53"
    if not is_exact:
        raise UnfitArguments(
            f"{name} is {value:.17g}, but should be {wanted}: in ONNX it is {spec.dtype}, as the input"
        )


def axis_of(stated: int, rank: int, name: str = "axis", *, last: int = -1) -> int:
    """The axis counted from the front; ``last`` is added to the rank for the highest that is allowed.

    Raises:
        UnfitArguments: if there is no such axis.
    """
    if rank + last < -rank:
        raise UnfitArguments(f"{name} is {stated}, but the input is a scalar, which has no dimension")
    if not -rank <= stated <= rank + last:
        raise UnfitArguments(f"{name} is {stated}, but should be from {-rank} to {rank + last}")
    return stated + rank if stated < 0 else stated


def refuse(name: str, value: Any, only: Any, instead: str) -> None:
    """Refuse any value but ``only``; ``instead`` says why, and what to do.

    Raises:
        UnfitArguments: for another value.
    """
    if value != only:
        shown, wanted = (int(each) if isinstance(each, bool) else each for each in (value, only))
        raise UnfitArguments(f"{name} is {shown!r}, but should be {wanted!r}: {instead}")
