"""What of a case a resumed run must find unchanged: everything but where it was written and what is said of it."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import Any

import pytest

from optest.backends import backend_manager
from optest.core import provenance
from optest.core.provenance import fingerprint
from optest.spec import (
    Argument,
    BackendTarget,
    ExpectedError,
    Fill,
    Layer,
    OperatorDescriptor,
    Skip,
    TensorSpec,
    TestCase,
    Tolerance,
    ToleranceLayer,
    Xfail,
    dtype,
)

NAME = "the selected cases or their settings"
COPY = OperatorDescriptor(name="copy", signature="x -> out", reference="optest.nowhere:copy")
SPEC = TensorSpec(dtype=dtype("float32"), shape=(2,))
PLAIN = TestCase(
    descriptor=COPY,
    inputs=(Argument(name="x", path="input0", spec=SPEC, fill=Fill(kind="randn")),),
    attributes={"alpha": 1},
    tolerances=(ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(rtol=1e-3)),),
    tags=("a",),
)
CHANGED: dict[str, Any] = {
    "descriptor": replace(COPY, signature="y -> out"),
    "inputs": (replace(PLAIN.inputs[0], fill=Fill(kind="ones")),),
    "outputs": (SPEC,),
    "attributes": {"alpha": 1.0},
    "backend": BackendTarget(name="numpy", chip="b"),
    "backend_config": {"torch": {"x": 1}},
    "name": "other",
    "seed": 1,
    "generator": "optest.mine:G",
    "reference": "optest.mine:f",
    "tolerances": (ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(rtol=2e-3)),),
    "timeout_s": 3.0,
    "retries": 1,
    "priority": 1,
    "skip": Skip(reason="no"),
    "xfail": Xfail(reason="known"),
    "expects_error": ExpectedError(),
    "invariants": ("repeat",),
    "mode": "validation",
    "tags": ("b",),
}
PLACES: dict[str, Any] = {
    "where": "plan.yaml:3",
    "base_dir": "elsewhere",
    "allowed_folders": ("elsewhere",),
    "origins": {"seed": "plan.yaml:3"},
    "description": "why",
}


def printed(*cases: TestCase) -> str:
    return fingerprint(plans=(), cases=cases, plugins=(), driver=backend_manager.get("numpy"), options={})[NAME]


def test_fields_of_cases_are_fingerprinted_or_locations() -> None:
    assert {each.name for each in fields(TestCase) if each.init} == CHANGED.keys() | PLACES.keys()


@pytest.mark.parametrize(("name", "value"), [*CHANGED.items(), *PLACES.items()])
def test_all_but_where_a_case_was_written_counts(name: str, value: Any) -> None:
    assert (printed(replace(PLAIN, **{name: value})) != printed(PLAIN)) == (name in CHANGED)


def test_equal_values_count_alike_whoever_holds_them() -> None:
    others = [replace(PLAIN, **{name: value}) for name, value in CHANGED.items()]
    apart = [replace(each, **{name: copy.deepcopy(getattr(each, name)) for name in CHANGED}) for each in others]
    assert printed(*apart) == printed(*others)


def test_the_order_of_cases_counts() -> None:
    other = replace(PLAIN, seed=1)
    assert printed(PLAIN, other) != printed(other, PLAIN)


def test_what_is_forgotten_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [replace(PLAIN, **{name: value}) for name, value in CHANGED.items()] * 2
    before = printed(*cases)
    monkeypatch.setattr(provenance, "MAX_WRITTEN", 2)
    assert printed(*cases) == before
