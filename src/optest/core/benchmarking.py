"""The time of a case that passed, alone and in turns with another implementation; what was timed is judged again."""

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
from optest.backends.arguments import at_their_places
from optest.backends.command_abilities import configure, options_of
from optest.core.actual import in_order
from optest.core.border import Border
from optest.core.layers import is_composed
from optest.errors import UsageError
from optest.numerics import Array, ErrorStateKept, private_copy, reset_float_mode, widen
from optest.registry import load_object
from optest.spec import Benchmark, Fault, Reason, Status, TensorSpec, TestCase, Verdict
from optest.timing import Clock, Samples, Subject, measure, ratios

Judge = Callable[[BackendDriver, Sequence[Array]], Verdict]
"""Judges the outputs of a driver as those of the case are judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """``target_s`` seconds for each implementation; ``against`` is a backend, with a device as in ``torch:cuda``;
    ``baseline`` is the variant with whose answer that of another one is compared, "" for none."""

    target_s: float = 0.2
    against: str = ""
    baseline: str = ""


def benchmark_of(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    outputs: Sequence[TensorSpec],
    judge: Judge,
    options: BenchOptions,
    *,
    clock: Clock = time.perf_counter,
) -> Benchmark:
    """Time ``case`` on ``driver``; ``outputs`` are the specs of what it computes.

    What the driver or the comparison cannot do is said in ``lacks``; a comparison that gives a wrong answer is not
    timed.

    Raises:
        Fault: if the call that passed fails when it is made often, or STATE if its outputs are wrong then.
    """
    # each element of each tensor once; elements that share a place in memory are one
    specs = [*(argument.spec for argument in case.inputs), *outputs]
    moved = sum(min(spec.elements, spec.storage_elements) * spec.dtype.bits for spec in specs) // 8
    operations = _operations(case)
    with Border("the backend, while it was timed,", Reason.RAISED), ExitStack() as stack:
        try:
            mine = _ready(stack, driver, case, inputs)
        except Fault as fault:
            lack = f"timing: not possible, {fault.message}"
            return Benchmark(declared_bytes=moved, declared_operations=operations, lacks=(lack,))
        theirs, lacks = _comparison(stack, case, inputs, judge, options.against)
        subjects = [_subject(driver, mine), *theirs]
        with ErrorStateKept():
            samples = measure(subjects, target_s=options.target_s, clock=clock)
        outputs_now = _require_right(driver, case, mine, judge, samples[0])
        difference: float | None = None
        if options.baseline not in ("", case.backend.variant):
            difference, further = _from_baseline(stack, driver, case, inputs, outputs_now, options.baseline)
            lacks += further
    times = [each.call_time(moved_bytes=moved or None, operations=operations or None) for each in samples]
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
    """The backend to compare with: ``torch``, or ``torch:cuda`` on a device of its own.

    Raises:
        UnknownName, Unavailable: as for any backend.
        UsageError: for one that has no call to be timed, or that takes no device.
    """
    name, _, device = against.partition(":")
    driver = backend_manager.get(name)
    if not isinstance(driver, PreparesCalls):
        raise UsageError(f"backend {name} has no call that can be timed by itself, so nothing is compared with it")
    if not device and "compile_backend" in options_of(driver):
        device = driver.device() or ""  # without the compiler that this run asks, and nothing else
    return _on_device(driver, device) if device else driver


@lru_cache(maxsize=8)
def _on_device(driver: BackendDriver, device: str) -> BackendDriver:
    if "torch_device" not in options_of(driver):
        raise UsageError(f"backend {driver.name} takes no device; compare with {driver.name} alone")
    another = type(driver)()
    configure(another, {"torch_device": device})
    return another


def _ready(stack: ExitStack, driver: BackendDriver, case: TestCase, inputs: Sequence[Array]) -> PreparedCall:
    """The call on private copies of the inputs, until the stack is left.

    Raises:
        Fault: whatever keeps the driver from it.
    """
    private = [
        private_copy(array, argument.spec.lowest_index if argument.spec.offset else 0)
        for argument, array in zip(case.inputs, inputs, strict=True)
    ]
    with ErrorStateKept(), Border(f"backend {driver.name}, as it made the call ready,", Reason.RAISED):
        context = None
        if isinstance(driver, PreparesCalls) and not is_composed(driver, case.descriptor):
            context = driver.prepared(case, private)
        elif not is_composed(driver, case.descriptor) and not writes_outputs(driver, case):
            run = partial(driver.run, case, private)
            return PreparedCall(call=run, outputs=run, what=f"{driver.name}, the whole of `run`")
        if context is None:
            raise Fault(Reason.UNSUPPORTED, f"backend {driver.name} has no call that can be timed by itself")
        return stack.enter_context(context)


def _comparison(
    stack: ExitStack, case: TestCase, inputs: Sequence[Array], judge: Judge, against: str
) -> tuple[list[Subject], tuple[str, ...]]:
    """Another implementation of the case, ready and found right; or why it is not timed."""
    if not against:
        return [], ()
    try:
        with Border(f"backend {against}", Reason.RAISED):
            driver = comparison_called(against)
            if why := driver.unsupported(case):
                raise Fault(Reason.UNSUPPORTED, why)
            call = _ready(stack, driver, case, inputs)
            verdict = judge(driver, in_order(case, call.outputs()))
    except Fault as fault:
        return [], (f"comparison with {against}: not possible, {fault.message}",)
    if not _is_right(verdict):
        return [], (f"comparison with {against}: not timed, since its answer is wrong: {_why(verdict)}",)
    return [_subject(driver, call)], ()


def _require_right(
    driver: BackendDriver, case: TestCase, mine: PreparedCall, judge: Judge, samples: Samples
) -> Sequence[Array]:
    """The outputs after the calls that were timed."""
    calls = samples.warm_up_calls + samples.calls_in_batch * len(samples.seconds)
    with ErrorStateKept():
        outputs = in_order(case, mine.outputs())
    reset_float_mode()
    verdict = judge(driver, outputs)
    if not _is_right(verdict):
        raise Fault(
            Reason.STATE,
            f"after {calls:,} calls in a row the outputs are wrong, which they were not at first: {_why(verdict)}",
        )
    return outputs


def _from_baseline(
    stack: ExitStack,
    driver: BackendDriver,
    case: TestCase,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    variant: str,
) -> tuple[float | None, tuple[str, ...]]:
    """The largest difference from what another variant answers, or why there is none."""
    try:
        other = replace(case, backend=replace(case.backend, variant=variant))
        with ErrorStateKept(), Border(f"variant {variant}", Reason.RAISED):
            answers = in_order(case, _ready(stack, driver, other, inputs).outputs())
    except Fault as fault:
        return None, (f"difference from {variant}: not possible, {fault.message}",)
    pairs = zip(outputs, answers, strict=True)
    return max((_largest_difference(one, another) for one, another in pairs), default=0.0), ()


def _largest_difference(one: Array, other: Array) -> float:
    if one.shape != other.shape:
        return math.inf
    left, right = (each if each.dtype.kind == "c" else widen(each) for each in (one, other))
    with np.errstate(all="ignore"):
        apart = np.abs(left - right)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    apart = np.where(same, 0.0, np.where(np.isnan(apart), math.inf, apart))
    return float(apart.max(initial=0.0))


def _subject(driver: BackendDriver, call: PreparedCall) -> Subject:
    device = driver.device()
    name = f"{driver.name}:{device}" if device else driver.name
    return Subject(who=call.what or name, call=call.call, synchronize=call.synchronize)


def _is_right(verdict: Verdict) -> bool:
    return verdict.status in (Status.PASSED, Status.SUSPECT)


def _why(verdict: Verdict) -> str:
    off = [each for each in verdict.measures if each.mismatched]
    return verdict.message or "; ".join(
        f"{each.mismatched} of {each.compared} elements of {each.output}" for each in off
    )


def _operations(case: TestCase) -> int | None:
    """What the operator's descriptor declares for these shapes, None where it declares nothing."""
    hook: Any = case.descriptor.operations
    if hook is None:
        return None
    count = load_object(hook)
    operations = count(at_their_places(case, [argument.spec for argument in case.inputs]), case.attributes)
    return None if operations is None else int(operations)
