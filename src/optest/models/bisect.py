"""``optest model bisect``: search for the optimization level, passes and node that make a model differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from optest.core.runner import execute
from optest.generators.files import save_tensors
from optest.guests import CommandContext
from optest.models.commands import models_of, outputs_case, traced
from optest.models.driver import ModelDriver, program_of, subject_of, values_of
from optest.numerics import same_bits
from optest.onnx.whole_models import OnnxProgram
from optest.plan.repro import case_plan
from optest.settings import plugin_modules
from optest.spec import BAD_STATUSES, Fault, Reason, Status, TestCase
from optest.store import write_atomically


def bisect_command(context: CommandContext, **given: Any) -> int:
    """Print the first level at which a model differs, the passes and nodes to blame; return 0 if none differs, else 1.

    A model differs if its outputs exceed the allowed error against float64; with ``exact``, if any bit differs from the
    first level. A plan of the first node that differs is written to ``out``.
    """
    base = next(models_of(given))
    differs = _changes_bits if given["exact"] else _is_wrong
    case = outputs_case(base)
    variant, levels = case.attributes.get("variant", ""), program_of(case).levels
    if not differs(case):
        agree = "bit-identical to those without optimization" if given["exact"] else "as accurate as float32 allows"
        context.echo(f"{case.backend.label()}: the outputs are {agree}; there is nothing to bisect")
        context.echo("to compare the values inside the model, too: optest model trace")
        return 0
    before = levels[: levels.index(variant)] if variant in levels else levels
    level = next((name for name in before if differs(_set_variant(case, name))), variant)
    context.echo(f"level: {level or case.backend.label()}" + (f", of {', '.join(levels)}" if len(levels) > 1 else ""))
    if level != levels[0]:
        # Without one pass another may make its change, so that passes are listed until no new one appears.
        passes: list[str] = []
        while more := [x for x in program_of(_set_variant(case, "-".join([level, *passes]))).passes if x not in passes]:
            passes += more
        guilty = _guilty(passes, lambda left_out: differs(_set_variant(case, "-".join([level, *left_out]))))
        if passes:
            context.echo(f"passes: {', '.join(guilty) or 'no set of them'}")
    nodes = [node for node in traced(_set_variant(base, level), "isolated") if node.attributes["part"] == "isolated"]
    wrong = list(filter(differs, nodes))
    for node in wrong:
        context.echo(f"node: {', '.join(node.attributes['values'].splitlines())} ({node.where.partition(': ')[2]})")
    if wrong:
        context.echo(_write_plan(wrong[0], Path(given["out"])))
    elif not nodes:
        context.echo("node: no node was run, since the backend refuses the model")
    else:
        context.echo(
            "node: no single node differs. Errors may add up (see optest model trace --mode accumulated), or torch's "
            "compiler may be wrong for the model's calls (see optest capture and optest run)"
        )
    return 1


def _set_variant(case: TestCase, variant: str) -> TestCase:
    return dataclasses.replace(case, attributes={**case.attributes, "variant": variant})


def _is_wrong(case: TestCase) -> bool:
    """Return whether the case fails or its model does not load; raise a Fault if it could not be compared."""
    verdict = execute([case], ModelDriver()).verdicts[0]
    if verdict.reason is Reason.COMPILE:  # the backend may accept the model at a lower level
        return True
    if verdict.status not in (Status.PASSED, Status.FAILED) and verdict.reason is not None:
        raise Fault(verdict.reason, f"{case.name}: {verdict.message}")
    return verdict.status in BAD_STATUSES


def _guilty(passes: Sequence[str], differs_without: Callable[[Sequence[str]], bool]) -> list[str]:
    """Return the passes whose removal makes the model agree: one if that suffices, else a minimal set; [] if none."""
    for name in passes:
        if not differs_without([name]):
            return [name]
    left_out = list(passes)
    if differs_without(left_out):
        return []
    for kept in passes:
        fewer = [name for name in left_out if name != kept]
        if not differs_without(fewer):
            left_out = fewer
    return left_out


def _changes_bits(case: TestCase) -> bool:
    """Return whether the values of a case differ in any bit from those without optimization."""
    plain = _set_variant(case, program_of(case).levels[0])
    plain = dataclasses.replace(plain, attributes={**plain.attributes, "optimized": ""})
    return not same_bits(*map(values_of, (plain, case)))


def _write_plan(case: TestCase, folder: Path) -> str:
    """Write a plan of one node, with ONNX models before and after optimization; return the command that runs it."""
    subject, program = subject_of(case), program_of(case)
    folder.mkdir(parents=True, exist_ok=True)
    attributes = dict(case.attributes)
    if isinstance(program, OnnxProgram):
        outputs, inputs = (tuple(attributes[name].split("\n")) for name in ("values", "given"))
        given = {name: subject.activation(name) for name in inputs}
        for name, graph in (("node.onnx", program.before), ("optimized.onnx", program.graph)):
            write_atomically(folder / name, graph.cut(graph.region(outputs, inputs), program.before.types, given))
        save_tensors(given, folder / "inputs.safetensors", case.id)
        files = {"file": "node.onnx", "optimized": "optimized.onnx", "inputs": "inputs.safetensors"}
        kept = {name: attributes[name] for name in ("backend", "values")}
        attributes = {**files, **kept, "variant": program.plain_variant, "part": "outputs"}
    plan = case_plan(dataclasses.replace(case, attributes={name: value for name, value in attributes.items() if value}))
    write_atomically(folder / "plan.yaml", f"# {case.where}\n{plan}".encode())
    plugins = ",".join(plugin_modules())
    return f"{f'OPTEST_PLUGINS={plugins} ' if plugins else ''}optest run --plan {folder / 'plan.yaml'}"
