"""Shapes, dtypes and refusals of normalisations are torch's (on a CPU: meta tensors refuse less)."""

from __future__ import annotations

from typing import Any

import pytest

from optest.operators import operators
from optest.registry import load_object
from optest.spec import TensorSpec, UnfitArguments, dtype

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

Shape = tuple[int, ...]


def inferred(name: str, shapes: list[Shape | None], dtypes: list[str], attributes: dict[str, Any]) -> Any:
    descriptor = operators.get(name)
    specs = [
        None if shape is None else TensorSpec(dtype=dtype(each), shape=shape)
        for each, shape in zip(dtypes, shapes, strict=True)
    ]
    try:
        outputs = load_object(str(descriptor.infer))(specs, descriptor.bind(attributes))
    except UnfitArguments:
        return "refused"
    return [(each.dtype.name, each.shape) for each in outputs]


def from_torch(name: str, shapes: list[Shape | None], dtypes: list[str], attributes: dict[str, Any]) -> Any:
    from optest.torch.operators.reduction import CALLS

    tensors = [
        None if shape is None else torch.ones(shape, dtype=getattr(torch, each))
        for each, shape in zip(dtypes, shapes, strict=True)
    ]
    try:
        output = CALLS[name](tensors, operators.get(name).bind(attributes))
    except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError):
        return "refused"
    return [(str(output.dtype).removeprefix("torch."), tuple(output.shape))]


def agree(name: str, *shapes: Shape | None, dtypes: list[str] | None = None, **attributes: Any) -> Any:
    stated = dtypes or ["float32"] * len(shapes)
    ours = inferred(name, list(shapes), stated, attributes)
    assert ours == from_torch(name, list(shapes), stated, attributes), (name, shapes, stated, attributes)
    return ours


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name: str) -> None:
    for shape in ((), (1,), (4,), (0,), (2, 3), (3, 0), (2, 3, 5)):
        for dim in range(-4, 4):
            agree(name, shape, dim=dim)
    for each in ("float16", "bfloat16", "float64"):
        assert agree(name, (2, 3), dtypes=[each]) == [(each, (2, 3))]


def test_causal_softmax() -> None:
    for shape in ((3, 3), (2, 5), (1, 1), (0, 3), (0, 0), (2, 3, 4), (2, 0, 3, 3)):
        assert agree("causal_softmax", shape) == [("float32", shape)]
    for shape in ((3, 2), (2, 5, 4)):
        assert agree("causal_softmax", shape) == "refused"
    assert inferred("causal_softmax", [(3,)], ["float32"], {}) == "refused"


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_trailing_shapes(name: str) -> None:
    for shape in ((4,), (3, 4), (2, 3, 4), (0, 4), (3, 1)):
        for normalized in ([4], [3, 4], [2, 3, 4], [5], [3], [1], []):
            agree(name, shape, normalized_shape=normalized)
    for weight in ((4,), (3,), (1,), (3, 4), ()):
        agree(name, (3, 4), weight, normalized_shape=[4])
    agree(name, (3, 4), (3, 4), normalized_shape=[3, 4])


@pytest.mark.parametrize("bias", [(4,), (1,), (3,), (), None])
def test_layer_norm_biases(bias: Shape | None) -> None:
    agree("layer_norm", (3, 4), None, bias, normalized_shape=[4])
    agree("layer_norm", (3, 4), (4,), bias, normalized_shape=[4])


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_float32_parameters_beside_16_bits(half: str) -> None:
    assert agree("rms_norm", (3, 4), (4,), dtypes=[half, "float32"], normalized_shape=[4]) == [(half, (3, 4))]
    for name, attributes in (("layer_norm", {"normalized_shape": [4]}), ("group_norm", {"num_groups": 2})):
        for count in (1, 2):
            dtypes = [half, *["float32"] * count]
            assert agree(name, (3, 4), *[(4,)] * count, dtypes=dtypes, **attributes) == [(half, (3, 4))]
    for count in (2, 3, 4):
        dtypes = [half, *["float32"] * count]
        assert agree("batch_norm", (3, 4), *[(4,)] * count, dtypes=dtypes) == [(half, (3, 4))]


@pytest.mark.parametrize("name", ["layer_norm", "group_norm", "batch_norm"])
def test_wider_and_narrower_parameters_are_refused(name: str) -> None:
    attributes = {"layer_norm": {"normalized_shape": [4]}, "group_norm": {"num_groups": 2}, "batch_norm": {}}[name]
    shapes: list[Shape | None] = [(3, 4), *[(4,)] * (4 if name == "batch_norm" else 2)]
    for first, rest in (("float32", "float64"), ("float32", "float16")):
        assert agree(name, *shapes, dtypes=[first, *[rest] * (len(shapes) - 1)], **attributes) == "refused"


def test_group_norm() -> None:
    for shape in ((2, 6), (2, 6, 3), (1, 6), (1, 6, 2), (0, 6, 3), (2, 6, 0), (2, 6, 3, 5)):
        for groups in (-2, 0, 1, 2, 3, 4, 6, 12):
            agree("group_norm", shape, num_groups=groups)
    for weight, bias in (((6,), (6,)), ((3,), None), ((6,), (3,)), (None, (6,)), ((6, 1), None)):
        agree("group_norm", (2, 6, 3), weight, bias, num_groups=2)
    assert agree("group_norm", (6,), num_groups=1) == "refused"


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm(training: bool) -> None:
    for shape in ((2, 3), (1, 3), (1, 3, 2), (0, 3), (2, 3, 0), (2, 3, 4, 5)):
        agree("batch_norm", shape, (3,), (3,), training=training)
        if training or 0 not in shape:  # without any element torch does not look for the statistics
            agree("batch_norm", shape, None, None, (3,), (3,), training=training)
    for parameters in (((3,), (3,), (2,)), ((3,), (3,), None, (3,)), ((3,), (3,), (3,), (1,))):
        agree("batch_norm", (2, 3), *parameters, training=training)
    assert agree("batch_norm", (2, 3), (3,), (3,), eps=-1.0, training=training) == "refused"
    assert (agree("batch_norm", (2, 3), (3,), (3,), eps=0.0, training=training) == "refused") is training


def test_batch_norm_needs_its_statistics_whole() -> None:
    assert agree("batch_norm", (2, 3), None, None) == "refused"
    assert agree("batch_norm", (2, 3), (2,), (3,)) == "refused"
    assert inferred("batch_norm", [(2, 3), (3,)], ["float32"] * 2, {}) == "refused"
    assert inferred("batch_norm", [(3,), (3,), (3,)], ["float32"] * 3, {}) == "refused"


@pytest.mark.parametrize(
    ("name", "shape", "attributes", "length"),
    [
        ("softmax", (2, 3, 5), {"dim": 0}, 2),
        ("softmax", (), {"dim": 0}, 1),
        ("causal_softmax", (2, 3, 5), {}, 5),
        ("layer_norm", (2, 3, 5), {"normalized_shape": [3, 5]}, 15),
        ("group_norm", (2, 6, 5), {"num_groups": 3}, 10),
        ("batch_norm", (2, 6, 5), {"training": True}, 10),
        ("batch_norm", (2, 6, 5), {}, 1),
    ],
)
def test_how_many_terms_a_result_has(name: str, shape: Shape, attributes: dict[str, Any], length: int) -> None:
    descriptor = operators.get(name)
    specs = [TensorSpec(dtype=dtype("float32"), shape=shape)]
    assert load_object(str(descriptor.sum_length))(specs, descriptor.bind(attributes)) == length
