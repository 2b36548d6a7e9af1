"""Strides where the size is 1 or 0 reach no element, but a library is told them: they stay what a case says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from optest.api import bootstrap
from optest.api.checking import sample_cases
from optest.memory.margins import Margins
from optest.numerics import private_copy, view
from optest.spec import Argument, Fill, TensorSpec, dtype

ODD = [(13, 1), (0, 1), (-3, 1)]


def spec(strides: tuple[int, ...] | None) -> TensorSpec:
    return TensorSpec(dtype=dtype("float32"), shape=(1, 5), strides=strides)


@pytest.mark.parametrize("strides", ODD)
def test_private_copy_keeps_odd_strides(strides: tuple[int, ...]) -> None:
    array = view(np.arange(5, dtype=np.float32), spec(strides))
    copy = private_copy(array)
    assert copy.strides == array.strides == tuple(4 * stride for stride in strides)
    assert copy.tolist() == [[0.0, 1.0, 2.0, 3.0, 4.0]]
    assert not np.shares_memory(copy, array)


@pytest.mark.parametrize(("shape", "strides"), [((0, 3), (0, 1)), ((3, 0), (0, 0)), ((0,), (0,)), ((0, 3), (7, 2))])
def test_empty_tensor_keeps_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    array = view(np.empty(0, np.float32), TensorSpec(dtype=dtype("float32"), shape=shape, strides=strides))
    copies = [private_copy(array), Margins(64).around(array, 0).array]
    assert all(each.strides == tuple(4 * stride for stride in strides) for each in (array, *copies))


def test_odd_strides_are_part_of_case_key() -> None:
    """Cases of one key are run once: with these left out, none but the dense one ran."""
    bootstrap()
    case = sample_cases("relu")[0]

    def key(strides: tuple[int, ...] | None) -> str:
        argument = Argument(name="input", path="input0", spec=spec(strides), fill=Fill(kind="randn"))
        return dataclasses.replace(case, inputs=(argument,)).key

    assert len({key(each) for each in (None, *ODD)}) == 4
    assert key((5, 1)) == key(None)
    assert spec((13, 1)).is_dense
    assert not spec((13, 1)).is_plain
    assert "strides [13, 1]" in str(spec((13, 1)))
