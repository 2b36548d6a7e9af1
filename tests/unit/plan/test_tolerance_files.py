"""Tolerance files: the rule that decides for a backend and a test, and refused files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optest.compare import Expected
from optest.compare.policy import resolve
from optest.errors import PlanError
from optest.operators import operators
from optest.plan.tolerance_files import ToleranceRules, read_tolerances
from optest.spec import (
    Argument,
    BackendTarget,
    Fill,
    Layer,
    Numerics,
    OperatorDescriptor,
    TensorSpec,
    TestCase,
    Tolerance,
    ToleranceLayer,
    dtype,
)

SEED = {
    "default": {"atol": 5e-4, "rtol": 1e-4},
    "rules": [
        {"backend": "faer", "atol": 1.5e-3, "rtol": 2e-4},
        {"test": "torch_feed_forward_*", "atol": 1.5e-3},
        {"backend": "faer", "test": "torch_feed_forward_*", "atol": 2e-3, "rtol": 2e-4},
    ],
}


def rules(folder: Path, document: Any) -> ToleranceRules:
    file = folder / "torch_parity.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document, indent=1))
    return read_tolerances(file)


def case(backend: str, operator: str, *layers: ToleranceLayer, kind: str = "float32") -> TestCase:
    spec = TensorSpec(dtype=dtype(kind), shape=(2, 3))
    known = operators.get(operator) if operator in operators else OperatorDescriptor(name=operator, signature="x -> y")
    return TestCase(
        descriptor=known,
        inputs=(Argument(name="x", path="input0", spec=spec, fill=Fill(kind="randn")),),
        outputs=(spec,),
        backend=BackendTarget(name=backend),
        tolerances=layers,
    )


def pair(found: ToleranceRules, asked: TestCase) -> tuple[float, float]:
    (judged,) = found.apply([asked])
    spec = asked.outputs[0]
    expected = Expected(name="y", dtype=spec.dtype, shape=spec.shape, value=np.zeros(spec.shape))
    allowance = resolve(judged, expected, 0, Numerics(), None)
    return allowance.atol, allowance.rtol


@pytest.mark.parametrize(
    ("backend", "operator", "effective"),
    [
        ("other", "silu", (5e-4, 1e-4)),
        ("faer", "silu", (1.5e-3, 2e-4)),
        ("other", "torch_feed_forward_gated", (1.5e-3, 1e-4)),
        ("faer", "torch_feed_forward_gated", (2e-3, 2e-4)),
    ],
)
def test_the_seeds_example(tmp_path: Path, backend: str, operator: str, effective: tuple[float, float]) -> None:
    assert pair(rules(tmp_path, SEED), case(backend, operator)) == effective


def test_last_rule_of_equal_rank_wins(tmp_path: Path) -> None:
    ranked = [{"test": "silu_*", "atol": 1e-3}, {"backend": "f*", "atol": 1}, {"test": "silu*", "atol": 2e-3}]
    found = rules(tmp_path, {"rules": ranked})
    assert pair(found, case("faer", "silu")) == (2e-3, 0)


def test_what_a_case_states_itself_wins(tmp_path: Path) -> None:
    own = ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(atol=1e-6), where="plan.yaml:3")
    assert pair(rules(tmp_path, {"rules": [{"test": "silu*", "atol": 1}]}), case("faer", "silu", own)) == (1e-6, 0)


@pytest.mark.parametrize(("test", "atol"), [("", 0), ("*", 0), ("neg_matches_torch", 1)])
def test_only_named_test_relaxes_exact_results(tmp_path: Path, test: str, atol: float) -> None:
    found = rules(tmp_path, {"rules": [{"atol": 1} | ({"test": test} if test else {})]})
    assert pair(found, case("faer", "neg", kind="int32"))[0] == atol


def test_unused_rule_of_other_backend_is_silent(tmp_path: Path) -> None:
    found = rules(tmp_path, {"rules": [{"test": "silo*", "atol": 1}, {"backend": "other", "test": "silo*", "atol": 1}]})
    (line,) = found.unused([case("faer", "silu")])
    assert "silo*" in line
    assert "matched no case" in line


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"default": {"atol": -1}}, "expected at least 0"),
        ('{"default": {"atol": NaN}}', "finite number"),
        ('{"default": {"atol": Infinity}}', "finite number"),
        ({"default": {"atol": "1e-3x"}}, "atol"),
        ({"default": {"atl": 1}}, "did you mean atol?"),
        ({"defaults": {"atol": 1}}, "did you mean default?"),
        ({"rules": [{"backends": "faer", "atol": 1}]}, "did you mean backend?"),
        ({"rules": [{"backend": "faer"}]}, "neither atol nor rtol"),
        ({"rules": [{"test": "", "atol": 1}]}, "test"),
        ({"rules": {"test": "a"}}, "rules"),
        ("[]", ""),
        ('{"default":\n{"atol": 1,,}}', "torch_parity.json:2: this is not JSON: expecting property name"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(tmp_path: Path, document: Any, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        rules(tmp_path, document)
    assert said in str(caught.value)
    assert "torch_parity.json:" in str(caught.value)


def test_no_rules_change_nothing(tmp_path: Path) -> None:
    asked = case("faer", "silu")
    assert rules(tmp_path, {}).apply([asked]) == [asked]
