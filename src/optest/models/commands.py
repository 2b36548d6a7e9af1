"""``optest model validate`` and ``optest model trace``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

from optest.errors import UsageError
from optest.guests import CommandContext
from optest.models.driver import PREFIX, ModelDriver, descriptor_of, onnx_backend, program_of, subject_of, variant_of
from optest.models.opened import stated_models
from optest.spec import BackendTarget, Fault, TestCase

__all__ = ["models_of", "told_of_faults", "trace_command", "traced", "validate_command"]


_Command = Callable[..., int]


def told_of_faults(command: _Command) -> _Command:
    """A command that ends with what an exporter or a backend says of the model as a whole."""

    @wraps(command)
    def wrapped(context: CommandContext, **given: Any) -> int:
        try:
            return command(context, **given)
        except Fault as fault:
            raise UsageError(f"{given['what']}: {fault.message}") from fault

    return wrapped


@told_of_faults
def validate_command(context: CommandContext, **given: Any) -> int:
    """Compare the outputs of a model, and how it goes on."""
    cases: list[TestCase] = []
    for case in models_of(given):
        context.echo(f"{case.name}: {program_of(case)}")
        subject = subject_of(case)
        cases.append(with_part(case, "outputs", "outputs", values="\n".join(subject.graph.outputs)))
        if _is_causal(case):
            cases.append(with_part(case, "continuation", "continuation"))
    return context.run(cases, ModelDriver(), {}, given)


@told_of_faults
def trace_command(context: CommandContext, **given: Any) -> int:
    """Compare the values inside a model."""
    cases: list[TestCase] = []
    for case in models_of(given):
        context.echo(f"{case.name}: {program_of(case)}")
        values = [*traced(case, given["mode"])]
        if not any("values" in each.attributes for each in values):
            raise UsageError(f"{case.name} has no value that is computed from its inputs: there is nothing to compare")
        cases += values
    return context.run(cases, ModelDriver(), {}, {**given, "exitfirst": given["exitfirst"] or given["stop"]})


def models_of(given: Mapping[str, Any]) -> Iterator[TestCase]:
    """A case without a part for the model that a command names, and for each way to draw its weights.

    Raises:
        UsageError, UnknownName: for a model, backend, variant or configuration that there is not.
        Fault: COMPILE if an export fails.
    """
    backend, variant, device = given["backend"], given["variant"], given["torch_device"] or ""
    if for_torch := backend == "torch":
        variant = variant or "eager"
    else:
        variant = variant_of(onnx_backend(backend), variant or ("disabled" if given["optimized"] else None))
    for name, stated in stated_models(given, for_torch=for_torch):
        yield TestCase(
            descriptor=descriptor_of(f"{PREFIX}{name.partition('/')[0]}"),
            inputs=(),
            name=name,
            attributes={
                **stated,
                "optimized": given["optimized"] or "",
                "backend": backend,
                "variant": variant,
                "device": device,
            },
            generator="optest.models.driver:ModelValues",
            seed=given["seed"],
            backend=BackendTarget(name="model", kind="model", device=backend, variant=variant or None),
            where=given["what"],
        )


def traced(case: TestCase, mode: str) -> Iterator[TestCase]:
    """A case for each value of the model that the backend has, too, and one for whether its nodes make what it answers,
    unless it runs others."""
    program, graph = program_of(case), subject_of(case).graph
    for region in program.regions:
        name, given = region.outputs[0], "\n".join(region.inputs) if mode == "isolated" else ""
        operators = " of ".join([program.graph.operator(number) for number in reversed(region.nodes)][:3])
        place = ", ".join(each for each in (operators, graph.place_of(graph.makers[name])) if each)
        found = with_part(case, name, mode, values="\n".join(region.outputs), given=given)
        yield dataclasses.replace(found, where=f"{case.where}: {place}")
    if program.is_shown:
        yield with_part(case, "watched", "watched")


def with_part(case: TestCase, name: str, part: str, **attributes: str) -> TestCase:
    """The case of one part of a model."""
    stated = {**case.attributes, "part": part, **attributes}
    return dataclasses.replace(case, name=f"{case.name}/{name}", attributes={k: v for k, v in stated.items() if v})


def _is_causal(case: TestCase) -> bool:
    model = subject_of(case).model
    return bool(case.attributes.get("causal")) or (model is not None and model.causal)
