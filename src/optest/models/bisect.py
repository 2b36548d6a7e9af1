"""``optest model bisect``: from a model that an optimizer has changed to the pass, the node, and a plan of it."""

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
    """Name the first level at which a model differs, the passes that make it so, and the nodes.

    A model differs where its outputs are further from float64 than they may be; with ``exact`` where a bit of them is
    another one than at the first level.

    Returns:
        0 if nothing differs, else 1.
    """
    base = next(models_of(given))
    differs = _changes_bits if given["exact"] else _is_wrong
    case = outputs_case(base)
    variant, levels = case.attributes.get("variant", ""), program_of(case).levels
    if not differs(case):
        agree = "the same bits as without optimization" if given["exact"] else "as right as float32 can be"
        context.echo(f"{case.backend.label()}: the outputs are {agree}; there is nothing to bisect")
        context.echo("a fault that the outputs do not show: optest model trace compares the values inside")
        return 0
    before = levels[: levels.index(variant)] if variant in levels else levels
    level = next((each for each in before if differs(_at(case, each))), variant)
    context.echo(f"level: {level or case.backend.label()}" + (f", of {', '.join(levels)}" if len(levels) > 1 else ""))
    if level != levels[0]:
        # The passes that change the model, also those that do so in place of others that are left out.
        passes: list[str] = []
        while more := [each for each in program_of(_at(case, "-".join([level, *passes]))).passes if each not in passes]:
            passes += more
        guilty = _guilty(passes, lambda left_out: differs(_at(case, "-".join([level, *left_out]))))
        if passes:
            context.echo(f"passes: {', '.join(guilty) or 'no set of them'}")
    nodes = [each for each in traced(_at(base, level), "isolated") if each.attributes["part"] == "isolated"]
    found = list(filter(differs, nodes))
    for each in found:
        context.echo(f"node: {', '.join(each.attributes['values'].splitlines())} ({each.where.partition(': ')[2]})")
    if found:
        context.echo(_written(found[0], Path(given["out"])))
    elif not nodes:
        context.echo("node: none was run, since the backend refuses the model")
    else:
        context.echo(
            "node: none by itself: the backend is wrong where it has several at once (optest model trace --mode "
            "accumulated), or a compiler of torch where it has the model's own calls (optest capture, optest run)"
        )
    return 1


def _at(case: TestCase, variant: str) -> TestCase:
    return dataclasses.replace(case, attributes={**case.attributes, "variant": variant})


def _is_wrong(case: TestCase) -> bool:
    verdict = execute([case], ModelDriver()).verdicts[0]
    if verdict.reason is Reason.COMPILE:  # a model that the backend refuses, where it accepts it less optimised
        return True
    if verdict.status not in (Status.PASSED, Status.FAILED) and verdict.reason is not None:
        raise Fault(verdict.reason, f"{case.name}: {verdict.message}")  # neither right nor wrong
    return verdict.status in BAD_STATUSES


def _guilty(passes: Sequence[str], differs_without: Callable[[Sequence[str]], bool]) -> list[str]:
    """The passes without which nothing differs: one if that is enough, else all but those that need not be left out."""
    for each in passes:
        if not differs_without([each]):
            return [each]
    left_out = list(passes)
    if differs_without(left_out):
        return []
    for each in passes:
        fewer = [name for name in left_out if name != each]
        if not differs_without(fewer):
            left_out = fewer
    return left_out


def _changes_bits(case: TestCase) -> bool:
    plain = _at(case, program_of(case).levels[0])
    plain = dataclasses.replace(plain, attributes={**plain.attributes, "optimized": ""})
    return not same_bits(*map(values_of, (plain, case)))


def _written(case: TestCase, folder: Path) -> str:
    """A plan of one node. Of a model in ONNX: the node before it was optimised and after, and its inputs, in files
    beside the plan. Returns the line that runs it."""
    subject, program = subject_of(case), program_of(case)
    folder.mkdir(parents=True, exist_ok=True)
    stated = dict(case.attributes)
    if isinstance(program, OnnxProgram):
        outputs, inputs = (tuple(stated[name].split("\n")) for name in ("values", "given"))
        given = {name: subject.activation(name) for name in inputs}
        for name, graph in (("node.onnx", program.before), ("optimized.onnx", program.graph)):
            write_atomically(folder / name, graph.cut(graph.region(outputs, inputs), program.before.types, given))
        save_tensors(given, folder / "inputs.safetensors", case.id)
        files = {"file": "node.onnx", "optimized": "optimized.onnx", "inputs": "inputs.safetensors"}
        kept = {name: stated[name] for name in ("backend", "values")}
        stated = {**files, **kept, "variant": program.plain_variant, "part": "outputs"}
    plan = case_plan(dataclasses.replace(case, attributes={name: value for name, value in stated.items() if value}))
    write_atomically(folder / "plan.yaml", f"# {case.where}\n{plan}".encode())
    plugins = ",".join(plugin_modules())
    return f"{f'OPTEST_PLUGINS={plugins} ' if plugins else ''}optest run --plan {folder / 'plan.yaml'}"
