"""Tolerance files: JSON (or YAML) rules that state ``atol`` and ``rtol`` by backend and by test.

    {"default": {"atol": 5e-4, "rtol": 1e-4},
     "rules": [{"backend": "faer", "test": "torch_feed_forward_*", "atol": 2e-3}]}

A rule becomes layers of the tolerance of a case, as what a plan states does. Of ``atol`` and of ``rtol`` each, the most
specific rule that states it decides: default, backend, test, backend and test; among equals the last.
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

TORCH_PARITY = "configs/torch_parity.json"
"""Taken by itself by checks and suites that run where it lies."""

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
        """One that names a test relaxes what has one right answer, too, as a case of a plan does."""
        return Layer.CASE if self.test.strip("*") else Layer.PLAN

    def is_of(self, backend: str) -> bool:
        return not self.backend or glob_pattern(self.backend).fullmatch(backend) is not None

    def covers(self, case: TestCase) -> bool:
        names = (case.descriptor.test_name, case.id)
        return not self.test or any(glob_pattern(self.test).fullmatch(name) for name in names)


@dataclass(frozen=True, slots=True)
class ToleranceRules:
    """The rules of a file, from the least specific to the one that decides."""

    rules: Sequence[_ToleranceRule] = ()

    def applied(self, cases: Iterable[TestCase]) -> list[TestCase]:
        """The cases with what the rules say of them, below what they state themselves."""
        return [dataclasses.replace(case, tolerances=(*case.tolerances, *self._layers(case))) for case in cases]

    def unused(self, cases: Collection[TestCase]) -> list[str]:
        """A line for each rule for the backend of these cases that is about none of them."""
        backends = {case.backend.name for case in cases}
        return [
            f"tolerance rule {rule.where} ({rule.backend or 'any backend'}, {rule.test}) matched no case of this run"
            for rule in self.rules
            if rule.test and any(map(rule.is_of, backends)) and not any(map(rule.covers, cases))
        ]

    def _layers(self, case: TestCase) -> Iterable[ToleranceLayer]:
        """At most two: what rules that name no test say together, and above it what those say that name one."""
        mine = [rule for rule in self.rules if rule.is_of(case.backend.name) and rule.covers(case)]
        for layer in (Layer.CASE, Layer.PLAN):
            rules = [rule for rule in mine if rule.layer is layer]
            stated: dict[str, Any] = {}
            wheres: dict[str, str] = {}
            for rule in rules:
                stated |= rule.tolerance.fields()
                wheres |= dict.fromkeys(rule.tolerance.fields(), rule.where)
            if stated:
                where = " and ".join(dict.fromkeys(wheres.values()))
                yield ToleranceLayer(layer=layer, tolerance=Tolerance(**stated), where=where)


def read_tolerances(path: str | os.PathLike[str]) -> ToleranceRules:
    """Read a tolerance file.

    Raises:
        PlanError: with everything that is wrong with it: unknown keys, negative numbers, NaN, a rule without a number.
    """
    document, source = read_document(path, "the tolerances", _Document, _known_keys)
    ledger = Ledger(source)
    rules = [_read(rule, ("rules", index), source, ledger) for index, rule in enumerate(document.rules)]
    if document.default:
        rules.insert(0, _read(document.default, ("default",), source, ledger))
    ledger.refuse()
    return ToleranceRules(sorted(rules, key=lambda rule: rule.rank))


def _read(stated: Any, place: Path, source: Source, ledger: Ledger) -> _ToleranceRule:
    bounds: dict[str, Any] = {name: float(stated[name]) for name in ("atol", "rtol") if name in stated}
    if not bounds:
        ledger.problem(place, "the rule states neither atol nor rtol", "a rule without a number changes nothing")
    return _ToleranceRule(
        backend=stated.get("backend", ""),
        test=stated.get("test", ""),
        tolerance=Tolerance(**bounds),
        where=f"{source.file}:{source.line_of(place)}",
    )


def _known_keys(path: Path) -> Collection[str]:
    levels = {"default": _Default, "rules": _Rule}
    return list(levels[path[0]].__annotations__ if path and path[0] in levels else _Document.model_fields)
