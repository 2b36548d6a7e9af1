"""Outputs of a backend for a case: called on private copies and guarded memory, returned in the operator's order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from optest.backends import BackendDriver, ExtraOutput
from optest.backends.abilities import writes_outputs
from optest.backends.command_abilities import DeclaresCapabilities
from optest.core.border import Border
from optest.core.layers import composed_outputs, is_composed
from optest.core.reference_functions import ReferenceFunction
from optest.errors import UnknownName
from optest.memory.buffers import Buffer, never_written, require_written
from optest.memory.margins import Margins, Padded
from optest.memory.poisons import WRITE_POISONS, Poison
from optest.numerics import (
    Array,
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

# Types of results: any other subclass may have a mask or another meaning, and defines its own comparisons.
PLAIN_ARRAYS = (np.ndarray, np.memmap)

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
_OF_PARTS = Check(name="layer", state=CheckState.NOTE, detail="computed by optest from calls of operators")
# Up to this size the copy of an input with its margins is compared as a whole.
_SMALL_BYTES = 1 << 14
_INTERNAL, _RAISED = Reason.INTERNAL, Reason.RAISED
_SAME_BITS = Check(name="same bits in a second run", state=CheckState.DONE)


class BackendResult(NamedTuple):
    """Outputs of a backend for a case, or its fault, with the checks that were made."""

    outputs: Sequence[Array]
    checks: tuple[Check, ...]
    fault: Fault | None = None
    # Outputs of other calls; None if the driver is to be asked for them after the first call has passed.
    further: Sequence[ExtraOutput] | None = None


def run_backend(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    layouts: Sequence[tuple[str, TensorSpec]] | None,
    notes: tuple[Check, ...],
    interrupted: Callable[[], bool] | None,
    allocated: list[Array] | None = None,
) -> BackendResult:
    """Run the case on the backend, and return its outputs or fault with the checks.

    ``layouts`` are the reference's names and specs of the outputs; ``notes`` are checks about the expected values;
    ``allocated`` is that of :func:`actual_outputs`.
    """
    try:
        outputs, checks = actual_outputs(case, driver, inputs, layouts, interrupted, allocated)
    except Fault as fault:
        return BackendResult((), notes + _checks_of_driver(case, driver), _raised_if_declared(case, driver, fault))
    further = notes + _checks_of_driver(case, driver)
    # A check that the driver reports replaces ours of the same name.
    replaced = [check.name for check in further if check.state in _ABOUT_POSSIBILITY]
    if replaced:
        checks = tuple(x for x in checks if x.state not in _ABOUT_POSSIBILITY or x.name not in replaced)
    return BackendResult(outputs, checks + further)


def _raised_if_declared(case: TestCase, driver: BackendDriver, fault: Fault) -> Fault:
    """Return a RAISED fault for an UNSUPPORTED one if the driver declares its capabilities; else ``fault`` itself."""
    # Such a driver has to decline before it is called, or not at all.
    if fault.reason is not Reason.UNSUPPORTED or not isinstance(driver, DeclaresCapabilities):
        return fault
    if is_composed(driver, case.descriptor):
        return fault
    message = f"{driver.name} declares that it supports this call of {case.descriptor.name}, but refused it"
    return Fault(Reason.RAISED, f"{message}: {fault.message}", details=fault.details)


def extra_outputs(case: TestCase, driver: BackendDriver) -> Sequence[ExtraOutput]:
    """Return the outputs with other bits that the driver got while it last ran the case.

    Raises:
        Fault: RAISED if the driver's `further` fails.
    """
    if is_composed(driver, case.descriptor):
        return ()
    with Border("the backend's `further`", Reason.RAISED):
        return tuple(driver.further(case))


def _checks_of_driver(case: TestCase, driver: BackendDriver) -> tuple[Check, ...]:
    """Return the driver's own checks; if that fails, one INCONCLUSIVE check, and the outputs stay valid."""
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
    allocated: list[Array] | None = None,
    margins: Margins | None = None,
) -> tuple[Sequence[Array], tuple[Check, ...]]:
    """Call the driver, and return its outputs in the operator's order with the checks that were made.

    ``layouts`` are names and specs of the outputs for drivers that write into buffers. ``allocated`` receives the
    arrays that the backend allocated, of which the outputs are copies. ``margins`` are those of the inputs.

    Raises:
        Fault: if the call fails, writes memory that it should not touch, leaves a float mode that cannot be reset, or
            has other bits in a second run of a backend that declares itself invariant.
    """
    if is_composed(driver, case.descriptor):
        return _outputs_of_layer(case, driver, inputs, interrupted)
    call = _Call(case, driver, inputs, interrupted, margins or Margins(driver.margin_bytes))
    buffers: list[tuple[str, TensorSpec]] = []
    if writes_outputs(driver, case):  # by the layouts of the reference, or else of the case; if unknown, none
        names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
        buffers = [*layouts] if layouts else list(zip(names, case.outputs, strict=True))
    checks: tuple[Check, ...] = _INTO_OUR_BUFFERS if buffers else _ALLOCATED_BY_BACKEND
    try:
        outputs = _outputs_of_call(call, buffers, allocated)
        if driver.numerics_of(case).invariant:
            if not same_bits(outputs, _outputs_of_call(call, buffers)):
                message = "a second run has other bits, but the backend declares itself invariant"
                raise Fault(Reason.NONDETERMINISTIC, message)
            checks = (*checks, _SAME_BITS)
    finally:
        left_behind = reset_float_mode()
        if left_behind and reset_float_mode():
            raise Fault(Reason.STATE, f"the backend left {left_behind} behind, which cannot be reset here")
    if left_behind:
        detail = f"the backend left {left_behind} behind; it was reset before the comparison"
        checks = (*checks, Check(name="floating-point mode", state=CheckState.NOTE, detail=detail))
    return outputs, checks


