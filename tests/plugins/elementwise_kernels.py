"""Kernels of elementwise operators as functions of arrays, and whether the samples of an operator find them wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from sample_questions import Question, questions

from optest.backends.arguments import at_their_places
from optest.compare import judge
from optest.numerics import dtype_of, round_to, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import Numerics, Status

__all__ = [
    "Array",
    "Attributes",
    "Fault",
    "Inputs",
    "Right",
    "asked",
    "asked_of",
    "changed",
    "fitting",
    "instead",
    "is_found",
    "on_integers",
    "reference",
    "with_attributes",
]

Array = np.ndarray[Any, Any]
Inputs, Attributes, Right = Sequence[Any], Mapping[str, Any], list[Any]
Fault = Callable[[Inputs, Attributes, Right], Right]
"""From inputs, attributes and the right outputs to what the faulty kernel would give."""


@cache
def asked_of(operator: str) -> tuple[Question, ...]:
    """What ``optest check`` asks of an operator, but for what should be refused."""
    return tuple(each for each in questions(operator) if each.case.expects_error is None)


def is_found(operator: str, fault: Fault) -> bool:
    """Whether some answer is wrong by its value; a kernel that raises is no kernel."""
    return any(_is_wrong(each, fault) for each in asked_of(operator))


def _is_wrong(question: Question, fault: Fault) -> bool:
    case, expected = question.case, question.expected
    right = [round_to(each.value, each.dtype) for each in expected]
    answer = fault(at_their_places(case, question.inputs), case.attributes, right)
    verdict = judge(case, answer, expected, numerics=Numerics(), inputs=question.inputs)
    assert verdict.status in (Status.PASSED, Status.FAILED), verdict.message
    return verdict.status is Status.FAILED


def reference(operator: str, inputs: Inputs, attributes: Attributes) -> Array:
    descriptor = operators.get(operator)
    (found,) = load_object(descriptor.reference)(inputs, descriptor.bind(attributes))
    return np.asarray(found)


def asked(function: Callable[..., Any], *, attributes: bool = False) -> Fault:
    """A kernel that computes ``function`` in float32 (float64 of float64) where the result is a float."""

    def fault(inputs: Inputs, stated: Attributes, right: Right) -> Right:
        out = right[0]
        entry = dtype_of(out.dtype)
        if not entry.is_float:
            return right
        wide = np.float64 if entry.name == "float64" else np.float32
        with np.errstate(all="ignore"):
            operands = [np.asarray(widen(each)).astype(wide) for each in inputs]
            found = function(*operands, **({"stated": stated} if attributes else {}))
            found = np.asarray(found).astype(wide)
        return [round_to(np.broadcast_to(found, out.shape).astype(np.float64), entry)]

    return fault


def on_integers(function: Callable[..., Any]) -> Fault:
    """A kernel that is wrong for integers alone; both operands come as int64."""

    def fault(inputs: Inputs, _: Attributes, right: Right) -> Right:
        out = right[0]
        if out.dtype.kind not in "iu" or any(each.dtype.kind not in "iu" for each in inputs):
            return right
        with np.errstate(all="ignore"):
            found = function(out.dtype, *(each.astype(np.int64) for each in inputs))
            return [np.broadcast_to(np.asarray(found), out.shape).astype(out.dtype)]

    return fault


def with_attributes(operator: str, **changed: Any) -> Fault:
    def fault(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
        stated = {**attributes, **{k: v(attributes[k]) if callable(v) else v for k, v in changed.items()}}
        try:
            found = reference(operator, inputs, stated)
        except ValueError:
            return right
        return [fitting(found, right[0])]

    return fault


def fitting(found: Array, like: Array) -> Array:
    entry = dtype_of(like.dtype)
    return round_to(found, entry) if entry.is_float else np.asarray(found).astype(like.dtype)


def instead(operator: str) -> Fault:
    """Another operator's kernel under this one's name."""

    def fault(inputs: Inputs, _: Attributes, right: Right) -> Right:
        try:
            found = reference(operator, inputs, {})
        except Exception:  # the other operator does not take these
            return right
        return [fitting(found, right[0])]

    return fault


def changed(function: Callable[[Array, Inputs], Array]) -> Fault:
    """Spoils a right output, widened to float64 or int64."""

    def fault(inputs: Inputs, _: Attributes, right: Right) -> Right:
        out = right[0]
        with np.errstate(all="ignore"):
            return [fitting(np.asarray(function(widen(out), inputs)), out)]

    return fault
