"""Every operator that can take them is asked large calls and six dimensions, its own samples or not."""

from __future__ import annotations

from math import prod

import pytest

from optest.api.checking import samples_of
from optest.operators import operators
from optest.spec import Sample, Tier

_NOT_LARGE = {"scaled_dot_product_attention", "random_sample", "dot"}
"""Too many operations for a check; draws from one distribution; a vector alone."""
_NOT_SIX = {"conv1d", "conv2d", "conv3d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"}
_NOT_SIX |= {"bmm", "gemm", "dot", "random_sample", "broadcast_to"}
"""Of a rank of their own; the last states the shape that it makes."""

CHECKED = [name for name in operators.names() if operators.get(name).samples is not None]


def shapes(sample: Sample) -> list[tuple[int, ...]]:
    found = sample.case["shapes"].values()
    return [tuple(shape["shape"] if isinstance(shape, dict) else shape) for shape in found]


@pytest.mark.parametrize("name", CHECKED)
def test_every_operator_is_asked_large_calls_and_six_dimensions(name: str) -> None:
    asked = [shape for each in samples_of(operators.get(name)) if each.tier is not Tier.FULL for shape in shapes(each)]
    is_large = any(prod(shape) > 1 << 20 and prod(shape[:-1]) > 65_535 for shape in asked)
    assert is_large is (name not in _NOT_LARGE)
    assert any(len(shape) > 5 for shape in asked) is (name not in _NOT_SIX)