def _outputs_of_layer(
    case: TestCase, driver: BackendDriver, inputs: Sequence[Array], interrupted: Callable[[], bool] | None
) -> tuple[Sequence[Array], tuple[Check, ...]]:
    """Return the outputs and checks of a layer; every part is called like a case, with copies and guarded buffers."""
    checks: dict[Check, None] = {}

    def run_part(part: TestCase, arrays: Sequence[Array]) -> Sequence[Array]:
        try:
            outputs, checks_of_part = actual_outputs(part, driver, arrays, None, interrupted)
        except Fault as fault:
            raise _raised_if_declared(part, driver, fault) from None
        checks.update(dict.fromkeys(checks_of_part))
        return outputs

    outputs = composed_outputs(case, driver, inputs, run_part)
    return outputs, (*checks, _OF_PARTS)


class _Call(NamedTuple):
    """Call of a driver for a case; ``margins`` are put around the copies of its inputs."""

    case: TestCase
    driver: BackendDriver
    inputs: Sequence[Array]
    interrupted: Callable[[], bool] | None
    margins: Margins


def _outputs_of_call(
    call: _Call, buffers: list[tuple[str, TensorSpec]], allocated: list[Array] | None = None
) -> Sequence[Array]:
    """Call the driver in its way (into our buffers, on our memory, or on copies), and return copies of its outputs.

    Outputs of a reference or of a driver that guards memory are not copied.
    """
    case, driver = call.case, call.driver
    with ErrorStateKept(), Border("the backend", _RAISED, call.interrupted) as border:
        if buffers:
            outputs = _fill_buffers(call, buffers)
        elif driver.guards_memory:
            outputs = outputs_in_order(case, _call_on_views(call, driver.run, call.inputs))
        else:
            left: dict[str, Array] = {}
            outputs = outputs_in_order(case, _call_on_copies(call, driver.run, left=left), left)
        # The content at the end of the call counts: later writes of a kernel that is still running come too late.
        if driver.is_reference or driver.guards_memory:
            return outputs
        if allocated is not None and not buffers:
            allocated += outputs
        border.who, border.reason = "keeping a copy of the outputs", _INTERNAL
        return [np.array(output) for output in outputs]


