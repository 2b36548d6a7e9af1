"""debug, debug_all, print_discrepancy, get_tolerance: optest's comparator with an explicit tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import refusal, says

from optest.errors import UnknownName, UsageError
from optest.infiniop import (
    InfiniDeviceEnum,
    InfiniDtype,
    TestTensor,
    debug,
    debug_all,
    get_tolerance,
    print_discrepancy,
    rearrange_tensor,
)
from optest.infiniop.comparison import Discrepancy

INF, NAN = float("inf"), float("nan")


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("actual", "desired", "right"),
    [
        (1.0, 1.005, True),
        (1.0, 1.02, False),
        (INF, INF, True),
        (5.0, INF, False),
        (INF, 5.0, False),
        (INF, -INF, False),
        (NAN, 1.0, False),
        (1.0, NAN, False),
        (-0.0, 0.0, True),
    ],
)
def test_one_element(actual: float, desired: float, right: bool, capsys: pytest.CaptureFixture[str]) -> None:
    indices = print_discrepancy(f32(0, actual), f32(0, desired), atol=0, rtol=1e-2)
    assert indices.tolist() == ([] if right else [[1]])
    assert f"wrong: {len(indices)} of 2 elements" in capsys.readouterr().out
    if right:
        debug(f32(0, actual), f32(0, desired), verbose=False)
    else:
        with pytest.raises(Discrepancy, match="1 of 2 elements is"):
            debug(f32(0, actual), f32(0, desired), verbose=False)


@given(
    st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=8),
    st.sampled_from([0.0, 1e-2, 1.0]),
    st.sampled_from([0.0, 0.5]),
)
def test_table_and_verdict_agree(pairs: list[tuple[float, float]], atol: float, rtol: float) -> None:
    actual, desired = f32(*[a for a, _ in pairs]), f32(*[d for _, d in pairs])
    off = len(print_discrepancy(actual, desired, atol, rtol, equal_nan=True, verbose=False))
    try:
        debug(actual, desired, atol, rtol, equal_nan=True, verbose=False)
    except Discrepancy:
        assert off > 0
    else:
        assert off == 0


EMPTY, ONE = np.zeros((0, 3), np.float32), np.array([1], np.int32)


@pytest.mark.parametrize(
    ("function", "actual", "desired", "error", "message"),
    [
        (debug, f32(NAN), f32(NAN), Discrepancy, "1 of 1 elements are NaN on both sides"),
        (debug, EMPTY, np.zeros((0, 4), np.float32), Discrepancy, "the shape is 0x3, expected 0x4"),
        (debug, f32(1), f32(1, 1), Discrepancy, "the shape is 1, expected 2"),
        (print_discrepancy, f32(1), f32(1, 1), UsageError, "shapes are 1 and 2"),
        (debug, ONE, f32(1), Discrepancy, "the dtype is int32, expected float32"),
        (print_discrepancy, ONE, f32(1), UsageError, "dtypes are int32 and float32"),
        (debug, [1.0], f32(1), UsageError, "value is a list"),
    ],
)
def test_no_broadcast_and_no_silent_cast(function: Any, actual: Any, desired: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        function(actual, desired, verbose=False)


def test_common_nan_needs_equal_nan() -> None:
    debug(f32(NAN), f32(NAN), equal_nan=True, verbose=False)
    assert len(print_discrepancy(f32(NAN), f32(NAN), equal_nan=False, verbose=False)) == 1


def test_empty_tensors_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    debug(EMPTY, EMPTY.copy())
    assert "wrong: 0 of 0 elements\n" in capsys.readouterr().out


def test_reference_keeps_higher_precision() -> None:
    half = np.array([1 + 2**-10], np.float16)
    debug(half, np.array([1 + 2**-11 + 2**-12]), rtol=2**-11, verbose=False)
    with pytest.raises(Discrepancy):
        debug(half, np.array([1 + 2**-11 - 2**-13]), rtol=2**-12, verbose=False)


def test_integers_are_compared_without_wrapping(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Discrepancy):
        debug(np.array([0], np.uint64), np.array([2**64 - 1], np.uint64), atol=1, rtol=0)
    assert "delta -18446744073709551615" in capsys.readouterr().out


def test_table_has_index_values_and_delta(capsys: pytest.CaptureFixture[str]) -> None:
    actual, expected = f32(1, 2, 3, 4).reshape(2, 2), f32(1, 2, 5, 4).reshape(2, 2)
    assert print_discrepancy(actual, expected, rtol=0.1).tolist() == [[1, 0]]
    out = capsys.readouterr().out
    assert all(part in out for part in (" > index [1, 0]", "actual 3.0", "expected 5.0", "delta -2.0"))
    assert "\033" not in out, "no colours without a terminal"
    many = print_discrepancy(np.zeros(80), np.ones(80))
    assert len(many) == 80
    assert "and 30 more" in capsys.readouterr().out


def test_debug_all_joins_conditions() -> None:
    right, wrong = (f32(1), f32(1)), (f32(5), f32(INF))
    debug_all([right[0], wrong[0]], [right[1], wrong[1]], "or", verbose=False)
    with pytest.raises(Discrepancy):
        debug_all([right[0], wrong[0]], [right[1], wrong[1]], "and", verbose=False)
    with pytest.raises(Discrepancy):
        debug_all([wrong[0]], [wrong[1]], "or", verbose=False)
    with pytest.raises(UsageError, match="condition is 'xor'"):
        debug_all([right[0]], [right[1]], "xor")
    with pytest.raises(UsageError, match="0 actual and 0 desired"):
        debug_all([], [], "and")


def test_message_has_verdict_and_rule() -> None:
    with pytest.raises(Discrepancy) as caught:
        debug(f32(1, 3), f32(1, 2), atol=0.5, rtol=0, verbose=False)
    assert says(str(caught.value), "infiniop.worst_at_got_but")
    assert "atol=0.5" in str(caught.value)


def test_tolerances_are_ordered_and_exact_types_zero() -> None:
    tolerances = {InfiniDtype.F16: {"rtol": 1e-2, "atol": 1e-3}, "bfloat16": {"atol": 5e-2}}
    assert get_tolerance(tolerances, InfiniDtype.F16) == (1e-3, 1e-2)
    assert get_tolerance(tolerances, InfiniDtype.BF16) == (5e-2, 0.0)
    assert get_tolerance(tolerances, InfiniDtype.F32, 1e-5, 1e-4) == (1e-5, 1e-4)
    for exact in (InfiniDtype.I8, InfiniDtype.BOOL, InfiniDtype.BYTE, InfiniDtype.U64):
        assert get_tolerance(tolerances, exact) == (0.0, 0.0)
    with pytest.raises(UnknownName):
        get_tolerance({InfiniDtype.F16: {"rtoll": 1}}, InfiniDtype.F16)


def test_tensors_are_compared_by_memory() -> None:
    tensor = TestTensor((2, 3), (-3, 1), InfiniDtype.C32, InfiniDeviceEnum.CPU)
    debug(tensor, tensor.logical_array(), rtol=0, verbose=False)


def test_rearranged_gaps_are_poisoned() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    arranged = rearrange_tensor(values, (-5, 1))
    assert arranged.strides == (-20, 4)
    assert np.array_equal(arranged, values)
    assert np.isnan(np.lib.stride_tricks.as_strided(arranged[1, 2:], (2,), (4,))[1])
    with refusal(UsageError, "infiniop.differ_between_elements_that"):
        rearrange_tensor(values, (0, 1))
    with pytest.raises(UsageError, match="strides"):
        rearrange_tensor(values, (1,))
    assert rearrange_tensor(np.float32(3), ()).shape == ()


@pytest.mark.torch
class TestWithTorch:
    @pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "complex64", "bool", "int8"])
    def test_torch_tensors(self, name: str) -> None:
        import torch

        tensor = torch.tensor([0, 1, 1]).to(getattr(torch, name))
        debug(tensor, tensor.clone(), atol=0, rtol=0, verbose=False)
        with pytest.raises(Discrepancy):
            debug(tensor, torch.tensor([0, 1, 0]).to(getattr(torch, name)), atol=0, rtol=0, verbose=False)

    def test_half_complex_numbers_are_numbers(self) -> None:
        values = np.full(2, 1e-3 + 1e-3j, np.complex64)
        zeros, small = (
            TestTensor((2,), None, InfiniDtype.C32, 0, mode="manual", set_tensor=each).actual_tensor()
            for each in (0 * values, values)
        )
        debug(zeros, small, atol=1e-2, verbose=False)
        with pytest.raises(Discrepancy):
            debug(zeros, small, atol=1e-4, rtol=0, verbose=False)

    def test_rearranged_torch_tensors(self) -> None:
        import torch

        values = torch.arange(6.0).reshape(2, 3)
        arranged = rearrange_tensor(values, (1, 4))
        assert arranged.stride() == (1, 4)
        assert torch.equal(arranged, values)
        assert torch.isnan(arranged.as_strided((9,), (1,))).sum() == 4
        repeated = rearrange_tensor(torch.ones(2, 3).bfloat16(), (0, 1))
        assert repeated.stride() == (0, 1)
        with refusal(UsageError, "infiniop.torch_has_no_negative"):
            rearrange_tensor(values, (-3, 1))
