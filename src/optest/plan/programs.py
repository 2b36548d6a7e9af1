"""Configuration of `optest check --config`: the programs of a command backend, by operator, as YAML or JSON.

command:
  build: [make]
  operators:
    softmax:
      command: [./softmax, "{input0}", "{output0}", "{shape0[0]}", "{shape0[1]}", "{attr:dim}"]
      promises: {dtypes: [float32], ranks: [2]}
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, RootModel

from optest.errors import UsageError
from optest.plan.backend_options import keys_in
from optest.plan.operator_lookup import Operators
from optest.plan.problems import Ledger, read_document
from optest.plan.yaml_source import Path, Source


@dataclass(frozen=True, slots=True)
class Programs:
    """The ``backend_config`` of each operator, by canonical name, with its position in the file."""

    options_by_operator: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    source: Source | None = None
    places: Mapping[str, Path] = field(default_factory=dict)

    def refuse(self, backend: str, problems: Iterable[tuple[str, str]]) -> None:
        """Raise PlanError with the driver's problems, pairs of operator and ``backend_config.NAME.key is …``."""
        ledger = Ledger(self.source)
        for operator, problem in problems:
            message = problem.removeprefix(f"backend_config.{backend}").lstrip(". ")
            ledger.problem((*self.places[operator], *keys_in(problem, backend)), message)
        ledger.refuse()


class _Section(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    workdir: str = "."
    operators: dict[str, dict[str, Any]]


class _Sections(RootModel[dict[str, _Section]]):
    pass


def read_programs(path: str, backend: str, operators: Operators) -> Programs:
    """Return the section of ``backend`` by operator, its common keys merged into each; check only operator names.

    Paths are relative to the file.

    Raises:
        PlanError: if the file cannot be read, or an operator is unknown.
        UsageError: if the file has no section for this backend.
    """
    document, source = read_document(
        path, "the config", _Sections, lambda keys: ("workdir", "operators") if len(keys) == 1 else ()
    )
    if backend not in document.root:
        sections = ", ".join(document.root) or "nothing"
        raise UsageError(f"{path} has sections for {sections}, but not for {backend}; add `{backend}:` to it")
    section, ledger = document.root[backend], Ledger(source)
    # The programs start in the folder of the file, wherever optest runs.
    shared = {**(section.model_extra or {}), "workdir": os.path.join(os.path.dirname(path), section.workdir)}
    programs: dict[str, Mapping[str, Any]] = {}
    places: dict[str, Path] = {}
    for name, options in section.operators.items():
        place = (backend, "operators", name)
        if (known := ledger.attempt(place, operators.get, name)) is not None:
            # Without `promises` the driver would run calls that the command's arguments do not describe.
            programs[known.name] = {**shared, "promises": {}, **options}
            places[known.name] = place
    ledger.refuse()
    return Programs(programs, source, places)
