"""Registry of wrong kernels: faults with tags, the call that a fault changes, the backend that has one fault.

A backend with a fault returns the references' outputs, rounded once; its fault replaces the outputs of one operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from optest.api.checking import sample_cases
from optest.backends import BackendDriver, backend_manager
from optest.backends.arguments import in_signature_order
from optest.backends.numpy_reference import NumpyBackend
from optest.core.expected import make_inputs
from optest.core.runner import execute, why_not_run
from optest.numerics import round_to
from optest.registry import load_object
from optest.spec import BAD_STATUSES, Numerics, Reason, TestCase, Verdict

Array = Any
# Returns the wrong outputs of a call, not yet rounded; None if the fault does not show.
Change = Callable[["Call"], "Sequence[Array] | Array | None"]

# Usual mistakes, which usual inputs reveal.
ORDINARY = "ordinary"
# Revealed only by a sample with a property: a size, a layout, a value, a form for which libraries have a kernel.
RARE = "rare"
# Reads outside of its inputs, which only the memory of a whole execution reveals.
MEMORY = "memory"

WITHOUT_FAULT = "without-fault"
FAULTS: dict[str, Fault] = {}
_correct = NumpyBackend()


@dataclass(frozen=True)
class Fault:
    name: str
    op: str
    change: Change
    reasons: tuple[Reason, ...] = (Reason.VALUE, Reason.NAN, Reason.READ_OUT_OF_BOUNDS)
    tags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Call:
    """One call of the operator, with its right outputs."""

    case: TestCase
    inputs: Sequence[Array]
    right: Sequence[Array]

    def __getitem__(self, position: int) -> Array:
        """Return the input at a position of the signature, None if it is left out."""
        return in_signature_order(self.case, self.inputs)[position] if position < len(self.inputs) + 3 else None

    def attribute(self, name: str) -> Any:
        return self.case.attributes[name]

    def with_attributes(self, **changed: Any) -> Sequence[Array]:
        """Return the reference's outputs for other attributes."""
        return self.referred(self.inputs, {**self.case.attributes, **changed})

    def with_inputs(self, *inputs: Array) -> Sequence[Array]:
        return self.referred(inputs, dict(self.case.attributes))

    def referred(self, inputs: Sequence[Array], attributes: dict[str, Any]) -> Sequence[Array]:
        reference = load_object(str(self.case.descriptor.reference))
        return tuple(reference(in_signature_order(self.case, list(inputs)), attributes))

    @property
    def is_float(self) -> bool:
        return bool(self.case.inputs) and self.case.inputs[0].spec.dtype.is_float

    @property
    def is_16_bit(self) -> bool:
        return self.is_float and self.case.inputs[0].spec.dtype.bits == 16

    @property
    def dim(self) -> int:
        dim = self.attribute("dim")
        return int(dim[0] if isinstance(dim, tuple) else -1 if dim is None else dim)

    def shape(self, place: int = 0) -> tuple[int, ...]:
        given = self[place]
        return () if given is None else tuple(given.shape)

    def dtype(self, place: int = 0) -> str:
        return str(self[place].dtype.name)

    def has_dtypes(self, *names: str) -> bool:
        return [array.dtype.name for array in self.inputs] == list(names)


def fault(name: str, op: str, *reasons: Reason, tags: Iterable[str] = (ORDINARY,)) -> Callable[[Change], Change]:
    """Keep a change under a name; by default its outputs are wrong by a value or a NaN.

    Raises:
        ValueError: if the name is taken.
    """

    def keep(change: Change) -> Change:
        if name in FAULTS:
            raise ValueError(f"there are two faults {name}")
        FAULTS[name] = Fault(name, op, change, reasons or Fault.reasons, frozenset(tags))
        return change

    return keep


rare = partial(fault, tags=(RARE,))
memory = partial(fault, tags=(RARE, MEMORY))


def tagged(tag: str) -> list[Fault]:
    return [each for each in FAULTS.values() if tag in each.tags]


class Faulty(BackendDriver):
    kind = "faulty"
    isolated = False
    numerics = Numerics(accumulator="float64")

    def __init__(self, name: str, fault: Fault | None) -> None:
        self.name = name
        self._fault = fault

    def run(self, case: TestCase, inputs: Sequence[Array]) -> Sequence[Array]:
        fault = self._fault
        if fault is None or fault.op != case.descriptor.name:
            return _correct.run(case, inputs)
        if fault.reasons == (Reason.NOT_REFUSED,):
            return _accepting(case, inputs)
        right = _correct.run(case, inputs)
        return outputs_of(fault, Call(case, inputs, right)) or right


def outputs_of(fault: Fault, call: Call) -> Sequence[Array] | None:
    """Return the wrong kernel's outputs, rounded; None if its fault does not show."""
    with np.errstate(all="ignore"):
        outputs = fault.change(call)
    if outputs is None:
        return None
    listed = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    return [_stored(output, spec.dtype) for output, spec in zip(listed, call.case.outputs, strict=True)]


def _accepting(case: TestCase, inputs: Sequence[Array]) -> Sequence[Array]:
    try:
        return _correct.run(case, inputs)
    except (ValueError, IndexError):
        return [np.zeros(1, np.float32)]


def _stored(output: Array, dtype: Any) -> Array:
    array = np.asarray(output)
    known = array.dtype == np.bool_ or array.dtype.kind in "iuf"
    return round_to(array, dtype) if known and array.dtype != np.float16 else array


def register_backends() -> None:
    """Register a backend for each fault, by its name, and one without a fault."""
    for name, each in FAULTS.items():
        backend_manager.register(Faulty(name, each))
    backend_manager.register(Faulty(WITHOUT_FAULT, None))


@contextmanager
def registered() -> Iterator[None]:
    """Register the backends within the block."""
    tables = (backend_manager._registry._entries, backend_manager._kinds, backend_manager._lazy)
    before = [dict(table) for table in tables]
    register_backends()
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def first_findings(op: str, faults: Iterable[Fault]) -> dict[str, Verdict]:
    """Return the first bad verdict of each of the operator's faults among the cases of ``optest check``, by its name.

    The inputs and outputs of a case are computed once for all faults; it is executed for those that change its outputs.
    """
    drivers = {fault: Faulty(fault.name, fault) for fault in faults}
    findings: dict[str, Verdict] = {}
    for case in sample_cases(op):
        left = [fault for fault in drivers if fault.name not in findings and why_not_run(case, drivers[fault]) is None]
        if not left:
            continue
        if case.expects_error is not None:
            shown = [fault for fault in left if Reason.NOT_REFUSED in fault.reasons]
        else:
            inputs, _ = make_inputs(case)
            call = Call(case, inputs, _correct.run(case, inputs))
            shown = [fault for fault in left if Reason.NOT_REFUSED not in fault.reasons and _shows(fault, call)]
        for fault in shown:
            (verdict,) = execute([case], drivers[fault]).verdicts
            if verdict.status in BAD_STATUSES:
                findings[fault.name] = verdict
    return findings


def _shows(fault: Fault, call: Call) -> bool:
    """Return whether the fault changes the outputs or raises as it should; for a fault of memory, if it applies."""
    try:
        outputs = outputs_of(fault, call)
    except Exception:
        if Reason.RAISED in fault.reasons:
            return True
        raise
    if outputs is None or MEMORY in fault.tags:
        return outputs is not None
    return not all(_same_bits(one, other) for one, other in zip(outputs, call.right, strict=True))


def _same_bits(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
