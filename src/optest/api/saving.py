"""Tensors of a replay on disk: what ``optest replay --save`` writes, and how it is read again.

A file is a ``.npz`` that NumPy alone reads; :func:`load_saved` gives element types and strides back as well::

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

from optest.backends.command_abilities import configure
from optest.core.kept_tensors import (
    Archive,
    element_error,
    entry_name,
    kept_actual,
    kept_before,
    read_archive,
    spec_of,
    write_archive,
)
from optest.core.wire import case_from_wire
from optest.operators import operators
from optest.spec import CaseResult, TestCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Tensors by name as they were: ``input0`` …, and ``output0`` … in each of the other three.

    ``expected`` is the reference's float64, not yet rounded (exact integers and bool as they are). ``actual`` is empty
    if the backend handed nothing over. ``error`` is ``|actual - expected|`` in float64. ``facts`` holds id, key,
    status, reason and the case in wire form.
    """

    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]
    actual: Mapping[str, Any]
    error: Mapping[str, Any]
    facts: Mapping[str, Any]


def load_saved(path: str | os.PathLike[str]) -> Saved:
    """Read a file of saved tensors: bit for bit, in their element types and strides.

    Raises:
        UsageError: if it is no such file.
    """
    archive = read_archive(Path(path))
    return Saved(
        inputs={name: tensor for name, tensor in archive.tensors.items() if "." not in name},
        expected=_ending(archive, ".expected"),
        actual=_ending(archive, ".actual"),
        error=_ending(archive, ".error"),
        facts=archive.facts,
    )


def ask_again(
    path: str | os.PathLike[str],
    *,
    plugins: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Sequence[Any]:
    """Ask the backend of a saved case again, in this process and through optest, and return its outputs in order.

    ``plugins`` are modules to load, None those of ``OPTEST_PLUGINS``; ``options`` are those of the driver
    (``torch_device``).

    Raises:
        Fault: as the backend does.
    """
    from optest.api import bootstrap
    from optest.backends import backend_manager
    from optest.core.actual import actual_outputs

    bootstrap(plugins)
    saved = load_saved(path)
    case = case_from_wire(saved.facts["case"], operators.get)
    driver = backend_manager.get(case.backend.name)
    configure(driver, options or {})
    outputs, _ = actual_outputs(case, driver, list(saved.inputs.values()), None, lambda: True)
    return outputs


def save(result: CaseResult, case: TestCase, kept: Path, path: Path) -> list[str] | None:
    """Put what a run kept of a case into one file and return the names of its tensors, None if nothing was kept.

    Raises:
        UsageError: if ``path`` cannot be written.
    """
    before = kept_before(kept, case)
    if not before.exists():
        return None
    archive = read_archive(before)
    tensors = dict(archive.tensors)
    if kept_actual(kept, case).exists():
        tensors |= read_archive(kept_actual(kept, case)).tensors
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
    """A file name for a case, without its ending: readable, legal everywhere and not among ``taken``, to which it is
    added."""
    plain = re.sub(r"[^\w.=+-]+", "-", name, flags=re.ASCII).strip("-.")[:80] or "case"
    stem, place = plain, 2
    while stem.casefold() in taken:
        stem, place = f"{plain}-{place}", place + 1
    taken.add(stem.casefold())
    return stem


def _ending(archive: Archive, ending: str) -> dict[str, Any]:
    return {name.removesuffix(ending): tensor for name, tensor in archive.tensors.items() if name.endswith(ending)}
