"""``optest model validate`` and ``optest model trace``."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from optest.guests import CommandContext
from optest.models.driver import PREFIX, ModelDriver, backend_called, descriptor_of, program_of, subject_of, variant_of
from optest.spec import BackendTarget, TestCase

__all__ = ["case_of", "trace_command", "traced", "validate_command"]


def validate_command(context: CommandContext, **given: Any) -> int:
    """Compare the outputs of a model."""
    case = case_of(given, "outputs")
    context.echo(str(program_of(case)))
    outputs = "\n".join(subject_of(case).graph.outputs)
    return context.run([_with(case, "outputs", case.where, values=outputs)], ModelDriver(), {}, given)


def trace_command(context: CommandContext, **given: Any) -> int:
    """Compare the values inside a model."""
    case = case_of(given, given["mode"])
    context.echo(str(program_of(case)))
    stops = {"exitfirst": given["exitfirst"] or given["stop"]}
    return context.run(list(traced(case, given["mode"])), ModelDriver(), {}, {**given, **stops})


def case_of(given: Mapping[str, Any], part: str) -> TestCase:
    """The case that the options of a command ask for, of one part of the model."""
    path = Path(given["what"])
    driver = backend_called(given["backend"])
    variant = variant_of(driver, given["variant"] or ("disabled" if given["optimized"] else None))
    stated = {
        "file": path.as_posix(),
        "inputs": given["inputs"] or "",
        "sizes": ",".join(given["config"]),
        "optimized": given["optimized"] or "",
        "backend": driver.name,
        "variant": variant,
        "part": part,
        "digest": hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest() if path.is_file() else "",
        "values": "",
        "given": "",
    }
    return TestCase(
        descriptor=descriptor_of(f"{PREFIX}{path.stem}"),
        inputs=(),
        name=f"{path.stem}/{part}",
        attributes=stated,
        generator="optest.models.driver:ModelValues",
        seed=given["seed"],
        backend=BackendTarget(name="model", kind="model", device=driver.name, variant=variant or None),
        where=str(path),
    )


def traced(case: TestCase, mode: str) -> Iterator[TestCase]:
    """A case for each value inside the model that the backend has, too, and one for whether looking changes anything."""
    program, graph = program_of(case), subject_of(case).graph
    for region in program.regions:
        name, given = region.outputs[0], "\n".join(region.inputs) if mode == "isolated" else ""
        operators = " of ".join([program.graph.nodes[number].op_type for number in reversed(region.nodes)][:3])
        place = ", ".join(each for each in (operators, graph.place_of(graph.makers[name])) if each)
        yield _with(case, name, f"{case.where}: {place}", part=mode, values="\n".join(region.outputs), given=given)
    yield _with(case, "watched", case.where, part="watched")


def _with(case: TestCase, name: str, where: str, **attributes: str) -> TestCase:
    model = case.descriptor.name.removeprefix(PREFIX)
    stated = {**case.attributes, **attributes}
    return dataclasses.replace(case, name=f"{model}/{name}", where=where, attributes=stated)
