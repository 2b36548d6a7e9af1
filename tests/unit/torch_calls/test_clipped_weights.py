"""``embedding`` with ``max_norm`` clips rows of its weight before it takes them: what it computes is not exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_kit import Wrong, by, case, element, tensor, verdict

from optest.spec import Reason, Status

pytestmark = pytest.mark.torch

CLIPPED = "torch.nn.functional.embedding(input0, input1, max_norm=1.0)"
ROWS = tensor(20, "int64", "data", values=[0, 1, 2, 3] * 5)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("grad", [False, True])
def test_clipped_rows_are_right_to_within_a_rounding(kind: str, grad: bool) -> None:
    of = case(CLIPPED, ROWS, tensor((6, 16), kind), grad=grad)
    found = verdict(of)
    assert found.status is Status.PASSED, found
    assert [each.output for each in found.measures][:2] == ["output0", "input1 afterwards"]

    def next_value(outputs: list[Any]) -> list[Any]:
        return [outputs[0] * (1 + np.finfo(np.float32).eps).astype(outputs[0].dtype), *outputs[1:]]

    if kind == "float32" and not grad:
        assert verdict(of, Wrong(next_value)).status is Status.PASSED


OF = case(CLIPPED, ROWS, tensor((6, 16)))


@pytest.mark.parametrize("output", [0, 1])
def test_a_wrong_element_of_what_is_returned_or_changed_is_found(output: int) -> None:
    found = verdict(OF, element(7, lambda value: value * np.float32(1.001), output))
    assert (found.reason, found.message.partition(":")[0]) == (Reason.VALUE, ["output0", "input1 afterwards"][output])


def test_a_weight_that_stays_or_is_clipped_where_nothing_is_taken_is_found() -> None:
    assert verdict(OF, Wrong(lambda outputs: [outputs[0], outputs[1] * np.float32(2)])).reason is Reason.VALUE
    assert verdict(OF, element(4 * 16 + 3, lambda value: value * np.float32(0.5), 1)).reason is Reason.VALUE


def test_it_is_compiled_too() -> None:
    found = verdict(OF, by("aot_eager"))
    assert found.status is Status.PASSED, found
