"""The lines that `optest explain` names for what the defaults of a file of model cases say."""

from __future__ import annotations

import pytest
from model_kit import TENSOR, cases_of

from optest.plan import explain_case

CASES = f"cases:\n  - {{name: a, op: torch.abs, inputs: [{TENSOR}]}}\n"


def origins(text: str) -> dict[str, str]:
    (case,) = cases_of(text)
    return {what: origin for what, _, origin in explain_case(case)}


@pytest.mark.parametrize("key", ["default", "defaults"])
@pytest.mark.parametrize("named", ["rtol", "atol"])
def test_default_is_explained_by_its_line(key: str, named: str) -> None:
    found = origins(f"# one\nmodel: m\n{key}:\n  dtype: fp16\n  {named}: 0.5\n  seed: 7\n{CASES}")
    assert found["seed"] == "m.yaml:6"
    assert found["tolerance"] == "m.yaml:5 (plan default)"
    assert found["tags"] == "m.yaml:2 defaults"


def test_a_seed_that_nobody_states_is_no_line() -> None:
    assert origins(f"model: m\n{CASES}")["seed"] == "default"


def test_a_seed_of_the_case_is_the_cases() -> None:
    text = f"model: m\ndefault: {{seed: 7}}\n{CASES.replace('name: a,', 'name: a, seed: 8,')}"
    assert origins(text)["seed"] == "m.yaml:4"
