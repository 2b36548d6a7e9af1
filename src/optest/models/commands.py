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
from optest.models.dumps import Hooks, save_values
from optest.models.opened import stated_models, variant_on
from optest.spec import BackendTarget, Fault, Reason, TestCase
from optest.store import check_writable


def validate_command(context: CommandContext, **given: Any) -> int:
    """Compare the outputs of a model, and its greedy continuation if it is causal; return the exit status."""
    return context.run(_validated(context, given), ModelDriver(), {}, given)


def trace_command(context: CommandContext, **given: Any) -> int:
    """Compare the values inside a model, or write them to the file ``out``; return the exit status."""
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
"""Functions that return the cases of a command from its options."""


def _shown(context: CommandContext, given: Mapping[str, Any], *, every_preset: bool) -> Iterator[TestCase]:
    """Yield the model cases of a command; print each program and the output of its hooks before."""
    Hooks(given)  # refuses a folder in use before any work is done
    for case in models_of(given, every_preset=every_preset):
        program = program_of(case)
        context.echo(f"{case.name}: {program}")
        for line in Hooks(given, case.name).all_lines(program, subject_of(case).feeds):
            context.echo(line)
        yield case


def models_of(given: Mapping[str, Any], *, every_preset: bool = False) -> Iterator[TestCase]:
    """Yield a case, with no part set, of the model that a command names; with ``every_preset`` one for each preset.

    Raises:
        UsageError, UnknownName: for an unknown model, backend, variant or configuration.
        Fault: COMPILE if an export fails.
    """
    backend = given["backend"]
    if not str(given["optimized"] or ".onnx").endswith(".onnx"):
        raise UsageError(
            f"--optimized is {given['optimized']}, expected a .onnx file\n  to compare two torch models:\n"
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
    """Yield a case for each value that model and backend share, then for the traced outputs and for the outputs.

    The case of the traced outputs is left out for a backend that does not show the nodes that it runs.

    Raises:
        UsageError: for a model without a value that is computed from its inputs.
    """
    program, graph = program_of(case), subject_of(case).graph
    try:
        regions = program.regions
    except Fault:
        regions = None  # the other cases report that the backend refuses the model
    if regions is not None and not regions and tensor_outputs(graph):
        raise UsageError(f"{case.name} has no value that is computed from its inputs: there is nothing to compare")
    weights = program.weights if regions and mode == "isolated" else ()
    for region in [*(program.graph.region([weight], weights) for weight in weights), *(regions or ())]:
        name, given = region.outputs[0], "\n".join(region.inputs) if mode == "isolated" else ""
        nodes = [program.graph.operator(number) for number in reversed(region.nodes)]
        operators = " of ".join(nodes) if len(nodes) <= 3 else f"one of {len(nodes)} nodes up to {nodes[0]}"
        where = f"{case.where}: {', '.join(filter(None, (operators, graph.origin_of(graph.node_of_value[name]))))}"
        yield with_part(case, name, mode, where, values="\n".join(region.outputs), given=given)
    if program.is_shown and tensor_outputs(graph):
        yield with_part(case, "watched", "watched")
    yield outputs_case(case)


def outputs_case(case: TestCase) -> TestCase:
    """Return the case that compares the outputs of a model."""
    return with_part(case, "outputs", "outputs", values="\n".join(tensor_outputs(subject_of(case).graph)))


def with_part(case: TestCase, name: str, part: str, where: str = "", **attributes: str) -> TestCase:
    """Return the case of one part of a model: ``name`` is appended to its name, empty attributes are dropped."""
    attributes = {k: v for k, v in {**case.attributes, "part": part, **attributes}.items() if v}
    return dataclasses.replace(case, name=f"{case.name}/{name}", where=where or case.where, attributes=attributes)
