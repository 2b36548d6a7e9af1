"""Kernels that are wrong on purpose, asked everything that ``optest check`` asks with default settings.

A fault is a function ``(inputs, attributes, right) -> outputs``: it gets what the case's inputs are and what the
reference makes of them, rounded, and returns what the faulty kernel would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from optest.api.checking import check_request
from optest.backends.numpy_reference import NumpyBackend, reference_outputs
from optest.core.runner import execute
from optest.numerics import MARGIN_BYTES, dtype_of, round_to
from optest.operators import operators
from optest.registry import load_object
from optest.spec import BAD_STATUSES, Numerics, Reason, Status, TestCase

Fault = Callable[[Sequence[Any], Mapping[str, Any], list[Any]], Sequence[Any]]

__all__ = ["Fault", "cases_of", "finds", "found_by", "read_as_dense", "refuses_nothing", "unexpected"]


class _Faulty(NumpyBackend):
    """The references with one fault; a backend like any other."""

    is_reference = False
    numerics = Numerics()

    def __init__(self, fault: Fault | None) -> None:
        self.fault = fault

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        try:
            outputs = reference_outputs(case, inputs)
        except ValueError:
            if not getattr(self.fault, "refuses_nothing", False):
                raise
            outputs = []
        right = [round_to(each, spec.dtype) for each, spec in zip(outputs, case.outputs, strict=bool(outputs))]
        return right if self.fault is None else list(self.fault(inputs, case.attributes, right))


def read_as_dense(operator: str, *places: int) -> Fault:
    """The inputs at ``places``, all if none, are read as if they were dense, from the start of their storage."""
    reference = load_object(str(operators.get(operator).reference))

    def fault(inputs: Sequence[Any], attributes: Mapping[str, Any], right: list[Any]) -> Sequence[Any]:
        read = [
            _dense(each) if each is not None and (not places or index in places) else each
            for index, each in enumerate(inputs)
        ]
        found = reference(read, dict(attributes))
        return [round_to(each, dtype_of(wanted.dtype)) for each, wanted in zip(found, right, strict=True)]

    return fault


def _dense(array: Any) -> Any:
    storage = array
    while isinstance(storage.base, np.ndarray):
        storage = storage.base
    if array.flags.c_contiguous and storage.size == array.size:
        return array
    content = np.asarray(storage).reshape(-1).view(np.uint8)[MARGIN_BYTES:-MARGIN_BYTES]  # between optest's margins
    return np.resize(content[: content.size // array.itemsize * array.itemsize].view(array.dtype), array.shape)


def refuses_nothing(fault: Fault) -> Fault:
    """A kernel that is asked what it should refuse too; there is nothing right about that."""
    fault.refuses_nothing = True  # type: ignore[attr-defined]
    return fault


@cache
def cases_of(operator: str) -> Sequence[TestCase]:
    """What ``optest check --op operator`` asks."""
    return check_request({"backend": "numpy", "op": [operator], "no_color": True}).run.cases


_SHOWN = {
    *(Reason.VALUE, Reason.NAN, Reason.SHAPE, Reason.DTYPE, Reason.MISSING_OUTPUT, Reason.EXTRA_OUTPUT),
    *(Reason.NOT_REFUSED, Reason.INPUT_MUTATED),
}


def _verdicts(operator: str, fault: Fault | None) -> Iterator[tuple[str, Status, Reason | None, str]]:
    driver = _Faulty(fault)
    for case in cases_of(operator):
        (verdict,) = execute([case], driver).verdicts
        yield case.id, verdict.status, verdict.reason, verdict.message


def found_by(operator: str, fault: Fault) -> list[str]:
    """The cases in which the fault was found out by its values, shapes, dtypes, NaN; not by raising."""
    return [name for name, _, reason, _ in _verdicts(operator, fault) if reason in _SHOWN]


def finds(operator: str, fault: Fault) -> bool:
    """Whether any case finds the fault; the others are not asked then."""
    return any(reason in _SHOWN for _, _, reason, _ in _verdicts(operator, fault))


def unexpected(operator: str, kernel: Fault | None = None) -> list[tuple[str, Status, Reason | None, str]]:
    """What the check says against another right kernel, or against the reference itself: nothing."""
    return [each for each in _verdicts(operator, kernel) if each[1] in BAD_STATUSES or each[1] is Status.SKIPPED]
