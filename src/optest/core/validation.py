"""A call without values: what a backend infers of the outputs, and what it refuses, before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest

from optest.backends import BackendDriver
from optest.backends.abilities import InfersShapes
from optest.core.border import Border
from optest.core.layers import is_composed
from optest.core.verdicts import fault_verdict, refusal_verdict
from optest.numerics import ErrorStateKept
from optest.spec import Check, CheckState, Evidence, Fault, Reason, Status, TensorSpec, TestCase, Verdict, format_shape

__all__ = ["validated"]

_INFERRED = (Check(name="shape inference", state=CheckState.DONE, detail="nothing was computed"),)


def validated(case: TestCase, driver: BackendDriver, interrupted: Callable[[], bool] | None) -> Verdict | None:
    """The verdict by shape inference alone; None for a refusal that it does not show, so that the call is made."""
    refusal = case.expects_error
    if not isinstance(driver, InfersShapes) or is_composed(driver, case.descriptor):
        message = f"backend {driver.name} offers no shape inference of it"
        skipped = Verdict(status=Status.SKIPPED, reason=Reason.UNSUPPORTED, message=message)
        return skipped if refusal is None else None
    try:
        with ErrorStateKept(), Border("the backend's shape inference", Reason.RAISED, interrupted):
            specs = driver.infer_shapes(replace(case, outputs=()))
            if not isinstance(specs, (tuple, list)) or not all(isinstance(each, TensorSpec) for each in specs):
                raise TypeError(f"`infer_shapes` returned {specs!r}, but should return TensorSpecs")
    except Fault as fault:
        if refusal is None:
            return fault_verdict(fault)
        verdict = refusal_verdict(case, refusal, (), fault)
        return None if verdict.status is Status.SKIPPED else replace(verdict, checks=_INFERRED)
    return None if refusal is not None else replace(_compared(case, list(specs)), checks=_INFERRED)


def _compared(case: TestCase, specs: Sequence[TensorSpec]) -> Verdict:
    """Number, shapes and dtypes of the outputs against what the operator's own inference says."""
    if not case.outputs:
        return Verdict(status=Status.UNCHECKED, message=f"{case.descriptor.name} has no `infer` to compare with")
    names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
    found: list[tuple[Reason, str]] = []
    for name, expected, actual in zip_longest(names, case.outputs, specs):
        if actual is None:
            found.append((Reason.MISSING_OUTPUT, f"{name} is not inferred"))
        elif expected is None:
            found.append((Reason.EXTRA_OUTPUT, f"{len(specs)} outputs are inferred, but there are {len(case.outputs)}"))
        elif actual.shape != expected.shape:
            shapes = [format_shape(each.shape) for each in (actual, expected)]
            found.append((Reason.SHAPE, f"{name}: the shape is inferred as {shapes[0]}, but should be {shapes[1]}"))
        elif actual.dtype != expected.dtype:
            text = f"{name}: the dtype is inferred as {actual.dtype}, but should be {expected.dtype}"
            found.append((Reason.DTYPE, text))
    if not found:
        text = ", ".join(f"{each.dtype} {format_shape(each.shape)}" for each in specs)
        return Verdict(status=Status.PASSED, evidence=Evidence.SPECS_COMPARED, message=f"inferred: {text}")
    return Verdict(status=Status.FAILED, reason=found[0][0], message="; ".join(text for _, text in found))
