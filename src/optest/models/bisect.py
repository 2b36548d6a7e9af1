"""``optest model bisect``: from a model that an optimizer has changed to the pass, the node, and a plan of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optest.backends.abilities import HasVariants
from optest.core.runner import execute
from optest.generators.files import save_tensors
from optest.guests import CommandContext
from optest.models.commands import case_of, traced
from optest.models.driver import ModelDriver, backend_called, program_of, subject_of, variant_of
from optest.numerics import bits
from optest.onnx.graphs import Region
from optest.onnx.whole_models import OnnxProgram
from optest.spec import BAD_STATUSES, TestCase
from optest.store import write_atomically

__all__ = ["bisect_command"]


def bisect_command(context: CommandContext, **given: Any) -> int:
    """Name the first level at which a model differs, the passes that make it so, and the nodes.

    A model differs where its outputs are further from float64 than they may be; with ``exact`` where a bit of them is
    another one than at the first level.

    Returns:
        0 if nothing differs, else 1.
    """
    case = case_of(given, "outputs")
    outputs = "\n".join(subject_of(case).graph.outputs)
    case = dataclasses.replace(case, attributes={**case.attributes, "values": outputs})
    differs = _differs_exactly if given["exact"] else _is_wrong
    driver = backend_called(given["backend"])
    variant = variant_of(driver, given["variant"])
    if not differs(_at(case, variant)):
        context.echo(f"{driver.name}, {variant or 'its one way'}: the outputs agree; there is nothing to bisect")
        return 0
    levels = driver.variants if isinstance(driver, HasVariants) else ("",)
    level = next((each for each in levels if each != variant and differs(_at(case, each))), variant)
    context.echo(f"level: {level or driver.name}" + (f", of {', '.join(levels)}" if len(levels) > 1 else ""))
    if level != levels[0]:
        passes = driver.passes(program_of(case).content, level)
        guilty = _guilty(passes, lambda left_out: differs(_at(case, "-".join([level, *left_out]))))
        context.echo(f"passes: {', '.join(guilty) or 'none of'} {'' if guilty else ', '.join(passes)}".rstrip())
    found = list(_regions(_at(case, level), exact=given["exact"]))
    for each in found:
        context.echo(f"node: {each.attributes['values']} ({each.where.partition(': ')[2]})")
    if found:
        context.echo(_written(found[0], Path(given["out"])))
    else:
        context.echo("node: none by itself; trace the model with --mode accumulated")
    return 1


def _at(case: TestCase, variant: str) -> TestCase:
    return dataclasses.replace(case, attributes={**case.attributes, "variant": variant})


def _is_wrong(case: TestCase) -> bool:
    return execute([case], ModelDriver()).verdicts[0].status in BAD_STATUSES


def _differs_exactly(case: TestCase) -> bool:
    subject, program = subject_of(case), program_of(case)
    first = program_of(_at(case, program.levels[0])).outputs(subject.feeds)
    return any(_differ(first[name], value) for name, value in program.outputs(subject.feeds).items())


def _differ(one: Any, other: Any) -> bool:
    return one.shape != other.shape or one.dtype != other.dtype or bool(np.any(bits(one) != bits(other)))


def _guilty(passes: Sequence[str], differs_without: Callable[[Sequence[str]], bool]) -> list[str]:
    """The passes without which nothing differs: one where one is enough, else all but those that need not be left out."""
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


def _regions(case: TestCase, *, exact: bool) -> Iterator[TestCase]:
    """The cases of nodes that differ, each by itself."""
    for each in traced(case, "isolated"):
        if each.attributes["part"] == "isolated" and (_region_differs(each) if exact else _is_wrong(each)):
            yield each


def _region_differs(case: TestCase) -> bool:
    subject, program = subject_of(case), program_of(case)
    outputs, inputs = (tuple(case.attributes[name].split("\n")) for name in ("values", "given"))
    given = {name: subject.activation(name) for name in inputs}
    made = program.made(_region(program, outputs, inputs), given)
    plain = program_of(_at(case, program.levels[0]))
    first = plain.made(_region(plain, outputs, inputs), given)
    return any(_differ(first[name], made[name]) for name in outputs)


def _region(program: OnnxProgram, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> Region:
    return dataclasses.replace(program.graph.region(outputs, inputs), inputs=inputs)


def _written(case: TestCase, folder: Path) -> str:
    """A plan of one node: the node before it was optimised and after, its inputs. Returns the line that runs it."""
    subject, program, stated = subject_of(case), program_of(case), case.attributes
    outputs, inputs = (tuple(stated[name].split("\n")) for name in ("values", "given"))
    folder.mkdir(parents=True, exist_ok=True)
    before, after = (_cut(graph, outputs, inputs, subject.graph.types) for graph in (subject.graph, program.graph))
    write_atomically(folder / "node.onnx", before)
    write_atomically(folder / "optimized.onnx", after)
    save_tensors({name: subject.activation(name) for name in inputs}, folder / "inputs.safetensors", case.id)
    attributes = {
        "file": "node.onnx",
        "optimized": "optimized.onnx",
        "inputs": "inputs.safetensors",
        "backend": stated["backend"],
        "variant": program.plain_variant,
        "part": "outputs",
        "values": stated["values"],
    }
    lines = [f"      {name}: {value!r}" for name, value in attributes.items() if value]
    text = "\n".join(
        [
            f"# {case.where}",
            "version: 1",
            "backend: model",
            "cases:",
            f"  - op: {case.descriptor.name}",
            f"    name: {case.name!r}",
            "    generator: optest.models.driver:ModelValues",
            "    attributes:",
            *lines,
            "",
        ]
    )
    write_atomically(folder / "plan.yaml", text.encode())
    return f"optest run --plan {folder / 'plan.yaml'}"


def _cut(graph: Any, outputs: tuple[str, ...], inputs: tuple[str, ...], types: Any) -> bytes:
    content: bytes = graph.cut(dataclasses.replace(graph.region(outputs, inputs), inputs=inputs), types)
    return content
