"""Defects of the YAML framework that this dialect comes from, which optest does not have."""

from __future__ import annotations

from typing import Any

import pytest
from model_kit import cases_of, file_of

from optest.generators.random_tensors import RandomTensorGenerator
from optest.spec import Reason, Status, Verdict


def test_captured_layout_is_rebuilt_from_seed() -> None:
    """A stride of 0 repeats one drawn element, an offset moves the view; the same seed gives the same bytes."""
    text = file_of("- {name: a, op: torch.sum, inputs: [{tensor: {shape: [5, 4], stride: [0, 1], storage_offset: 3}}]}")
    (first,), _ = RandomTensorGenerator().generate(cases_of(text)[0])
    (again,), _ = RandomTensorGenerator().generate(cases_of(text)[0])
    assert (first.shape, first.strides) == ((5, 4), (0, 4))
    assert (first == first[:1]).all()
    assert len(set(first[0].tolist())) == 4
    assert first.tobytes() == again.tobytes()


@pytest.mark.parametrize("init", ["rand", "randn", "uniform", "xavier"])
def test_no_fill_forgets_the_layout_or_the_seed(init: str) -> None:
    """xavier ignored both, and a stride drew anew outside the seed."""
    tensor = f"{{tensor: {{shape: [3, 4], stride: [1, 3], storage_offset: 2, init: {init}}}}}"
    text = file_of(f"- {{name: a, op: torch.sum, inputs: [{tensor}]}}")
    (first,), _ = RandomTensorGenerator().generate(cases_of(text)[0])
    (again,), _ = RandomTensorGenerator().generate(cases_of(text)[0])
    (other,), _ = RandomTensorGenerator().generate(
        cases_of(text.replace("model: m", "model: m\ndefault: {seed: 9}"))[0]
    )
    assert first.strides == (4, 12)
    assert (first == again).all()
    assert not (first == other).all()


def test_marks_skip_and_xfail_take_effect() -> None:
    skipped, known, plain = cases_of(
        file_of(
            """
            - {name: a, op: torch.neg, inputs: [{tensor: {shape: [2]}}], mark: skip}
            - {name: b, op: torch.neg, inputs: [{tensor: {shape: [2]}}], marks: [xfail, slow]}
            - {name: c, op: torch.neg, inputs: [{tensor: {shape: [2]}}], mark: slow}
            """
        )
    )
    assert (skipped.skip is not None and skipped.skip.reason, skipped.xfail) == ("mark: skip", None)
    assert known.xfail is not None
    assert (known.xfail.status, known.xfail.reason) == (None, "mark: xfail")  # as pytest: failures and errors
    assert (plain.skip, plain.xfail) == (None, None)
    assert [each.tags for each in (skipped, known, plain)] == [
        ("model_m", "skip"), ("model_m", "xfail", "slow"), ("model_m", "slow"),
    ]  # fmt: skip


def verdict_of(case: str, change: Any = lambda run, case, inputs: run(case, inputs)) -> Verdict:
    """The verdict on a device that is torch except for ``change`` of its inputs and outputs."""
    pytest.importorskip("torch")
    from optest.core.runner import execute
    from optest.torch.eager import TorchBackend

    class Changed(TorchBackend):
        def run(self, case: Any, inputs: Any) -> Any:
            return change(super().run, case, inputs)

    (found,) = cases_of(file_of(case))
    return execute([found], Changed()).verdicts[0]


REFUSED = """
- name: a
  op: torch.view
  inputs: [{tensor: {shape: [2, 3]}}, {value: [4, 2]}]
  expects_error: {type: RuntimeError, match: invalid}
"""
NUMEL = "- {name: a, op: torch.numel, inputs: [{tensor: {shape: [6, 4]}}]}"


@pytest.mark.torch
def test_an_interruption_is_not_the_expected_error() -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    found = verdict_of(REFUSED.replace("RuntimeError", "Exception"), interrupted)
    assert (found.status, found.reason) == (Status.FAILED, Reason.WRONG_ERROR)


@pytest.mark.torch
def test_device_that_accepts_invalid_call_fails() -> None:
    found = verdict_of(REFUSED, lambda run, case, inputs: [inputs[0]])
    assert (found.status, found.reason) == (Status.FAILED, Reason.NOT_REFUSED)
    assert verdict_of(REFUSED).status is verdict_of(NUMEL).status is Status.PASSED


def flipped(run: Any, case: Any, inputs: Any) -> Any:
    output = run(case, inputs)[0].copy()
    output[2, 1] = not output[2, 1]
    return [output]


def second_off(run: Any, case: Any, inputs: Any) -> Any:
    first, second, *rest = run(case, inputs)
    return [first, second + 1, *rest]


def spoilt(run: Any, case: Any, inputs: Any) -> Any:
    """Zero the outputs and the inputs: in-place calls would else be compared with themselves."""
    outputs = run(case, inputs)
    for each in inputs:
        each[...] = 0
    return [each * 0 for each in outputs]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("case", "change", "mismatched"),
    [
        ("op: torch.logical_not, inputs: [{tensor: {shape: [4, 3], dtype: bool}}]", flipped, [1]),
        ("op: torch.split, inputs: [{tensor: {shape: [6, 4], init: randn}}, {value: 2}]", second_off, [0, 8, 0]),
        (NUMEL, lambda *call: [each + 1 for each in call[0](*call[1:])], [1]),
        (
            "op: torch.add_, inputs: [{tensor: {shape: [4, 3]}}, {value: 1.0}], rtol: 1.0e-3, atol: 1.0e-3",
            spoilt,
            [12, 12],
        ),
    ],
    ids=["bool", "one of several results", "number", "changed inputs"],
)
def test_wrong_results_fail(case: str, change: Any, mismatched: list[int]) -> None:
    found = verdict_of(case if case == NUMEL else f"- {{name: a, {case}}}", change)
    assert (found.status, found.reason) == (Status.FAILED, Reason.VALUE)
    assert [each.mismatched for each in found.measures] == mismatched
    if change is flipped:
        assert found.measures[0].worst_index == (2, 1)
