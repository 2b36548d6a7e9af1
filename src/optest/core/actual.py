"""What a backend makes of a case: it is called on private copies, watched for what it does to memory, and its outputs
are a list of arrays in the operator's order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from optest.backends import BackendDriver, FurtherAnswer
from optest.backends.abilities import (
    GivesFurtherAnswers,
    guards_memory,
    margin_bytes,
    mutated_inputs,
    writes_outputs,
)
from optest.backends.command_abilities import StatesCapabilities
from optest.core.border import Border
from optest.core.layers import composed_outputs, is_composed
from optest.core.reference_functions import ReferenceFunction
from optest.errors import UnknownName
from optest.memory.buffers import Buffer, never_written, require_written
from optest.memory.margins import Margins, Padded
from optest.memory.poisons import WRITE_POISONS, Poison
from optest.numerics import (
    ErrorStateKept,
    are_same_memory,
    bits,
    have_same_gaps,
    is_known,
    numpy_dtype,
    reset_float_mode,
    same_bits,
)
from optest.process import leave
from optest.spec import Check, CheckState, Fault, Reason, TensorSpec, TestCase

Array = np.ndarray[Any, Any]

PLAIN_ARRAYS = (np.ndarray, np.memmap)
"""Types of results: any other subclass may have a mask or another meaning, and answers comparisons itself."""

_ABOUT_POSSIBILITY = (CheckState.DONE, CheckState.NOT_POSSIBLE)
_ALLOCATED_BY_BACKEND = (
    Check(name="inputs unchanged", state=CheckState.DONE),
    Check(name="outputs written", state=CheckState.NOT_POSSIBLE, detail="the backend allocates its outputs"),
    Check(name="guard zones", state=CheckState.NOT_POSSIBLE, detail="the backend allocates its outputs"),
)
_INTO_OUR_BUFFERS = (
    Check(name="inputs unchanged", state=CheckState.DONE),
    Check(name="outputs written", state=CheckState.DONE, detail="two poisons"),
    Check(name="guard zones", state=CheckState.DONE),
)
_OF_PARTS = Check(name="layer", state=CheckState.NOTE, detail="made of calls of operators, which optest makes")
_SMALL_BYTES = 1 << 14
_INTERNAL, _RAISED = Reason.INTERNAL, Reason.RAISED
_SAME_BITS = Check(name="same bits in a second run", state=CheckState.DONE)


class BackendAnswer(NamedTuple):
    """What the backend made of a case, or its fault, with what else was looked at."""

    outputs: Sequence[Array]
    checks: tuple[Check, ...]
    fault: Fault | None = None
    further: Sequence[FurtherAnswer] | None = None
    """Other answers, where they are known; None where the driver is asked when the first has passed."""


def ask_backend(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    layouts: Sequence[tuple[str, TensorSpec]] | None,
    notes: tuple[Check, ...],
    interrupted: Callable[[], bool] | None,
    own: list[Array] | None = None,
) -> BackendAnswer:
    """Ask the backend; ``layouts`` are the outputs' names and specs as the reference has them, ``notes`` what is to be
    said of the expected values, ``own`` is that of :func:`actual_outputs`."""
    try:
        outputs, checks = actual_outputs(case, driver, inputs, layouts, interrupted, own)
    except Fault as fault:
        return BackendAnswer((), notes + _checks_of_driver(case, driver), _kept_promise(case, driver, fault))
    further = notes + _checks_of_driver(case, driver)
    # what the driver says of a check replaces what is said of it here
    replaced = {(c.name, state) for c in further if c.state in _ABOUT_POSSIBILITY for state in _ABOUT_POSSIBILITY}
    return BackendAnswer(outputs, tuple(c for c in checks if (c.name, c.state) not in replaced) + further)


def _kept_promise(case: TestCase, driver: BackendDriver, fault: Fault) -> Fault:
    """A driver that states what it can do has said no before it was asked, or not at all."""
    if fault.reason is not Reason.UNSUPPORTED or not isinstance(driver, StatesCapabilities):
        return fault
    if is_composed(driver, case.descriptor):
        return fault
    what = f"{driver.name} states that it can do {case.descriptor.name} like this, and refused it"
    return Fault(Reason.RAISED, f"{what}: {fault.message}", details=fault.details)


def further_answers(case: TestCase, driver: BackendDriver) -> Sequence[FurtherAnswer]:
    """Answers with other bits that the driver got while it last ran the case.

    Raises:
        Fault: RAISED if the driver fails to say.
    """
    if not isinstance(driver, GivesFurtherAnswers) or is_composed(driver, case.descriptor):
        return ()
    with Border("the backend's `further`", Reason.RAISED):
        return tuple(driver.further(case))


def _checks_of_driver(case: TestCase, driver: BackendDriver) -> tuple[Check, ...]:
    """What the driver itself looked at; a driver that fails to say so is not believed, but keeps its outputs."""
    try:
        with Border("the backend's `checks`", Reason.RAISED):
            return tuple(driver.checks(case))
    except Fault as fault:
        return (Check(name="the backend's own checks", state=CheckState.INCONCLUSIVE, detail=fault.message),)


def actual_outputs(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    layouts: Sequence[tuple[str, TensorSpec]] | None,
    interrupted: Callable[[], bool] | None,
    own: list[Array] | None = None,
    margins: Margins | None = None,
) -> tuple[Sequence[Array], tuple[Check, ...]]:
    """Return the outputs in the operator's order and what was checked beside their values; and in ``own`` the arrays
    themselves that a backend allocated, of which these are copies. ``margins`` are those of the inputs.

    Raises:
        Fault: for whatever kept the backend from delivering, and for memory that it should not have touched.
    """
    if is_composed(driver, case.descriptor):
        return _outputs_of_layer(case, driver, inputs, interrupted)
    margins = margins or Margins(margin_bytes(driver))
    buffers: list[tuple[str, TensorSpec]] = []
    if writes_outputs(driver, case):  # by the layouts of the reference, or else of the case; if unknown, none
        names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
        buffers = [*layouts] if layouts else list(zip(names, case.outputs, strict=True))
    checks: tuple[Check, ...] = _INTO_OUR_BUFFERS if buffers else _ALLOCATED_BY_BACKEND
    try:
        outputs = _ask(case, driver, inputs, buffers, interrupted, margins, own)
        if driver.numerics_of(case).invariant:
            if not same_bits(outputs, _ask(case, driver, inputs, buffers, interrupted, margins)):
                what = "a second run gave other bits, but the backend declares itself invariant"
                raise Fault(Reason.NONDETERMINISTIC, what)
            checks = (*checks, _SAME_BITS)
    finally:
        left_behind = reset_float_mode()
        if left_behind and reset_float_mode():
            raise Fault(Reason.STATE, f"the backend left {left_behind} behind, which cannot be put back here")
    if left_behind:
        detail = f"the backend left {left_behind} behind; it was put back before anything was compared"
        checks = (*checks, Check(name="floating-point mode", state=CheckState.NOTE, detail=detail))
    return outputs, checks


def _outputs_of_layer(
    case: TestCase, driver: BackendDriver, inputs: Sequence[Array], interrupted: Callable[[], bool] | None
) -> tuple[Sequence[Array], tuple[Check, ...]]:
    """Every part is a call like that of a case, on private copies and into guarded buffers."""
    checks: dict[Check, None] = {}

    def ask(part: TestCase, arrays: Sequence[Array]) -> Sequence[Array]:
        try:
            outputs, looked_at = actual_outputs(part, driver, arrays, None, interrupted)
        except Fault as fault:
            raise _kept_promise(part, driver, fault) from None
        checks.update(dict.fromkeys(looked_at))
        return outputs

    outputs = composed_outputs(case, driver, inputs, ask)
    return outputs, (*checks, _OF_PARTS)


def _ask(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    buffers: list[tuple[str, TensorSpec]],
    interrupted: Callable[[], bool] | None,
    margins: Margins,
    own: list[Array] | None = None,
) -> Sequence[Array]:
    if buffers:
        outputs = _fill_our_buffers(case, driver, inputs, buffers, interrupted, margins)
    elif guards_memory(driver):
        outputs = in_order(case, _call_on_ours(driver.run, case, inputs, (), interrupted))
    else:
        left: dict[str, Array] = {}
        outputs = in_order(case, _call(driver, "run", case, inputs, (), interrupted, margins, left), left)
    # What counts is what stands there when the call is over: a kernel that is still running is not done.
    if driver.is_reference or guards_memory(driver):
        return outputs
    if own is not None and not buffers:
        own += outputs
    with Border("keeping a copy of the outputs", _INTERNAL):
        return [np.array(output) for output in outputs]


def _call(
    driver: BackendDriver,
    method: str,
    case: TestCase,
    inputs: Sequence[Array],
    further: tuple[Any, ...],
    interrupted: Callable[[], bool] | None,
    margins: Margins,
    left: dict[str, Array] | None = None,
) -> Any:
    """Call foreign code on private copies of the inputs and see that it left them as they were, but for those that it
    may change; ``left`` is filled with the copies.

    It gets views in a list of its own, so that no new shape, dtype or order of them hides what it did to the memory.
    NumPy's error mode is put back, and a copy of this process that foreign code made ends where the call ends.
    """
    private = [
        margins.around(array, place, before=argument.spec.lowest_index if argument.spec.offset else 0)
        for place, (argument, array) in enumerate(zip(case.inputs, inputs, strict=True))
    ]
    run = getattr(driver, method)
    if margins.before_call is not None:
        margins.before_call()
    returned = _call_on_ours(run, case, [each.array for each in private], further, interrupted)
    _require_unchanged(case, inputs, private, driver)
    if left is not None:
        left.update({argument.name: each.array for argument, each in zip(case.inputs, private, strict=True)})
    return returned


def _call_on_ours(
    run: Callable[..., Any],
    case: TestCase,
    inputs: Sequence[Array],
    further: tuple[Any, ...],
    interrupted: Callable[[], bool] | None,
) -> Any:
    """Call a driver that leaves the inputs themselves alone, or foreign code on copies."""
    attributes = dict(case.attributes)
    process = os.getpid()
    try:
        with ErrorStateKept(), Border("the backend", _RAISED, interrupted):
            returned = run(case, [array.view() for array in inputs], *further)
    finally:
        if os.getpid() != process:
            leave(1)
        if case.attributes != attributes:
            _put_back(case, attributes)
    return returned


def _put_back(case: TestCase, attributes: Mapping[str, Any]) -> None:
    """Reports, later rounds and replays go by the case as the plan states it, not by what a backend made of it."""
    changed = dict(case.attributes)
    if isinstance(case.attributes, MutableMapping):
        case.attributes.clear()
        case.attributes.update(attributes)
    raise Fault(Reason.STATE, f"the backend changed the case's attributes from {dict(attributes)} to {changed}")


def _require_unchanged(case: TestCase, before: Sequence[Array], after: Sequence[Padded], driver: BackendDriver) -> None:
    reference = case.descriptor.reference
    changed_by_reference = [*filter(None, reference.changed)] if isinstance(reference, ReferenceFunction) else []
    mutates = {*mutated_inputs(driver, case), *changed_by_reference}
    reports: dict[str, str] = {}
    details: dict[str, Any] = {}
    for argument, given, padded in zip(case.inputs, before, after, strict=True):
        left = padded.array
        if change := padded.written(f"{argument.path} ({argument.name})"):
            raise Fault(Reason.OUT_OF_BOUNDS, str(change), details={"input": argument.name})
        if argument.name in mutates or _are_same(given, left):
            continue
        changed = bits(given) != bits(left)
        if not changed.any():
            if have_same_gaps(given, left):
                continue
            raise Fault(
                Reason.OUT_OF_BOUNDS,
                f"memory between the elements of {argument.path} ({argument.name}) was written",
                details={"input": argument.name},
            )
        index = tuple(int(axis[0]) for axis in np.nonzero(np.atleast_1d(changed)))[: changed.ndim]
        reports[argument.name] = (
            f"{int(changed.sum())} of {changed.size} elements of {argument.path} ({argument.name}) were changed; "
            f"the first at {list(index)}: {given[index]} became {left[index]}"
        )
        details = details or {"input": argument.name, "index": list(index)}
    if reports:
        if changed_by_reference:
            details["by_reference"] = ", ".join(changed_by_reference)
        elif describe := getattr(driver, "in_place_decorator", None):
            details["decorator"] = describe(case, [*reports])
        raise Fault(Reason.INPUT_MUTATED, "\n".join(reports.values()), details=details)


def _are_same(one: Array, other: Array) -> bool:
    """Whether tensors are plainly equal byte for byte, which costs a tenth of asking element by element."""
    if one.nbytes <= _SMALL_BYTES:
        return one.tobytes() == other.tobytes() and have_same_gaps(one, other)
    return one.strides == other.strides and are_same_memory(one, other)


def _fill_our_buffers(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    outputs: Sequence[tuple[str, TensorSpec]],
    interrupted: Callable[[], bool] | None,
    margins: Margins,
) -> Sequence[Array]:
    """Let the backend write into poisoned, guarded buffers, twice if anything still looks like the poison."""

    def filled(poison: Poison) -> list[Buffer]:
        room: dict[str, Any] = {"poison": poison, "guard_bytes": margins.nbytes}
        buffers = [Buffer.allocate(spec, name=f"output {name}", **room) for name, spec in outputs]
        arrays = [buffer.array for buffer in buffers]
        _call(driver, "run_into", case, inputs, (arrays,), interrupted, margins)
        for (name, _), buffer in zip(outputs, buffers, strict=True):
            change = buffer.outside()
            if change is not None:
                raise Fault(Reason.OUT_OF_BOUNDS, str(change), details={"output": name})
        return buffers

    first = filled(WRITE_POISONS[0])
    if any(buffer.has_untouched() for buffer in first):
        second = filled(WRITE_POISONS[1])
        require_written(
            {
                name: (one.array, never_written(one, other))
                for (name, _), one, other in zip(outputs, first, second, strict=True)
            }
        )
    return [buffer.array for buffer in first]


def in_order(case: TestCase, returned: Any, left: Mapping[str, Array] | None = None) -> list[Array]:
    """Return the outputs in the operator's order. A bare array is one output; a mapping goes by output name. ``left``
    are the inputs as the call left them.

    Raises:
        Fault: MISSING_OUTPUT for None or a name that is missing, EXTRA_OUTPUT for a name that the operator does
            not have, DTYPE for something that is no array or has an element type that optest does not know.
    """
    if isinstance(reference := case.descriptor.reference, ReferenceFunction):
        returned = (
            reference.placed(returned, [numpy_dtype(each.spec.dtype) for each in case.inputs], left or {}) or None
        )
    if isinstance(returned, (tuple, list)):
        if all([type(value) is np.ndarray and is_known(value.dtype) for value in returned]):  # noqa: C419 - no frame
            return list(returned)
        return [_array(value, f"output {index}") for index, value in enumerate(returned)]
    if returned is None:
        raise Fault(Reason.MISSING_OUTPUT, "the backend returned None, but should return a sequence of arrays")
    if isinstance(returned, (np.ndarray, np.generic)):
        return [_array(returned, "output 0")]
    if isinstance(returned, Mapping):
        return _by_name(case, returned)
    raise Fault(
        Reason.DTYPE,
        f"the backend returned {type(returned).__name__}, but should return a sequence of NumPy arrays",
    )


def _by_name(case: TestCase, returned: Mapping[str, Any]) -> list[Array]:
    signature = case.descriptor.tensors
    names = (case.outputs and signature.output_names(len(case.outputs))) or signature.outputs
    placed: dict[int, Array] = {}
    for name, value in returned.items():
        try:
            side, index = case.descriptor.tensors.locate(name)
        except UnknownName as error:
            raise Fault(Reason.EXTRA_OUTPUT, f"the backend returned an output that is not expected: {error}") from None
        if side != "output":
            raise Fault(Reason.EXTRA_OUTPUT, f"the backend returned {name!r}, which is an input of the operator")
        if index >= len(names):
            raise Fault(Reason.EXTRA_OUTPUT, f"the backend returned {name!r}, but there are {len(names)} outputs")
        if index in placed:
            raise Fault(Reason.EXTRA_OUTPUT, f"the backend returned output {names[index]!r} twice, also as {name!r}")
        placed[index] = _array(value, f"output {name!r}")
    missing = [name for index, name in enumerate(names) if index not in placed]
    if missing:
        raise Fault(Reason.MISSING_OUTPUT, f"the backend returned no output {', '.join(map(repr, missing))}")
    return [placed[index] for index in sorted(placed)]


def _array(value: Any, what: str) -> Array:
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if value is None:
        raise Fault(Reason.MISSING_OUTPUT, f"{what} is None, but should be a NumPy array")
    if type(value) not in PLAIN_ARRAYS:
        kind = "a subclass of NumPy's array" if isinstance(value, np.ndarray) else "no NumPy array"
        raise Fault(Reason.DTYPE, f"{what} is {type(value).__name__}, {kind}, but should be a plain NumPy array")
    array: Array = np.asarray(value)
    if not is_known(array.dtype):
        raise Fault(Reason.DTYPE, f"{what} has elements of type {array.dtype}, which no operator yields")
    return array
