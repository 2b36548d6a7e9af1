"""``optest model validate`` and ``optest model trace``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from optest.guests import CommandContext
from optest.models.driver import PREFIX, ModelDriver, backend_called, descriptor_of, program_of, subject_of, variant_of
from optest.onnx.graphs import Region
from optest.spec import BackendTarget, TestCase

__all__ = ["trace_command", "validate_command"]


def validate_command(context: CommandContext, **given: Any) -> int:
    """Compare the outputs of a model."""
    case = _case(given, "outputs")
    outputs = "\n".join(subject_of(case).graph.outputs)
    return context.run([_with(case, "outputs", values=outputs)], ModelDriver(), {}, {})


def trace_command(context: CommandContext, **given: Any) -> int:
    """Compare the values inside a model."""
    case = _case(given, given["mode"])
    return context.run(list(_traced(case, given["mode"])), ModelDriver(), {}, {"max_failures": int(given["stop"])})


def _case(given: dict[str, Any], part: str) -> TestCase:
    path = Path(given["what"])
    driver = backend_called(given["backend"])
    variant = variant_of(driver, given["variant"])
    stated = {
        "file": path.as_posix(),
        "inputs": given["inputs"] or "",
        "sizes": ",".join(given["config"]),
        "on": driver.name,
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


def _traced(case: TestCase, mode: str) -> Iterator[TestCase]:
    program = program_of(case)
    for region in program.regions:
        given = "\n".join(region.inputs) if mode == "isolated" else ""
        node = program.graph.nodes[region.nodes[-1]]
        yield _with(
            case,
            f"{region.outputs[0]}",
            values="\n".join(region.outputs),
            given=given,
        )
    yield _with(case, "watched", part="watched")


def _with(case: TestCase, name: str, **attributes: str) -> TestCase:
    import dataclasses

    return dataclasses.replace(
        case, name=f"{case.descriptor.name.removeprefix(PREFIX)}/{name}", attributes={**case.attributes, **attributes}
    )
