"""Saved tensors of a replay: written by ``optest replay --save``, read by :func:`load_saved`.

A file is a ``.npz`` that NumPy can read; :func:`load_saved` also restores element types and strides::

    from optest.api.saving import load_saved

    saved = load_saved("saved/matmul-half.npz")
    saved.inputs["input0"]  # as the backend got it, bfloat16 and strides included
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optest.core.kept_tensors import (
    Archive,
    element_error,
    entry_name,
    inputs_path,
    outputs_path,
    read_archive,
    spec_of,
    write_archive,
)
from optest.core.wire import case_from_wire
from optest.operators import operators
from optest.spec import CaseResult, TestCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Saved tensors by name: ``input0`` … of the inputs, ``output0`` … of the other three.

    ``expected`` is the reference's float64 before rounding (integers and bool unchanged). ``actual`` is empty if the
    backend returned nothing. ``error`` is ``|actual - expected|`` in float64. ``facts`` holds id, key, status, reason
    and the case in wire form.
    """

    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]
    actual: Mapping[str, Any]
    error: Mapping[str, Any]
    facts: Mapping[str, Any]


def load_saved(path: str | os.PathLike[str]) -> Saved:
    """Read a file of saved tensors: bit for bit, with their element types and strides.

    Raises:
        UsageError: if it is no such file.
    """
    archive = read_archive(Path(path))
    return Saved(
        inputs={name: tensor for name, tensor in archive.tensors.items() if "." not in name},
        expected=_with_suffix(archive, ".expected"),
        actual=_with_suffix(archive, ".actual"),
        error=_with_suffix(archive, ".error"),
        facts=archive.facts,
    )


def rerun_saved(
    path: str | os.PathLike[str],
    *,
    plugins: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Sequence[Any]:
    """Run the backend of a saved case in this process and return its outputs in order.

    ``plugins`` are modules to load, by default those of ``OPTEST_PLUGINS``; ``options`` are those of the driver
    (``torch_device``).

    Raises:
        Fault: if the backend fails.
    """
    from optest.api.startup import bootstrap
    from optest.backends import backend_manager
    from optest.core.actual import actual_outputs

    bootstrap(plugins)
    saved = load_saved(path)
    case = case_from_wire(saved.facts["case"], operators.get)
    driver = backend_manager.get(case.backend.name)
    driver.configure(options or {})
    outputs, _ = actual_outputs(case, driver, list(saved.inputs.values()), None, lambda: True)
    return outputs


ask_again = rerun_saved  # the name in scripts of earlier versions


def save(result: CaseResult, case: TestCase, kept: Path, path: Path) -> list[str] | None:
    """Write the tensors that a run kept of a case to one file and return their names; None without tensors."""
    before = inputs_path(kept, case)
    if not before.exists():
        return None
    archive = read_archive(before)
    tensors = dict(archive.tensors)
    if outputs_path(kept, case).exists():
        tensors |= read_archive(outputs_path(kept, case)).tensors
    for name in [name.removesuffix(".actual") for name in tensors if name.endswith(".actual")]:
        expected = tensors.get(f"{name}.expected")
        error = None if expected is None else element_error(tensors[f"{name}.actual"], expected)
        if error is not None:
            tensors[f"{name}.error"] = error
    facts = {
        **archive.facts,
        "status": result.status.value,
        "reason": result.reason.value if result.reason else None,
        "target": result.target,
    }
    write_archive(path, Archive(tensors=tensors, offsets=archive.offsets, facts=facts))
    return [entry_name(name, spec_of(tensor, archive.offsets.get(name, 0))) for name, tensor in tensors.items()]


def file_stem(name: str, taken: set[str]) -> str:
    """Return a file name without suffix for a case, legal everywhere and not in ``taken``, to which it is added."""
    plain = re.sub(r"[^\w.=+-]+", "-", name, flags=re.ASCII).strip("-.")[:80] or "case"
    stem, number = plain, 2
    while stem.casefold() in taken:  # case-insensitive, as some file systems are
        stem, number = f"{plain}-{number}", number + 1
    taken.add(stem.casefold())
    return stem


def _with_suffix(archive: Archive, suffix: str) -> dict[str, Any]:
    """Return the tensors whose names end with ``ending``, by their names without it."""
    return {name.removesuffix(suffix): tensor for name, tensor in archive.tensors.items() if name.endswith(suffix)}
