"""The reference sees the memory layout that the backend sees, in tensors that it may only read."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch_kit import by, case, tensor, verdict

from optest.spec import ExpectedError, Reason, Status, TensorSpec, dtype
from optest.torch.calls.other_right_results import has_overlap
from optest.torch.tensors import on_cpu, to_read, to_torch, widened

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


DTYPES = [np.float16, np.float32, np.complex64, np.int64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]


def read_only(dtype: Any) -> Any:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    array.setflags(write=False)
    return array


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_shares_read_only_memory(dtype: Any) -> None:
    array = read_only(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = to_read(array)
    assert tensor.data_ptr() == array.ctypes.data
    assert tensor.shape == (3, 4)
    wide = torch.arange(12).reshape(3, 4).to(tensor.dtype).to(torch.complex128)
    assert torch.equal(tensor.to(torch.complex128), wide)


def test_memory_stays_as_long_as_the_tensor() -> None:
    tensor = to_read(read_only(np.float32))
    others = [np.full(12, 7.0, np.float32) for _ in range(100)]
    assert tensor.sum() == 66.0
    assert len(others) == 100


@pytest.mark.parametrize("make", [on_cpu, widened])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_may_be_written_is_a_copy(make: Any, dtype: Any) -> None:
    array = read_only(dtype)
    before = array.tobytes()
    (tensor,) = make([array])
    tensor.zero_()
    assert array.tobytes() == before


LAYOUTS = {
    "gaps": lambda array: array[:, ::2],
    "stride 0": lambda array: np.broadcast_to(array[:1], (5, 4)),
    "overlap": lambda array: np.ndarray(
        (4, 3), array.dtype, buffer=array.view(np.uint8), strides=(2 * array.itemsize, array.itemsize)
    ),
    "transposed": lambda array: array.T,
    "empty": lambda array: array[:0],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_layout_of_read_only_memory_is_kept(name: str, dtype: Any) -> None:
    """Whether a view can be had, and what as_strided yields, follows from it."""
    each = LAYOUTS[name](read_only(dtype))
    each.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read, device = to_read(each), to_torch(each, torch.device("cpu"))
        (copied,), (wide,) = on_cpu([each]), widened([each])
    steps = tuple(stride // each.itemsize for stride in each.strides)
    for made in (read, device, copied, wide):
        assert made.shape == each.shape
        assert made.stride() == steps or not each.size
        assert np.array_equal(made.to(torch.complex128).numpy(), each.astype(np.complex128))
    if each.size and name != "transposed":
        assert read.data_ptr() == each.ctypes.data
    for own in (device, copied, wide):
        assert own.data_ptr() != each.ctypes.data or not each.size
