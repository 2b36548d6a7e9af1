"""Shapes, dtypes and refusals of normalisations equal torch's on a CPU (meta tensors refuse less)."""

from __future__ import annotations

from typing import Any

import pytest
from references import Inferred, Shape, inferred, inferred_as_torch, spec

pytestmark = pytest.mark.torch


def agree(name: str, *shapes: Shape | None, dtypes: list[str] | None = None, **attributes: Any) -> Inferred:
    names = dtypes or ["float32"] * len(shapes)
    specs = [None if shape is None else spec(shape, dtype) for shape, dtype in zip(shapes, names, strict=True)]
    return inferred_as_torch(name, *specs, **attributes)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name: str) -> None:
    for shape in ((), (1,), (4,), (0,), (2, 3), (3, 0), (2, 3, 5)):
        for dim in range(-4, 4):
            agree(name, shape, dim=dim)
    for dtype in ("float16", "bfloat16", "float64"):
        assert agree(name, (2, 3), dtypes=[dtype]) == [(dtype, (2, 3))]


def test_causal_softmax() -> None:
    for shape in ((3, 3), (2, 5), (1, 1), (0, 3), (0, 0), (2, 3, 4), (2, 0, 3, 3)):
        assert inferred("causal_softmax", spec(shape)) == [("float32", shape)]
    for shape in ((3, 2), (2, 5, 4)):
        assert inferred("causal_softmax", spec(shape)) is None


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_row_norms_check_normalized_shape(name: str) -> None:
    for shape in ((4,), (3, 4), (2, 3, 4), (0, 4), (3, 1)):
        for normalized in ([4], [3, 4], [2, 3, 4], [5], [3], [1], []):
            agree(name, shape, normalized_shape=normalized)
    for weight in ((4,), (3,), (1,), (3, 4), ()):
        agree(name, (3, 4), weight, normalized_shape=[4])
    agree(name, (3, 4), (3, 4), normalized_shape=[3, 4])


@pytest.mark.parametrize("bias", [(4,), (1,), (3,), (), None])
def test_layer_norm_checks_bias_shape(bias: Shape | None) -> None:
    agree("layer_norm", (3, 4), None, bias, normalized_shape=[4])
    agree("layer_norm", (3, 4), (4,), bias, normalized_shape=[4])


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_inputs_accept_float32_parameters(half: str) -> None:
    assert agree("rms_norm", (3, 4), (4,), dtypes=[half, "float32"], normalized_shape=[4]) == [(half, (3, 4))]
    for name, attributes in (("layer_norm", {"normalized_shape": [4]}), ("group_norm", {"num_groups": 2})):
        for count in (1, 2):
            dtypes = [half, *["float32"] * count]
            assert agree(name, (3, 4), *[(4,)] * count, dtypes=dtypes, **attributes) == [(half, (3, 4))]
    for count in (2, 3, 4):
        dtypes = [half, *["float32"] * count]
        assert agree("batch_norm", (3, 4), *[(4,)] * count, dtypes=dtypes) == [(half, (3, 4))]


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "batch_norm"])
def test_parameters_of_other_widths_are_refused(name: str) -> None:
    attributes = {"layer_norm": {"normalized_shape": [4]}, "group_norm": {"num_groups": 2}, "batch_norm": {}}[name]
    shapes: list[Shape | None] = [(3, 4), *[(4,)] * (4 if name == "batch_norm" else 2)]
    for first, rest in (("float32", "float64"), ("float32", "float16")):
        assert agree(name, *shapes, dtypes=[first, *[rest] * (len(shapes) - 1)], **attributes) is None


def test_group_norm() -> None:
    for shape in ((2, 6), (2, 6, 3), (1, 6), (1, 6, 2), (0, 6, 3), (2, 6, 0), (2, 6, 3, 5)):
        for groups in (-2, 0, 1, 2, 3, 4, 6, 12):
            agree("group_norm", shape, num_groups=groups)
    for weight, bias in (((6,), (6,)), ((3,), None), ((6,), (3,)), (None, (6,)), ((6, 1), None)):
        agree("group_norm", (2, 6, 3), weight, bias, num_groups=2)
    assert agree("group_norm", (6,), num_groups=1) is None


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm(training: bool) -> None:
    for shape in ((2, 3), (1, 3), (1, 3, 2), (0, 3), (2, 3, 0), (2, 3, 4, 5)):
        agree("batch_norm", shape, (3,), (3,), training=training)
        if training or 0 not in shape:  # torch does not check the statistics of an empty input
            agree("batch_norm", shape, None, None, (3,), (3,), training=training)
    for parameters in (((3,), (3,), (2,)), ((3,), (3,), None, (3,)), ((3,), (3,), (3,), (1,))):
        agree("batch_norm", (2, 3), *parameters, training=training)
    assert agree("batch_norm", (2, 3), (3,), (3,), eps=-1.0, training=training) is None
    assert (agree("batch_norm", (2, 3), (3,), (3,), eps=0.0, training=training) is None) is training


def test_batch_norm_requires_both_statistics() -> None:
    assert agree("batch_norm", (2, 3), None, None) is None
    assert agree("batch_norm", (2, 3), (2,), (3,)) is None
