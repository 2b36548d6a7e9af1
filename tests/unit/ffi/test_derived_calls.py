"""Calls that a check of a C library derives from those of an operator."""

from __future__ import annotations

from math import prod

import pytest

from optest.api.checking import sample_cases
from optest.clib.library.sample_calls import SampleCall, calls_from
from optest.spec import Sample, TestCase, Tier

BLOCKS = (1, 2, 3, 7, 16, 33, 65, 129)


def derived_from(case: TestCase) -> SampleCall:
    stated = {"shapes": {each.name: list(each.spec.shape) for each in case.inputs}}
    (call,) = calls_from([(Sample(case_set="sizes", case=stated, tier=Tier.PARITY), case)], lambda _: None)
    return call


def six_dimensions(operator: str) -> TestCase:
    return next(
        each
        for each in sample_cases(operator)
        if len(each.inputs[0].spec.shape) == 6
        and each.inputs[0].spec.shape.count(2) == 3
        and each.inputs[0].spec.is_dense
    )


@pytest.mark.parametrize("operator", ["log_softmax", "rms_norm"])
def test_shared_size_grows_within_bound(operator: str) -> None:
    """Three dimensions of size 2 made 129 each were 900 million elements, and the reference ran out of memory."""
    call = derived_from(six_dimensions(operator))
    for size in BLOCKS:
        for resized in call.resized(size):
            assert max(map(prod, resized.shapes.values())) <= 1 << 20


@pytest.mark.parametrize("size", [size for size in BLOCKS if size not in (3, 4)])
def test_other_sizes_still_grow(size: int) -> None:
    """37, the last dimension, is the one that kernels split into blocks."""
    call = derived_from(six_dimensions("log_softmax"))
    assert any(each.shapes[each.inputs[0]][-1] == size for each in call.resized(size))
