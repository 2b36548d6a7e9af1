"""``grad`` of a file of model cases: what it asks for, and where it cannot stand."""

from __future__ import annotations

import pytest
from model_kit import TENSOR, case_of, cases_of, file_of, said
from texts import refusal

from optest.errors import UsageError
from optest.operators import operators
from optest.spec import TestCase
from optest.torch.cases import with_gradients


@pytest.mark.parametrize("entry", ["op: torch.abs", "op: torch.abs, grad: false"])
def test_without_it_a_case_is_what_it_was(entry: str) -> None:
    plain = case_of(f"op: torch.abs, inputs: [{TENSOR}]")
    assert case_of(f"{entry}, inputs: [{TENSOR}]").key == plain.key
    assert "grad" not in plain.signature()["attributes"]


def test_grad_default_excludes_expected_errors() -> None:
    text = file_of(
        f"""
        - {{name: a, op: torch.abs, inputs: [{TENSOR}]}}
        - {{name: b, op: torch.abs, grad: false, inputs: [{TENSOR}]}}
        - {{name: c, op: torch.abs, expects_error: {{type: TypeError}}, inputs: [{TENSOR}]}}
        """
    ).replace("model: m", "model: m\ndefault: {grad: true}")
    assert [case.attributes["grad"] for case in cases_of(text)] == [True, None, None]


def test_a_case_and_its_gradient_are_two_things() -> None:
    plain, other = (case_of(f"op: torch.abs, grad: {word}, inputs: [{TENSOR}]") for word in ("false", "true"))
    assert other.attributes["grad"] is True
    assert plain.key != other.key


NO_GRADIENT = "grad is set, but a call that must raise an error has no gradient"


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("grad: 1", "m.yaml:3"),
        ("grad: true, expects_error: {type: TypeError}", NO_GRADIENT),
        ("grda: true", "did you mean grad?"),
    ],
)
def test_what_cannot_stand_there(entry: str, text: str) -> None:
    assert text in said(file_of(f"- {{name: a, op: torch.abs, {entry}, inputs: [{TENSOR}]}}"))


def test_backward_option_applies_to_torch_calls() -> None:
    text = file_of(
        f"""
        - {{name: a, op: torch.abs, inputs: [{TENSOR}]}}
        - {{name: b, op: torch.abs, expects_error: {{type: TypeError}}, inputs: [{TENSOR}]}}
        """
    )
    native = TestCase(descriptor=operators.get("exp"), inputs=())
    found = with_gradients([*cases_of(text), native])
    assert [case.attributes.get("grad") for case in found] == [True, None, None]
    assert found[0].key == case_of(f"op: torch.abs, grad: true, inputs: [{TENSOR}]").key
    with refusal(UsageError, "plan.no_case_is_call"):
        with_gradients([native])


def test_a_case_asks_for_the_strides_of_torch() -> None:
    plain = case_of(f"op: torch.abs, inputs: [{TENSOR}]")
    assert case_of(f"op: torch.abs, same_strides: true, inputs: [{TENSOR}]").attributes["same_strides"] is True
    assert case_of(f"op: torch.abs, same_strides: false, inputs: [{TENSOR}]").key == plain.key
