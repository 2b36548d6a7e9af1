"""``optest model validate`` and ``optest model trace``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from optest.core.border import Border
from optest.errors import UsageError, plural
from optest.guests import CommandContext
from optest.models.driver import PREFIX, ModelDriver, descriptor_of, program_of, subject_of, tensor_outputs
from optest.models.dumps import save_values
from optest.models.hooks import Hooks
from optest.models.opened import stated_models, variant_on
from optest.spec import BackendTarget, Fault, Reason, TestCase
from optest.store import check_writable


def validate_command(context: CommandContext, **given: Any) -> int:
    """Compare the outputs of a model, and how it goes on."""
    return context.run(_validated(context, given), ModelDriver(), {}, given)


def trace_command(context: CommandContext, **given: Any) -> int:
    """Compare the values inside a model; with ``out`` write them to a file instead."""
    cases = _traced(context, given)
    stops = given["exitfirst"] or given["stop"]
    return context.run(cases, ModelDriver(), {}, {**given, "exitfirst": stops}) if cases else 0


def _validated(context: CommandContext, given: Mapping[str, Any]) -> list[TestCase]:
    cases = []
    for case in _shown(context, given, every_preset=True):
        subject = subject_of(case)
        cases.append(outputs_case(case))
        if case.attributes.get("causal") or (subject.model is not None and subject.model.causal):
            cases.append(with_part(case, "continuation", "continuation"))
    return cases


def _traced(context: CommandContext, given: Mapping[str, Any]) -> list[TestCase]:
    if given["out"]:
        check_writable(Path(given["out"]))
    (case,) = _shown(context, given, every_preset=False)
    if not given["out"]:
        return list(traced(case, given["mode"]))
    with Border("the backend", Reason.RAISED):
        values = save_values(program_of(case), subject_of(case).feeds, Path(given["out"]))
    context.echo(f"{plural(len(values.index), 'value')} of one run in {given['out']}, compared with nothing")
    return []


CASES_OF = {"validate": _validated, "trace": _traced}
"""The cases of a command, from its options."""


def _shown(context: CommandContext, given: Mapping[str, Any], *, every_preset: bool) -> Iterator[TestCase]:
    """The models that a command names, each after a line about the program, and what the hooks show of it."""
    Hooks(given)  # says before the work if the folder is in use
    for case in models_of(given, every_preset=every_preset):
        program = program_of(case)
        context.echo(f"{case.name}: {program}")
        for line in Hooks(given, case.name).all_lines(program, subject_of(case).feeds):
            context.echo(line)
        yield case


def models_of(given: Mapping[str, Any], *, every_preset: bool = False) -> Iterator[TestCase]:
    """A case without a part for the model that a command names, with weights drawn in the first way, or in each.

    Raises:
        UsageError, UnknownName: for a model, backend, variant or configuration that there is not.
        Fault: COMPILE if an export fails.
    """
    backend = given["backend"]
    if not str(given["optimized"] or ".onnx").endswith(".onnx"):
        raise UsageError(
            f"--optimized is {given['optimized']}, expected a .onnx file\n  for a copy of the model in torch:\n"
            f"    optest model trace {given['what']} --backend torch --out a.safetensors\n"
            f"    optest model trace {given['optimized']} --backend torch --out b.safetensors\n"
            "    optest model diff a.safetensors b.safetensors"
        )
    variant = variant_on(backend, given["variant"], "disabled" if given["optimized"] else "")
    for name, stated in stated_models(given, every_preset=every_preset):
        yield TestCase(
            descriptor=descriptor_of(f"{PREFIX}{name.partition('/')[0]}"),
            inputs=(),
            name=name,
            attributes={
                **stated,
                "optimized": given["optimized"] or "",
                "backend": backend,
                "variant": variant,
                "device": given["torch_device"] or "",
            },
            generator="optest.models.driver:ModelValues",
            seed=given["seed"],
            backend=BackendTarget(name="model", kind="model", device=backend, variant=variant or None),
            where=given["optimized"] or given["what"],
        )


def traced(case: TestCase, mode: str) -> Iterator[TestCase]:
    """Yield a case for each value of the model that the backend has, too, and one for the outputs; between them one for
    whether the traced nodes compute the same outputs, unless the backend runs other nodes.

    Raises:
        UsageError: for a model of which no value is computed from its inputs.
    """
    program, graph = program_of(case), subject_of(case).graph
    try:
        regions = program.regions
    except Fault:
        regions = None  # the other cases report that the backend refuses the model
    if regions is not None and not regions and tensor_outputs(graph):
        raise UsageError(f"{case.name} has no value that is computed from its inputs: there is nothing to compare")
    weights = program.weights if regions and mode == "isolated" else ()
    for region in [*(program.graph.region([each], weights) for each in weights), *(regions or ())]:
        name, given = region.outputs[0], "\n".join(region.inputs) if mode == "isolated" else ""
        nodes = [program.graph.operator(number) for number in reversed(region.nodes)]
        operators = " of ".join(nodes) if len(nodes) <= 3 else f"one of {len(nodes)} nodes up to {nodes[0]}"
        place = ", ".join(each for each in (operators, graph.place_of(graph.makers[name])) if each)
        where = f"{case.where}: {place}"
        yield with_part(case, name, mode, where, values="\n".join(region.outputs), given=given)
    if program.is_shown and tensor_outputs(graph):
        yield with_part(case, "watched", "watched")
    yield outputs_case(case)


def outputs_case(case: TestCase) -> TestCase:
    """Return the case that compares the outputs of a model."""
    return with_part(case, "outputs", "outputs", values="\n".join(tensor_outputs(subject_of(case).graph)))


def with_part(case: TestCase, name: str, part: str, where: str = "", **attributes: str) -> TestCase:
    """The case of one part of a model."""
    stated = {k: v for k, v in {**case.attributes, "part": part, **attributes}.items() if v}
    return dataclasses.replace(case, name=f"{case.name}/{name}", where=where or case.where, attributes=stated)