def _call_on_copies(call: _Call, run: Callable[..., Any], *arguments: Any, left: dict[str, Array] | None = None) -> Any:
    """Run ``run``, a method of the driver, on private copies of the inputs, and return its result.

    It raises a fault if the call changed an input that it must not change, or memory around it. ``left`` receives the
    copies.
    """
    inputs = call.case.inputs
    private = [
        call.margins.around(array, index, before=argument.spec.lowest_index if argument.spec.offset else 0)
        for index, (argument, array) in enumerate(zip(inputs, call.inputs, strict=True))
    ]
    if call.margins.before_call is not None:
        call.margins.before_call()
    before = [padded.storage.tobytes() if padded.storage.nbytes <= _SMALL_BYTES else None for padded in private]
    arrays = [padded.array for padded in private]
    returned = _call_on_views(call, run, arrays, *arguments)
    for padded, memory in zip(private, before, strict=True):
        if memory is None or padded.storage.tobytes() != memory:
            _require_unchanged(call.case, call.inputs, private, call.driver)
            break
    if left is not None:
        for argument, array in zip(inputs, arrays, strict=True):
            left[argument.name] = array
    return returned


def _call_on_views(call: _Call, run: Callable[..., Any], inputs: Sequence[Array], *arguments: Any) -> Any:
    """Run ``run`` on views of ``inputs``; restore changed attributes of the case; exit if it returned in a fork.

    The caller copies the inputs for code that may write to them, and converts exceptions.
    """
    case, process = call.case, os.getpid()
    attributes = dict(case.attributes)
    # Views in a new list, so that no new shape, dtype or order of them hides a change of the memory.
    try:
        returned = run(case, [array.view() for array in inputs], *arguments)
    finally:
        if os.getpid() != process:  # foreign code forked, and its child returned here
            leave(1)
        # Reports, later repetitions and replays use the case as the plan specifies it.
        if case.attributes != attributes:
            changed = dict(case.attributes)
            if isinstance(case.attributes, MutableMapping):
                case.attributes.clear()
                case.attributes.update(attributes)
            raise Fault(Reason.STATE, f"the backend changed the case's attributes from {attributes} to {changed}")
    return returned


def _require_unchanged(case: TestCase, before: Sequence[Array], after: Sequence[Padded], driver: BackendDriver) -> None:
    """Raise a fault if a call wrote around an input, between its elements, or into one that it must not change.

    Raises:
        Fault: OUT_OF_BOUNDS or INPUT_MUTATED, with the input and the first index.
    """
    reference = case.descriptor.reference
    changed_by_reference = [*filter(None, reference.changed)] if isinstance(reference, ReferenceFunction) else []
    mutates = {*case.descriptor.mutates, *driver.writes_inputs(case), *changed_by_reference}
    reports: dict[str, str] = {}
    details: dict[str, Any] = {}
    for argument, original, padded in zip(case.inputs, before, after, strict=True):
        after_call = padded.array
        if change := padded.written(f"{argument.path} ({argument.name})"):
            raise Fault(Reason.OUT_OF_BOUNDS, str(change), details={"input": argument.name})
        # The bytes of a tensor are compared in a tenth of the time that its elements take.
        if argument.name in mutates or (
            original.strides == after_call.strides and are_same_memory(original, after_call)
        ):
            continue
        changed = bits(original) != bits(after_call)
        if not changed.any():
            if have_same_gaps(original, after_call):
                continue
            raise Fault(
                Reason.OUT_OF_BOUNDS,
                f"memory between the elements of {argument.path} ({argument.name}) was written",
                details={"input": argument.name},
            )
        index = tuple(int(axis[0]) for axis in np.nonzero(np.atleast_1d(changed)))[: changed.ndim]
        reports[argument.name] = (
            f"{int(changed.sum())} of {changed.size} elements of {argument.path} ({argument.name}) were changed; "
            f"the first at {list(index)}: {original[index]} became {after_call[index]}"
        )
        details = details or {"input": argument.name, "index": list(index)}
    if reports:
        if changed_by_reference:
            details["by_reference"] = ", ".join(changed_by_reference)
        elif describe := getattr(driver, "in_place_decorator", None):
            details["decorator"] = describe(case, [*reports])
        raise Fault(Reason.INPUT_MUTATED, "\n".join(reports.values()), details=details)


