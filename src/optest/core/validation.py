"""A call without values: what a backend infers, refuses, and captures as a program before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, zip_longest
from typing import Any
from zlib import crc32

import numpy as np

from optest.backends import BackendDriver
from optest.backends.abilities import CapturesPrograms, InfersShapes, Program
from optest.core.border import Border
from optest.core.inputs import make_inputs
from optest.core.layers import is_composed
from optest.core.verdicts import fault_verdict, refusal_verdict
from optest.numerics import ErrorStateKept
from optest.spec import Check, CheckState, Evidence, Fault, Reason, Status, TensorSpec, TestCase, Verdict, format_shape
from optest.spec.case import GRAPH


def validated(case: TestCase, driver: BackendDriver, interrupted: Callable[[], bool] | None) -> Verdict | None:
    """The verdict by inference or capture alone; None for a refusal that it does not show, so that the call is made."""
    refusal = case.expects_error
    what, how = ("capture", "captured") if case.mode == GRAPH else ("shape inference", "inferred")
    ability: type[Any] = CapturesPrograms if case.mode == GRAPH else InfersShapes
    if not isinstance(driver, ability) or is_composed(driver, case.descriptor):
        message = f"backend {driver.name} offers no {what} of it"
        skipped = Verdict(status=Status.SKIPPED, reason=Reason.UNSUPPORTED, message=message)
        return skipped if refusal is None else None
    checks = (Check(name=what, state=CheckState.DONE, detail="nothing was computed"),)
    try:
        with ErrorStateKept(), Border(f"the backend's {what}", Reason.RAISED, interrupted):
            asked = replace(case, outputs=())
            specs = _captured(asked, driver, interrupted) if case.mode == GRAPH else driver.infer_shapes(asked)
            if not isinstance(specs, (tuple, list)) or not all(isinstance(each, TensorSpec) for each in specs):
                raise TypeError(f"it returned {specs!r}, but should return TensorSpecs")
    except Fault as fault:
        if refusal is None:
            return fault_verdict(fault)
        verdict = refusal_verdict(case, refusal, (), fault)
        return None if verdict.status is Status.SKIPPED else replace(verdict, checks=checks)
    return None if refusal is not None else replace(_compared(case, list(specs), how), checks=checks)


def _compared(case: TestCase, specs: Sequence[TensorSpec], how: str) -> Verdict:
    """Number, shapes and dtypes of the outputs against what the operator's own inference says."""
    if not case.outputs:
        return Verdict(status=Status.UNCHECKED, message=f"{case.descriptor.name} has no `infer` to compare with")
    names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
    found: list[tuple[Reason, str]] = []
    for name, expected, actual in zip_longest(names, case.outputs, specs):
        if actual is None:
            found.append((Reason.MISSING_OUTPUT, f"{name} is not {how}"))
        elif expected is None:
            found.append((Reason.EXTRA_OUTPUT, f"{len(specs)} outputs are {how}, but there are {len(case.outputs)}"))
        elif actual.shape != expected.shape:
            shapes = [format_shape(each.shape) for each in (actual, expected)]
            found.append((Reason.SHAPE, f"{name}: the shape is {how} as {shapes[0]}, but should be {shapes[1]}"))
        elif actual.dtype != expected.dtype:
            text = f"{name}: the dtype is {how} as {actual.dtype}, but should be {expected.dtype}"
            found.append((Reason.DTYPE, text))
    if not found:
        text = ", ".join(f"{each.dtype} {format_shape(each.shape)}" for each in specs)
        return Verdict(status=Status.PASSED, evidence=Evidence.SPECS_COMPARED, message=f"{how}: {text}")
    return Verdict(status=Status.FAILED, reason=found[0][0], message="; ".join(text for _, text in found))


def _captured(case: TestCase, driver: CapturesPrograms, interrupted: Callable[[], bool] | None) -> list[TensorSpec]:
    """The outputs of the captured program.

    Raises:
        Fault: INVARIANT for a graph that is not in order, and where another capture gives another program.
    """
    drawn: dict[str, Any] = {}

    def captured(call: TestCase) -> Program:
        return driver.captured_program(call, lambda: drawn.setdefault(call.key, make_inputs(call, interrupted)[0]))

    program, others = captured(case), {"again": captured(case)}
    with suppress(Fault), Border("the backend", Reason.RAISED, interrupted):  # which may refuse these sizes
        longer = [replace(each.spec, shape=tuple(n + (n > 1) for n in each.spec.shape)) for each in case.inputs]
        inputs = [replace(each, spec=spec) for each, spec in zip(case.inputs, longer, strict=True)]
        captured(replace(case, inputs=tuple(inputs)))
    others["after a call with other sizes"] = captured(case)
    if drawn:
        others["with other values of the inputs"] = captured(replace(case, seed=case.seed + 1))
    problems = [*_problems(program)]
    for how, other in others.items():
        pairs = zip_longest(_lines(program), _lines(other), fillvalue="nothing")
        differ = (f"captured {how}, the program has `{new}` in place of `{line}`" for line, new in pairs if new != line)
        problems += islice(differ, 1)
    if problems:
        raise Fault(Reason.INVARIANT, "; ".join(problems))
    return [spec for _, spec in program.outputs]


def _problems(program: Program) -> Iterator[str]:
    """Values that no node makes, or two do, and dead code after an optimiser."""
    known = {"", *program.inputs, *program.constants}
    nodes = [(f"node {place} ({node.operation})", node) for place, node in enumerate(program.nodes)]
    for node_name, node in nodes:
        for name in sorted({*node.inputs} - known):
            yield f"{node_name} takes {name!r}, which is no input, no constant and no output of an earlier node"
        for name in filter(None, node.outputs):
            if name in known:
                yield f"{node_name} makes {name!r}, which is there already"
            known.add(name)
    needed = {name for name, _ in program.outputs}
    yield from (f"no node makes the output {name!r}" for name in sorted(needed - known))
    for node_name, node in reversed(nodes):
        if node.has_effects or not needed.isdisjoint(node.outputs):
            needed.update(filter(None, node.inputs))
        elif program.is_optimized:
            yield f"the optimiser left {node_name}, which no output needs"


def _lines(program: Program) -> Iterator[str]:
    """The program in words, with values named after where they come from."""
    arrays = {name: np.asarray(value) for name, value in program.constants.items()}
    names = {name: f"{each.dtype}{each.shape}#{crc32(each.tobytes()):x}" for name, each in arrays.items()}
    names |= {name: f"input{place}: {spec}" for place, (name, spec) in enumerate(program.inputs.items())}
    for place, node in enumerate(program.nodes):
        yield f"{node.operation}({', '.join(names.get(name, name) for name in node.inputs)}) {node.attributes}".strip()
        names |= {name: f"node{place}.{index}" for index, name in enumerate(node.outputs)}
    yield f"outputs {', '.join(f'{names.get(name, name)}: {spec}' for name, spec in program.outputs)}"
