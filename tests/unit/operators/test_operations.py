"""Declared operations, against the numbers that everybody knows."""

from __future__ import annotations

from typing import Any

import pytest

from optest.operators import operators
from optest.registry import load_object
from optest.spec import OperatorDescriptor, TensorSpec, dtype


def _count(name: str, *shapes: tuple[int, ...] | None, **attributes: Any) -> int | None:
    descriptor = operators.get(name)
    specs = [None if shape is None else TensorSpec(dtype=dtype("float32"), shape=shape) for shape in shapes]
    found: int | None = load_object(str(descriptor.operations))(specs, descriptor.bind(attributes))
    return found


@pytest.mark.parametrize(
    ("counted", "known"),
    [
        (_count("matmul", (3, 5), (5, 7)), 2 * 3 * 5 * 7),
        (_count("matmul", (4, 3, 5), (5, 7)), 4 * 2 * 3 * 5 * 7),
        (_count("matmul", (5,), (5,)), 2 * 5),
        (_count("bmm", (2, 3, 5), (2, 5, 7)), 2 * 2 * 3 * 5 * 7),
        (_count("gemm", (5, 3), (5, 7), None, trans_a=True), 2 * 3 * 5 * 7),
        (_count("linear", (2, 3, 5), (7, 5), (7,)), 2 * 6 * 5 * 7),
        (_count("conv1d", (2, 3, 10), (4, 3, 3)), 2 * (2 * 4 * 8) * (3 * 3)),
        (_count("conv2d", (1, 4, 8, 8), (6, 2, 3, 3), padding=[1, 1], groups=2), 2 * (6 * 64) * (2 * 9)),
        (_count("einsum", (3, 5), (5, 7), equation="ij,jk->ik"), 2 * 3 * 5 * 7),
        (_count("einsum", (3, 5), (5, 7), (7, 2), equation="ij,jk,kl->il"), None),
        (_count("scaled_dot_product_attention", (2, 4, 6, 8), (2, 4, 6, 8), (2, 4, 6, 8)), 4 * 8 * 6 * 6 * 8),
        (
            _count("scaled_dot_product_attention", (2, 4, 6, 8), (2, 4, 6, 8), (2, 4, 6, 8), is_causal=True),
            4 * 8 * 21 * 8,
        ),
    ],
)
def test_operations(counted: int | None, known: int | None) -> None:
    assert counted == known


def test_every_contraction_declares_its_operations() -> None:
    lacking = [each for each in _catalogue("contraction") if each.operations is None]
    assert not lacking, [each.name for each in lacking]


def _catalogue(category: str) -> list[OperatorDescriptor]:
    return [each for each in map(operators.get, operators.names()) if each.category == category]
