"""Tolerance files: JSON (or YAML) rules with ``atol`` and ``rtol`` by backend and by test.

    {"default": {"atol": 5e-4, "rtol": 1e-4},
     "rules": [{"backend": "faer", "test": "torch_feed_forward_*", "atol": 2e-3}]}

A rule becomes tolerance layers of the cases, like the tolerance of a plan. For each of ``atol`` and ``rtol`` the most
specific rule that sets it decides: default, backend, test, backend and test; among equals the last.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from optest.plan.problems import Ledger, read_document
from optest.plan.select import glob_pattern
from optest.plan.yaml_source import Path, Source
from optest.spec import Layer, TestCase, Tolerance, ToleranceLayer

# Read without being named by checks and suites that run in the folder with this file.
TORCH_PARITY = "configs/torch_parity.json"

# Not strict, so that 0 is a number like 0.0.
_Bound = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)]


@with_config(ConfigDict(extra="forbid", strict=True))
class _Default(TypedDict, total=False):
    atol: _Bound
    rtol: _Bound


@with_config(ConfigDict(extra="forbid", strict=True))
class _Rule(_Default, total=False):
    backend: Annotated[str, Field(min_length=1, description="Name of a backend, or a glob.")]
    test: Annotated[str, Field(min_length=1, description="softmax_matches_torch, an id of a case, or a glob.")]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    default: _Default = Field(default_factory=lambda: _Default())
    rules: list[_Rule] = Field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ToleranceRule:
    backend: str
    test: str
    tolerance: Tolerance
    where: str

    @property
    def rank(self) -> tuple[bool, bool]:
        return bool(self.test), bool(self.backend)

    @property
    def layer(self) -> Layer:
        # A rule that names a test may relax exact results too, like the tolerance of a case in a plan.
        return Layer.CASE if self.test.strip("*") else Layer.PLAN

    def is_of(self, backend: str) -> bool:
        return not self.backend or glob_pattern(self.backend).fullmatch(backend) is not None

    def covers(self, case: TestCase) -> bool:
        names = (case.descriptor.test_name, case.id)
        return not self.test or any(glob_pattern(self.test).fullmatch(name) for name in names)


@dataclass(frozen=True, slots=True)
class ToleranceRules:
    """The rules of a file, the most specific last."""

    rules: Sequence[_ToleranceRule] = ()

    def apply(self, cases: Iterable[TestCase]) -> list[TestCase]:
        """Return the cases with the layers of their rules added, which their own tolerances override."""
        return [dataclasses.replace(case, tolerances=(*case.tolerances, *self._layers(case))) for case in cases]

    def unused(self, cases: Collection[TestCase]) -> list[str]:
        """Return a note for each rule that names a test, is for the backend of these cases, and matches none."""
        backends = {case.backend.name for case in cases}
        return [
            f"tolerance rule {rule.where} ({rule.backend or 'any backend'}, {rule.test}) matched no case of this run"
            for rule in self.rules
            if rule.test and any(map(rule.is_of, backends)) and not any(map(rule.covers, cases))
        ]

    def _layers(self, case: TestCase) -> Iterable[ToleranceLayer]:
        """Yield at most two layers: the rules that name a test merged, and those that do not."""
        matching = [rule for rule in self.rules if rule.is_of(case.backend.name) and rule.covers(case)]
        for layer in (Layer.CASE, Layer.PLAN):
            bounds: dict[str, Any] = {}
            origins: dict[str, str] = {}
            for rule in (rule for rule in matching if rule.layer is layer):
                bounds |= rule.tolerance.fields()
                origins |= dict.fromkeys(rule.tolerance.fields(), rule.where)
            if bounds:
                where = " and ".join(dict.fromkeys(origins.values()))
                yield ToleranceLayer(layer=layer, tolerance=Tolerance(**bounds), where=where)


def read_tolerances(path: str | os.PathLike[str]) -> ToleranceRules:
    """Return the rules of a tolerance file; raise PlanError with all its problems."""
    document, source = read_document(path, "the tolerances", _Document, _known_keys)
    ledger = Ledger(source)
    rules = [_read_rule(rule, ("rules", index), source, ledger) for index, rule in enumerate(document.rules)]
    if document.default:
        rules.insert(0, _read_rule(document.default, ("default",), source, ledger))
    ledger.refuse()
    # The sort is stable: among equals the last one stays the last.
    return ToleranceRules(sorted(rules, key=lambda rule: rule.rank))


def _read_rule(entry: Any, place: Path, source: Source, ledger: Ledger) -> _ToleranceRule:
    bounds: dict[str, Any] = {name: float(entry[name]) for name in ("atol", "rtol") if name in entry}
    if not bounds:
        ledger.problem(place, "the rule sets neither atol nor rtol", "a rule without a number has no effect")
    return _ToleranceRule(
        backend=entry.get("backend", ""),
        test=entry.get("test", ""),
        tolerance=Tolerance(**bounds),
        where=f"{source.file}:{source.line_of(place)}",
    )


def _known_keys(path: Path) -> Collection[str]:
    levels = {"default": _Default, "rules": _Rule}
    return list(levels[path[0]].__annotations__ if path and path[0] in levels else _Document.model_fields)


def with_signed_zeros(cases: Iterable[TestCase]) -> list[TestCase]:
    """Return the cases with strict signs of zeros (``--signed-zeros``) for operators that define these signs."""
    strict = ToleranceLayer(
        layer=Layer.COMMAND_LINE, tolerance=Tolerance(signed_zeros="strict"), where="--signed-zeros"
    )
    return [
        dataclasses.replace(case, tolerances=(*case.tolerances, strict)) if case.descriptor.signed_zeros else case
        for case in cases
    ]
