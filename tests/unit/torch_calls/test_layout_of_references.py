"""Calls whose result follows from where elements lie: the reference sees the layout that the backend sees."""

from __future__ import annotations

import itertools

import pytest
from torch_kit import by, case, tensor, verdict

from optest.spec import ExpectedError, Reason, Status, TensorSpec, dtype
from optest.torch.calls.undefined_results import has_overlap

pytestmark = pytest.mark.torch

GAPS, REPEATED, OVERLAP = (12, 1), (0, 1), (2, 1)
FLOAT = dtype("float32")


@pytest.mark.parametrize("strides", [GAPS, REPEATED, OVERLAP])
@pytest.mark.parametrize(
    "call",
    [
        "torch.as_strided(input0, [2, 2], [3, 2])",
        "torch.Tensor.stride(input0)",
        "torch.Tensor.is_contiguous(input0)",
        "torch.Tensor.unfold(input0, 1, 3, 2)",
        "torch.flatten(input0)",
        "torch.Tensor.view(input0, torch.int16)",
        "torch.Tensor.fill_(input0, 2.0)",
        "torch.Tensor.sum(input0, 1)",
        "torch.matmul(input0, input0)",
    ],
)
def test_a_call_is_right_against_itself(call: str, strides: tuple[int, ...]) -> None:
    shape = (6, 6) if "matmul" in call else (4, 6)
    assert verdict(case(call, tensor(shape, strides=strides))).status is Status.PASSED


@pytest.mark.parametrize("strides", [GAPS, REPEATED, OVERLAP])
def test_a_view_that_torch_refuses_is_the_cases_fault(strides: tuple[int, ...]) -> None:
    """A reference that is given a dense tensor would blame the backend."""
    found = verdict(case("torch.Tensor.view(input0, 24)", tensor((4, 6), strides=strides)))
    assert found.reason is Reason.BAD_CASE
    assert "view size is not compatible" in found.message


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_torch_leaves_open_is_left_out(backend: str) -> None:
    """Eager torch adds to a shared element as often as it is met, a compiler once."""
    driver = by(backend)
    overlapping = case("torch.Tensor.add_(input0, 1)", tensor((4, 6), strides=OVERLAP))
    why = driver.unsupported(overlapping)
    assert why is not None
    assert "input0, several of whose elements lie in one place (strides [2, 1])" in why
    for other in (
        case("torch.Tensor.add_(input0, 1)", tensor((4, 6), strides=GAPS)),
        case("torch.Tensor.add(input0, 1)", tensor((4, 6), strides=OVERLAP)),
        case("torch.Tensor.fill_(input0, 1)", tensor((4, 6), strides=OVERLAP)),
        case("torch.setitem(input0, 1, 2.0)", tensor((4, 6), strides=OVERLAP)),
        case(
            "torch.Tensor.add_(input0, 1)",
            tensor((4, 6), strides=OVERLAP),
            expects_error=ExpectedError(type="RuntimeError"),
        ),
    ):
        assert driver.unsupported(other) is None
    assert driver.unsupported(case("torch.setitem(input0, 1, input1)", tensor((4, 6), strides=OVERLAP), tensor((6,))))


def test_overlap_is_that_of_counting_places() -> None:
    for shape in [(3,), (2, 3), (3, 1, 2), (0, 3)]:
        for strides in itertools.product(range(5), repeat=len(shape)):
            places = [
                sum(step * stride for step, stride in zip(steps, strides, strict=True))
                for steps in itertools.product(*map(range, shape))
            ]
            spec = TensorSpec(dtype=FLOAT, shape=shape, strides=strides)
            assert has_overlap(spec) == (len(set(places)) < len(places)), (shape, strides)
    assert not has_overlap(TensorSpec(dtype=FLOAT, shape=(4, 6)))
