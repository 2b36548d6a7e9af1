"""``optest check --config``: the programs of a backend that runs commands, by operator, as YAML or JSON.

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
    """What ``backend_config`` of the driver says for each operator, by its canonical name, and where that stands."""

    stated: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    source: Source | None = None
    places: Mapping[str, Path] = field(default_factory=dict)

    def refuse(self, backend: str, problems: Iterable[tuple[str, str]]) -> None:
        """Tell where it stands what a driver says of the sections of operators: ``backend_config.NAME.key is …``.

        Raises:
            PlanError: if there is any problem.
        """
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
    """The section of ``backend``: what it states for all operators, and for each one beside it.

    Paths are relative to the file. Whoever runs the programs says what is wrong with a section.

    Raises:
        PlanError: for a file that cannot be read, or an operator that is not known.
        UsageError: if it has no section of this backend.
    """
    document, source = read_document(
        path, "the config", _Sections, lambda keys: ("workdir", "operators") if len(keys) == 1 else ()
    )
    if backend not in document.root:
        raise UsageError(f"{path} has sections for {', '.join(document.root) or 'nothing'}, but not for {backend}")
    section, ledger = document.root[backend], Ledger(source)
    shared = {**(section.model_extra or {}), "workdir": os.path.join(os.path.dirname(path), section.workdir)}
    programs: dict[str, Mapping[str, Any]] = {}
    places: dict[str, Path] = {}
    for name, stated in section.operators.items():
        place = (backend, "operators", name)
        if (known := ledger.found(place, operators.get, name)) is not None:
            programs[known.name] = {**shared, "promises": {}, **stated}
            places[known.name] = place
    ledger.refuse()
    return Programs(programs, source, places)
