"""A pass within roundings is doubted where it shows nothing, and only there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from torch_kit import Wrong, case, element, tensor, verdict, zeros

from optest.spec import Reason, Status, TestCase

pytestmark = pytest.mark.torch


def data(shape: tuple[int, ...], kind: str, values: Sequence[float]) -> Any:
    return tensor(shape, kind, "data", values=np.array(values).reshape(shape).tolist())


LABELS = data((5, 5), "bfloat16", [1.0, -1.0, 1.0, 1.0, -1.0] * 5)


def hinge() -> TestCase:
    near_margin = tensor((5, 5), "bfloat16", "uniform", low=4.5, high=5.5)
    return case(
        "torch.nn.functional.hinge_embedding_loss(input0, input1, margin=5.108374602625908, reduction='none')",
        near_margin,
        LABELS,
    )


def test_a_label_that_decides_is_no_measured_number() -> None:
    """A label that is a rounding off is none, and every element would leap."""
    found = verdict(hinge())
    assert found.status is Status.PASSED, found


def test_a_wrong_answer_to_labels_is_found_or_doubted() -> None:
    assert verdict(hinge(), Wrong(lambda outputs: [outputs[0] * outputs[0].dtype.type(0.5)])).reason is Reason.VALUE
    assert verdict(hinge(), element(1, lambda _: 20.0)).status is Status.SUSPECT


def mean(*logarithms: float) -> TestCase:
    """Three of the nine are chosen, and add up to nearly nothing."""
    return case(
        "torch.nn.functional.nll_loss(input0, input1)",
        data((3, 3), "bfloat16", logarithms),
        data((3,), "int64", [0, 1, 2]),
    )


CANCELS = (5.3125, 1.0, -8.0, 2.0, -7.21875, -3.0, 6.0, 4.0, 1.921875)


def nudged(by: float) -> Wrong:
    return Wrong(lambda outputs: [np.asarray(outputs[0] + outputs[0].dtype.type(by))])


def test_terms_that_cancel_had_to_come_out_as_little() -> None:
    found = verdict(mean(*CANCELS), nudged(0.01))
    assert found.status is Status.PASSED, found
    assert verdict(mean(*CANCELS), nudged(0.5)).reason is Reason.VALUE


ONE_CLASS = case(
    "torch.nn.functional.nll_loss(input0, input1)",
    data((3, 1), "bfloat16", [5.3125, -7.21875, 1.890625]),
    data((3,), "int64", [0, 0, 0]),
)


def test_what_no_other_inputs_change_either_stays_doubted() -> None:
    """Wherever its elements stand the sum is the same, so nothing says that it was looked at."""
    assert verdict(ONE_CLASS, nudged(0.03)).status is Status.SUSPECT


@pytest.mark.parametrize(("answer", "status"), [(0.007, Status.PASSED), (0.01, Status.SUSPECT), (0.0, Status.SUSPECT)])
def test_an_answer_that_is_nearer_to_the_truth_than_half_of_it_is_not_doubted(answer: float, status: Status) -> None:
    """The truth is 1/192; 8 roundings of the terms are more than that."""
    found = verdict(ONE_CLASS, Wrong(lambda outputs: [np.full_like(outputs[0], answer)]))
    assert found.status is status, found


def test_noise_is_doubted_still() -> None:
    """Every element is the same, so that none can be told from another by its place."""
    of = case("torch.sinc(input0)", tensor(40, fill="data", values=[float(1 << 20)] * 40))
    assert verdict(of, Wrong(lambda outputs: [outputs[0] * 3 + np.float32(1e-8)])).status is not Status.PASSED


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("torch.linspace(input0, -3, 50, dtype=torch.{})", ("float32", [4.3])),
        ("torch.linspace(4.3, input0, 50, dtype=torch.{})", ("int64", [-3])),
    ],
)
def test_a_call_that_states_its_dtype_rounds_to_it_on_the_way(
    text: str, given: tuple[str, list[float]], kind: str, grad: bool
) -> None:
    """Near the middle, where end and start cancel, steps in 16 bits are far off; torch documents that it takes them."""
    of = case(text.format(kind), data((), *given), grad=grad)
    found = verdict(of)
    assert found.status is Status.PASSED, found
    assert verdict(of, element(0, lambda value: value * value.dtype.type(1.1))).reason is Reason.VALUE
    assert verdict(of, zeros()).reason is not None


def test_the_gradient_of_a_sign_has_elements_that_can_be_read() -> None:
    of = case("torch.sgn(input0)", tensor((3, 4)), grad=True)
    found = verdict(of)
    assert found.status is Status.PASSED, found
    assert verdict(of, element(0, lambda _: 1.0, output=2)).reason is Reason.VALUE
