"""Declared operations and lengths of sums against known numbers."""

from __future__ import annotations

from typing import Any

import pytest
from references import Shape, spec

from optest.operators import operators
from optest.operators.catalogue import FAMILIES
from optest.registry import load_object


def _declared(hook: str, name: str, *shapes: Shape | None, **attributes: Any) -> int | None:
    descriptor = operators.get(name)
    specs = [None if shape is None else spec(shape) for shape in shapes]
    value: int | None = load_object(str(getattr(descriptor, hook)))(specs, descriptor.bind(attributes))
    return value


Q = (2, 4, 6, 8)


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "known"),
    [
        ("matmul", [(3, 5), (5, 7)], {}, 2 * 3 * 5 * 7),
        ("matmul", [(4, 3, 5), (5, 7)], {}, 4 * 2 * 3 * 5 * 7),
        ("matmul", [(5,), (5,)], {}, 2 * 5),
        ("bmm", [(2, 3, 5), (2, 5, 7)], {}, 2 * 2 * 3 * 5 * 7),
        ("gemm", [(5, 3), (5, 7), None], {"trans_a": True}, 2 * 3 * 5 * 7),
        ("linear", [(2, 3, 5), (7, 5), (7,)], {}, 2 * 6 * 5 * 7),
        ("conv1d", [(2, 3, 10), (4, 3, 3)], {}, 2 * (2 * 4 * 8) * (3 * 3)),
        ("conv2d", [(1, 4, 8, 8), (6, 2, 3, 3)], {"padding": [1, 1], "groups": 2}, 2 * (6 * 64) * (2 * 9)),
        ("einsum", [(3, 5), (5, 7)], {"equation": "ij,jk->ik"}, 2 * 3 * 5 * 7),
        ("einsum", [(3, 5), (5, 7), (7, 2)], {"equation": "ij,jk,kl->il"}, None),
        ("scaled_dot_product_attention", [Q, Q, Q], {}, 4 * 8 * 6 * 6 * 8),
        ("scaled_dot_product_attention", [Q, Q, Q], {"is_causal": True}, 4 * 8 * 21 * 8),
        ("scaled_dot_product_attention", [Q, Q, Q], {"is_causal": True, "window_size": (1, -1)}, 4 * 8 * 11 * 8),
        ("scaled_dot_product_attention", [Q, Q, Q], {"window_size": (0, 2)}, 4 * 8 * 15 * 8),
        ("grouped_matmul", [(9, 5), (3, 5, 7)], {}, 2 * 9 * 5 * 7),
    ],
)
def test_operations(name: str, shapes: list[Shape | None], attributes: dict[str, Any], known: int | None) -> None:
    assert _declared("operations", name, *shapes, **attributes) == known


def test_every_contraction_declares_its_operations() -> None:
    assert not [each.name for each in FAMILIES["contraction"] if each.operations is None]


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "length"),
    [
        ("matmul", [(2, 3, 17), (17, 5)], {}, 17),
        ("gemm", [(17, 3), (17, 5), None], {"trans_a": True}, 17),
        ("linear", [(2, 3, 17), (5, 17), None], {}, 17),
        ("bmm", [(2, 3, 17), (2, 17, 5)], {}, 17),
        ("conv1d", [(1, 6, 9), (4, 3, 5), None], {"groups": 2}, 15),
        ("conv2d", [(1, 6, 9, 9), (4, 6, 5, 2), None], {}, 60),
        ("einsum", [(2, 3, 4), (3, 4, 5)], {"equation": "ijk,jkl->il"}, 12),
        ("softmax", [(2, 3, 5)], {"dim": 0}, 2),
        ("softmax", [()], {"dim": 0}, 1),
        ("causal_softmax", [(2, 3, 5)], {}, 5),
        ("layer_norm", [(2, 3, 5)], {"normalized_shape": [3, 5]}, 15),
        ("group_norm", [(2, 6, 5)], {"num_groups": 3}, 10),
        ("batch_norm", [(2, 6, 5)], {"training": True}, 10),
        ("batch_norm", [(2, 6, 5)], {}, 1),
        ("sum", [(2, 3, 5)], {"dim": [0, -1]}, 10),
        ("sum", [(2, 3, 5)], {}, 30),
        ("sum", [()], {"dim": [0]}, 1),
        ("argmax", [(2, 3, 5)], {"dim": 1}, 3),
        ("cumsum", [(2, 3, 5)], {"dim": -1}, 5),
        ("cumsum", [()], {"dim": 0}, 1),
        ("dot", [(7,), (7,)], {}, 7),
        ("scatter_add", [(3, 7), (2, 9), (2, 9)], {"dim": 1}, 10),  # all indices in one place
        ("scatter_add", [(3, 7), (2, 9), (2, 9)], {"dim": -2}, 3),
        ("scatter_add", [(), (4,), (4,)], {"dim": 0}, 5),
        ("scatter_add", [(), (), ()], {"dim": 0}, 2),
        ("index_add", [(3, 7), (9,), (3, 9)], {"dim": 1}, 10),
        ("cross_entropy", [(3, 7), (3,)], {}, 7),
        ("cross_entropy", [(7,), ()], {}, 7),
        ("add_rms_norm", [(2, 5), (2, 5)], {"normalized_shape": [5]}, 5),
    ],
)
def test_sum_length(name: str, shapes: list[Shape | None], attributes: dict[str, Any], length: int) -> None:
    assert _declared("sum_length", name, *shapes, **attributes) == length
