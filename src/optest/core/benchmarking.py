"""Timing of a passed case, also in alternation with another implementation; the timed outputs are compared, too."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from optest.backends import BackendDriver, PreparedCall, backend_manager
from optest.backends.abilities import PreparesCalls, writes_outputs
from optest.backends.arguments import in_signature_order
from optest.core.actual import outputs_in_order
from optest.core.border import Border
from optest.core.kept_tensors import element_error
from optest.core.layers import is_composed
from optest.errors import UsageError
from optest.numerics import Array, ErrorStateKept, private_copy, reset_float_mode
from optest.registry import load_object
from optest.spec import Benchmark, Fault, Reason, Status, TensorSpec, TestCase, Verdict
from optest.timing import Clock, Samples, Subject, measure, ratios

# Compares the outputs of a driver with the expected ones, by the rules of the case.
CompareOutputs = Callable[[BackendDriver, Sequence[Array]], Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Options of timing.

    Each implementation is called for ``target_s`` seconds. ``against`` is the backend to compare with, optionally with
    a device as in ``torch:cuda``. ``baseline`` is the variant whose outputs those of other variants are compared with,
    "" for none.
    """

    target_s: float = 0.2
    against: str = ""
    baseline: str = ""


def benchmark_of(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    outputs: Sequence[TensorSpec],
    compare: CompareOutputs,
    options: BenchOptions,
    *,
    clock: Clock = time.perf_counter,
) -> Benchmark:
    """Time the case on ``driver`` and return its times, those of ``options.against``, and the ratio of both.

    ``outputs`` are the specs of the case's outputs. ``lacks`` of the result says what could not be timed or compared;
    another implementation whose outputs are wrong is not timed.

    Raises:
        Fault: if the backend raises while it is timed; STATE if its outputs are wrong afterwards.
    """
    # each element of each tensor once; broadcast elements share one position in memory
    specs = [*(argument.spec for argument in case.inputs), *outputs]
    moved = sum(min(spec.elements, spec.storage_elements) * spec.dtype.bits for spec in specs) // 8
    operations = _operations(case)
    with Border("the backend, while it was timed,", Reason.RAISED), ExitStack() as stack:
        try:
            call = _prepared_call(stack, driver, case, inputs)
        except Fault as fault:
            lack = f"timing: not possible, {fault.message}"
            return Benchmark(declared_bytes=moved, declared_operations=operations, lacks=(lack,))
        compared, lacks = _compared_subjects(stack, case, inputs, compare, options.against)
        subjects = [_subject(driver, call), *compared]
        with ErrorStateKept():
            samples = measure(subjects, target_s=options.target_s, clock=clock)
        timed_outputs = _require_right(driver, case, call, compare, samples[0])
        difference: float | None = None
        if options.baseline not in ("", case.backend.variant):
            difference, lack = _baseline_difference(stack, driver, case, inputs, timed_outputs, options.baseline)
            lacks += (lack,) if lack else ()
    times = [sample.call_time(moved_bytes=moved or None, operations=operations or None) for sample in samples]
    ratio, spread = ratios(*samples) if len(samples) == 2 else (None, None)
    return Benchmark(
        time=times[0],
        against=times[1] if len(times) == 2 else None,
        ratio=ratio,
        ratio_spread=spread,
        declared_bytes=moved,
        declared_operations=operations,
        lacks=lacks,
        baseline_difference=difference,
    )


def comparison_called(against: str) -> BackendDriver:
    """Return the driver to compare with: ``torch``, or a new one on another device, ``torch:cuda``.

    A driver of a compiler is compared without the compiler.

    Raises:
        UnknownName, Unavailable: if the backend is not registered or cannot be loaded.
        UsageError: if the backend has no call that can be timed, or if it accepts no device.
    """
    name, _, device = against.partition(":")
    driver = backend_manager.get(name)
    if not isinstance(driver, PreparesCalls):
        raise UsageError(f"backend {name} has no call that can be timed separately, so it cannot be compared with")
    if not device and "compile_backend" in driver.options:
        device = driver.device() or ""  # a new driver on the same device, without the compiler of this run
    return _on_device(driver, device) if device else driver


@lru_cache(maxsize=8)
def _on_device(driver: BackendDriver, device: str) -> BackendDriver:
    if "torch_device" not in driver.options:
        raise UsageError(f"backend {driver.name} accepts no device; compare with {driver.name} without :{device}")
    another = type(driver)()
    another.configure({"torch_device": device})
    return another