def _fill_buffers(call: _Call, outputs: Sequence[tuple[str, TensorSpec]]) -> Sequence[Array]:
    """Return guarded buffers that the backend wrote; it is called twice if anything still looks like the poison."""

    def filled(poison: Poison) -> list[Buffer]:
        """Return poisoned buffers that the backend has written; raise OUT_OF_BOUNDS for writes outside them."""
        options: dict[str, Any] = {"poison": poison, "guard_bytes": call.margins.nbytes}
        buffers = [Buffer.allocate(spec, name=f"output {name}", **options) for name, spec in outputs]
        arrays = [buffer.array for buffer in buffers]
        _call_on_copies(call, getattr(call.driver, "run_into"), arrays)  # noqa: B009 - not of every driver
        for (name, _), buffer in zip(outputs, buffers, strict=True):
            change = buffer.outside()
            if change is not None:
                raise Fault(Reason.OUT_OF_BOUNDS, str(change), details={"output": name})
        return buffers

    # A right result may equal the poison; only a never-written element equals both poisons.
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


def outputs_in_order(case: TestCase, returned: Any, left: Mapping[str, Array] | None = None) -> list[Array]:
    """Return the outputs of a call in the operator's order.

    A single array is one output; a mapping is ordered by output names. ``left`` are the inputs as the call left them.

    Raises:
        Fault: MISSING_OUTPUT for None or a missing name, EXTRA_OUTPUT for an unknown name, DTYPE for an object that is
            no array or has an unknown element type.
    """
    if isinstance(reference := case.descriptor.reference, ReferenceFunction):
        dtypes = [numpy_dtype(argument.spec.dtype) for argument in case.inputs]
        returned = reference.outputs_in_order(returned, dtypes, left or {}) or None
    if isinstance(returned, (tuple, list)):
        if all([type(value) is np.ndarray and is_known(value.dtype) for value in returned]):  # noqa: C419 - no frame
            return list(returned)
        return [_plain_array(value, f"output {index}") for index, value in enumerate(returned)]
    if returned is None:
        raise Fault(Reason.MISSING_OUTPUT, "the backend returned None, expected a sequence of arrays")
    if isinstance(returned, (np.ndarray, np.generic)):
        return [_plain_array(returned, "output 0")]
    if isinstance(returned, Mapping):
        return _outputs_by_name(case, returned)
    raise Fault(
        Reason.DTYPE,
        f"the backend returned {type(returned).__name__}, expected a sequence of NumPy arrays",
    )


def _outputs_by_name(case: TestCase, returned: Mapping[str, Any]) -> list[Array]:
    """Return the values of a mapping in the order of the outputs; raise ``Fault`` for unknown or missing names."""
    signature = case.descriptor.tensors
    names = (case.outputs and signature.output_names(len(case.outputs))) or signature.outputs
    by_index: dict[int, Array] = {}
    for name, value in returned.items():
        try:
            side, index = case.descriptor.tensors.locate(name)
        except UnknownName as error:
            raise Fault(Reason.EXTRA_OUTPUT, f"the backend returned an unexpected output: {error}") from None
        if side != "output":
            raise Fault(Reason.EXTRA_OUTPUT, f"the backend returned {name!r}, which is an input of the operator")
        if index >= len(names):
            raise Fault(Reason.EXTRA_OUTPUT, f"the backend returned {name!r}, but there are {len(names)} outputs")
        if index in by_index:
            raise Fault(Reason.EXTRA_OUTPUT, f"the backend returned output {names[index]!r} twice, also as {name!r}")
        by_index[index] = _plain_array(value, f"output {name!r}")
    missing = [name for index, name in enumerate(names) if index not in by_index]
    if missing:
        raise Fault(Reason.MISSING_OUTPUT, f"the backend returned no output {', '.join(map(repr, missing))}")
    return [by_index[index] for index in sorted(by_index)]


def _plain_array(value: Any, name: str) -> Array:
    """Return an output as a plain NumPy array; raise ``Fault`` if it is none or has an unknown element type."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if value is None:
        raise Fault(Reason.MISSING_OUTPUT, f"{name} is None, expected a NumPy array")
    if type(value) not in PLAIN_ARRAYS:
        kind = "a subclass of NumPy's array" if isinstance(value, np.ndarray) else "no NumPy array"
        raise Fault(Reason.DTYPE, f"{name} is {type(value).__name__}, {kind}, expected a plain NumPy array")
    array: Array = np.asarray(value)
    if not is_known(array.dtype):
        raise Fault(Reason.DTYPE, f"{name} has elements of type {array.dtype}, expected a dtype of optest")
    return array
