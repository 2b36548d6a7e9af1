"""Dumps of a program and its executions, and tables of the backend's profiler."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from optest.backends.whole_models import ModelProgram
from optest.core.border import Border
from optest.errors import UsageError, plural
from optest.generators.files import save_tensors
from optest.models.dumps import save_values
from optest.numerics import Array, same_bits
from optest.reporting.bench_table import seconds_text
from optest.reporting.typography import columns
from optest.spec import Fault, Reason
from optest.store import write_atomically

_SHOWN_ROWS = 20
_BORDER = Border("the backend", Reason.RAISED)


class Hooks:
    """Dumps and profile of one program by ``dump_dir``, ``dump_mode`` and ``profile``; ``part`` is a subfolder.

    The folder gets the program's files, ``profile.json`` for chrome://tracing and Perfetto, and in mode ``all`` a
    folder for each execution: ``inputs``, ``outputs`` and ``values.safetensors``; ``index.json`` has the order.

    Raises:
        UsageError: for a folder that exists and is not empty.
    """

    def __init__(self, given: Mapping[str, Any], part: str = "") -> None:
        self._folder = folder = Path(given["dump_dir"]) / part if given["dump_dir"] else None
        if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"--dump-dir is {folder}, which is in use; name a new or an empty folder")
        self._mode, self._profiles, self._executions = given["dump_mode"], given["profile"], 0
        words = "-".join(["profile", *part.split("/")]) if part and folder is None else "profile"
        self._trace = (folder or Path()) / f"{words}.json"

    def all_lines(self, program: ModelProgram, feeds: Mapping[str, Array]) -> Iterator[str]:
        """Run a program only for its dump and profile; yield the lines of :meth:`closing_lines`."""
        if self._folder is not None:
            self.executed(program, feeds)
        yield from self.closing_lines(program, feeds)

    def executed(self, program: ModelProgram, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run a program, dump the execution if requested, and return the outputs; a Fault leaves a partial dump."""
        if self._folder is None:
            return _outputs(program, feeds)
        if self._executions == 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            for name, content in program.files(feeds).items():
                write_atomically(self._folder / name, content)
        target = self._folder / f"{self._executions:05}"
        self._executions += 1
        if self._mode != "all":
            return _outputs(program, feeds)
        target.mkdir()
        save_tensors(feeds, target / "inputs.safetensors", str(program))
        outputs = _outputs(program, feeds)
        save_tensors(outputs, target / "outputs.safetensors", str(program))
        index: dict[str, Any] = {"program": str(program)}
        try:
            with _BORDER:
                values = save_values(program, feeds, target / "values.safetensors")
        except Fault as fault:
            index["no_values"] = fault.message
        else:
            index["values"] = [{**each, "file": "values.safetensors"} for each in values.index]
            seen = outputs.keys() & values.tensors.keys()
            same = same_bits(*([tensors[name] for name in seen] for tensors in (outputs, values.tensors)))
            index["outputs_unchanged_by_watching"] = same if seen else None
        write_atomically(target / "index.json", json.dumps(index, indent=1).encode())
        return outputs

    def closing_lines(self, program: ModelProgram, feeds: Mapping[str, Array]) -> Iterator[str]:
        """Yield the profiler's table of one more run and the path of the dump, each if requested.

        Raises:
            Fault: UNSUPPORTED if the backend has no profiler.
        """
        if self._profiles:
            self._trace.unlink(missing_ok=True)
            with _BORDER:
                rows = sorted(program.profile(feeds, self._trace), key=lambda row: -row[2])
            total_s = sum(seconds for _, _, seconds in rows) or 1.0
            shown = [
                (name, str(calls), seconds_text(s), f"{100 * s / total_s:.1f}") for name, calls, s in rows[:_SHOWN_ROWS]
            ]
            yield "profile of one run, by the backend's profiler"
            yield from columns([("operator", "calls", "time", "%"), *shown], left=frozenset({0}))
            if len(rows) > _SHOWN_ROWS:
                yield f"  and {len(rows) - _SHOWN_ROWS} more operators"
            if self._trace.exists():
                yield f"  for chrome://tracing or Perfetto: {self._trace}"
            else:
                yield "  no trace for viewers: the backend reports durations without start times"
        if self._folder is not None:
            kept = f" and {plural(self._executions, 'execution')}" if self._mode == "all" else ""
            yield f"dumped: the program{kept} in {self._folder}"


def _outputs(program: ModelProgram, feeds: Mapping[str, Array]) -> dict[str, Array]:
    with _BORDER:
        return program.outputs(feeds)