def _prepared_call(stack: ExitStack, driver: BackendDriver, case: TestCase, inputs: Sequence[Array]) -> PreparedCall:
    """Return the call to be timed, on copies of the inputs: the driver's prepared one, else its whole `run`.

    Leaving ``stack`` releases it. Raise Fault if the driver raises or has no call that can be timed.
    """
    private = [
        private_copy(array, argument.spec.lowest_index if argument.spec.offset else 0)
        for argument, array in zip(case.inputs, inputs, strict=True)
    ]
    with ErrorStateKept(), Border(f"backend {driver.name}, while it prepared the call,", Reason.RAISED):
        context = None
        if isinstance(driver, PreparesCalls) and not is_composed(driver, case.descriptor):
            context = driver.prepared(case, private)
        elif not is_composed(driver, case.descriptor) and not writes_outputs(driver, case):
            run = partial(driver.run, case, private)
            return PreparedCall(call=run, outputs=run, description=f"{driver.name}, the whole of `run`")
        if context is None:
            raise Fault(Reason.UNSUPPORTED, f"backend {driver.name} has no call that can be timed separately")
        return stack.enter_context(context)


def _compared_subjects(
    stack: ExitStack, case: TestCase, inputs: Sequence[Array], compare: CompareOutputs, against: str
) -> tuple[list[Subject], tuple[str, ...]]:
    """Return the prepared case on the backend ``against``, if any, or a note why it cannot be timed or is wrong."""
    if not against:
        return [], ()
    try:
        with Border(f"backend {against}", Reason.RAISED):
            driver = comparison_called(against)
            if why := driver.unsupported(case):
                raise Fault(Reason.UNSUPPORTED, why)
            call = _prepared_call(stack, driver, case, inputs)
            verdict = compare(driver, outputs_in_order(case, call.outputs()))
    except Fault as fault:
        return [], (f"comparison with {against}: not possible, {fault.message}",)
    if not _is_right(verdict):
        return [], (f"comparison with {against}: not timed, since its output is wrong: {_describe_error(verdict)}",)
    return [_subject(driver, call)], ()


def _require_right(
    driver: BackendDriver, case: TestCase, call: PreparedCall, compare: CompareOutputs, samples: Samples
) -> Sequence[Array]:
    """Return the outputs of one more call after the timed ones; raise Fault with STATE if they are wrong."""
    calls = samples.warm_up_calls + samples.calls_in_batch * len(samples.seconds)
    with ErrorStateKept():
        outputs = outputs_in_order(case, call.outputs())
    reset_float_mode()  # the calls may have set flush-to-zero, which the comparison must not use
    verdict = compare(driver, outputs)
    if not _is_right(verdict):
        raise Fault(
            Reason.STATE,
            f"after {calls:,} calls in a row the outputs are wrong, though the first were right: "
            f"{_describe_error(verdict)}",
        )
    return outputs


def _baseline_difference(
    stack: ExitStack,
    driver: BackendDriver,
    case: TestCase,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    variant: str,
) -> tuple[float | None, str]:
    """Return the largest difference of ``outputs`` from those of ``variant`` and ""; None and a note if it fails."""
    try:
        baseline = replace(case, backend=replace(case.backend, variant=variant))
        with ErrorStateKept(), Border(f"variant {variant}", Reason.RAISED):
            expected = outputs_in_order(case, _prepared_call(stack, driver, baseline, inputs).outputs())
    except Fault as fault:
        return None, f"difference from {variant}: not possible, {fault.message}"
    pairs = zip(outputs, expected, strict=True)
    return max((_largest_difference(*pair) for pair in pairs), default=0.0), ""


def _largest_difference(left: Array, right: Array) -> float:
    """Return the largest absolute difference of two arrays; infinity for different shapes or NaN in one of them."""
    errors = element_error(left, right)
    return math.inf if errors is None else float(np.where(np.isnan(errors), math.inf, errors).max(initial=0.0))


def _subject(driver: BackendDriver, call: PreparedCall) -> Subject:
    device = driver.device()
    name = f"{driver.name}:{device}" if device else driver.name
    return Subject(who=call.description or name, call=call.call, synchronize=call.synchronize)


def _is_right(verdict: Verdict) -> bool:
    return verdict.status in (Status.PASSED, Status.SUSPECT)


def _describe_error(verdict: Verdict) -> str:
    """Return the message of a bad verdict, else the number of wrong elements of each output."""
    return verdict.message or "; ".join(
        f"{measure.mismatched} of {measure.compared} elements of {measure.output}"
        for measure in verdict.measures
        if measure.mismatched
    )


def _operations(case: TestCase) -> int | None:
    """Return the number of arithmetic operations that the descriptor declares for the case; None if it does not."""
    hook: Any = case.descriptor.operations
    if hook is None:
        return None
    count = load_object(hook)
    operations = count(in_signature_order(case, [argument.spec for argument in case.inputs]), case.attributes)
    return None if operations is None else int(operations)
