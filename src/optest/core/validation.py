"""Cases without computation: shape inference, refusals, and captured programs of a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from typing import Any
from zlib import crc32

import numpy as np

from optest.backends import BackendDriver
from optest.backends.abilities import CapturesPrograms, InfersShapes, Program
from optest.core.border import Border
from optest.core.expected import make_inputs
from optest.core.layers import is_composed
from optest.core.verdicts import fault_verdict, refusal_verdict
from optest.numerics import ErrorStateKept
from optest.spec import (
    Argument,
    Check,
    CheckState,
    Evidence,
    Fault,
    Reason,
    Status,
    TensorSpec,
    TestCase,
    Verdict,
    format_shape,
)
from optest.spec.case import GRAPH


def validated(case: TestCase, driver: BackendDriver, interrupted: Callable[[], bool] | None) -> Verdict | None:
    """Return the verdict of shape inference, or of program capture for a case of mode GRAPH, without computing values.

    Return None if the case expects an error that inference or capture does not raise: the caller then runs the case.
    """
    refusal = case.expects_error
    method, participle = ("capture", "captured") if case.mode == GRAPH else ("shape inference", "inferred")
    ability: type[Any] = CapturesPrograms if case.mode == GRAPH else InfersShapes
    if not isinstance(driver, ability) or is_composed(driver, case.descriptor):
        message = f"backend {driver.name} offers no {method} for this operator"
        skipped = Verdict(status=Status.SKIPPED, reason=Reason.UNSUPPORTED, message=message)
        return skipped if refusal is None else None
    checks = (Check(name=method, state=CheckState.DONE, detail="nothing was computed"),)
    try:
        with ErrorStateKept(), Border(f"the backend's {method}", Reason.RAISED, interrupted):
            call = replace(case, outputs=())  # the driver must not see the expected shapes
            specs = _captured_outputs(call, driver, interrupted) if case.mode == GRAPH else driver.infer_shapes(call)
            if not isinstance(specs, (tuple, list)) or not all(isinstance(spec, TensorSpec) for spec in specs):
                raise TypeError(f"it returned {specs!r}, expected a list of TensorSpec")
    except Fault as fault:
        if refusal is None:
            return fault_verdict(fault)
        verdict = refusal_verdict(case, refusal, (), fault)
        return None if verdict.status is Status.SKIPPED else replace(verdict, checks=checks)
    return None if refusal is not None else replace(_compare_specs(case, list(specs), participle), checks=checks)


def _compare_specs(case: TestCase, specs: Sequence[TensorSpec], participle: str) -> Verdict:
    """Compare number, shapes and dtypes of ``specs`` with the outputs of the case; UNCHECKED if it has none."""
    if not case.outputs:
        return Verdict(status=Status.UNCHECKED, message=f"{case.descriptor.name} has no `infer` to compare with")
    names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
    differences: list[tuple[Reason, str]] = []
    for name, expected, actual in zip_longest(names, case.outputs, specs):
        if actual is None:
            differences.append((Reason.MISSING_OUTPUT, f"{name} is not {participle}"))
        elif expected is None:
            text = f"{len(specs)} outputs are {participle}, expected {len(case.outputs)}"
            differences.append((Reason.EXTRA_OUTPUT, text))
        elif actual.shape != expected.shape:
            shape, expected_shape = format_shape(actual.shape), format_shape(expected.shape)
            text = f"{name}: the {participle} shape is {shape}, expected {expected_shape}"
            differences.append((Reason.SHAPE, text))
        elif actual.dtype != expected.dtype:
            text = f"{name}: the {participle} dtype is {actual.dtype}, expected {expected.dtype}"
            differences.append((Reason.DTYPE, text))
    if not differences:
        text = ", ".join(f"{spec.dtype} {format_shape(spec.shape)}" for spec in specs)
        return Verdict(status=Status.PASSED, evidence=Evidence.SPECS_COMPARED, message=f"{participle}: {text}")
    return Verdict(status=Status.FAILED, reason=differences[0][0], message="; ".join(text for _, text in differences))


def _captured_outputs(
    case: TestCase, driver: CapturesPrograms, interrupted: Callable[[], bool] | None
) -> list[TensorSpec]:
    """Capture the program of the case and return the specs of its outputs.

    Raises:
        Fault: INVARIANT if the graph is not well-formed, or if a capture after others gives another program.
    """
    inputs_read: dict[str, Any] = {}

    def capture(call: TestCase) -> Program:
        return driver.captured_program(
            call, lambda: inputs_read.setdefault(call.key, make_inputs(call, interrupted)[0])
        )

    program, others = capture(case), {"again": capture(case)}
    with suppress(Fault), Border("the backend", Reason.RAISED, interrupted):  # it may refuse these sizes
        capture(replace(case, inputs=tuple(map(_with_longer_dimensions, case.inputs))))
    others["after a call with other sizes"] = capture(case)
    if inputs_read:
        others["with other values of the inputs"] = capture(replace(case, seed=case.seed + 1))
    problems = [*_graph_problems(program)]
    for circumstance, other in others.items():
        pairs = zip_longest(_program_lines(program), _program_lines(other), fillvalue="nothing")
        first = next(((old, new) for old, new in pairs if new != old), None)
        if first is not None:
            problems.append(f"captured {circumstance}, the program has `{first[1]}` instead of `{first[0]}`")
    if problems:
        raise Fault(Reason.INVARIANT, "; ".join(problems))
    return [spec for _, spec in program.outputs]


def _with_longer_dimensions(argument: Argument) -> Argument:
    """Return the argument with each size above 1 increased by 1."""
    shape = tuple(size + (size > 1) for size in argument.spec.shape)
    return replace(argument, spec=replace(argument.spec, shape=shape))


def _graph_problems(program: Program) -> Iterator[str]:
    """Yield a message for each value that no node or two nodes compute, and for dead code after an optimiser."""
    known = {"", *program.inputs, *program.constants}
    nodes = [(f"node {index} ({node.operation})", node) for index, node in enumerate(program.nodes)]
    for node_name, node in nodes:
        for name in sorted({*node.inputs} - known):
            yield f"{node_name} reads {name!r}, which is no input, no constant and no output of an earlier node"
        for name in filter(None, node.outputs):
            if name in known:
                yield f"{node_name} computes {name!r}, which exists already"
            known.add(name)
    needed = {name for name, _ in program.outputs}
    yield from (f"no node computes the output {name!r}" for name in sorted(needed - known))
    for node_name, node in reversed(nodes):
        if node.has_effects or not needed.isdisjoint(node.outputs):
            needed.update(filter(None, node.inputs))
        elif program.is_optimized:
            yield f"the optimiser kept {node_name}, which no output depends on"


def _program_lines(program: Program) -> Iterator[str]:
    """Yield a line for each node and one for the outputs, which do not depend on the program's names of values."""
    arrays = {name: np.asarray(value) for name, value in program.constants.items()}
    names = {name: f"{array.dtype}{array.shape}#{crc32(array.tobytes()):x}" for name, array in arrays.items()}
    names |= {name: f"input{index}: {spec}" for index, (name, spec) in enumerate(program.inputs.items())}
    for number, node in enumerate(program.nodes):
        yield f"{node.operation}({', '.join(names.get(name, name) for name in node.inputs)}) {node.attributes}".strip()
        names |= {name: f"node{number}.{index}" for index, name in enumerate(node.outputs)}
    yield f"outputs {', '.join(f'{names.get(name, name)}: {spec}' for name, spec in program.outputs)}"
