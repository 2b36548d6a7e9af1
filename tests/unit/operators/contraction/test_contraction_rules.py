"""Rules of sums of products in contraction, pooling and attention: correct rounding passes, wrong sums fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from judged_arrays import truncated
from sample_questions import Kernel, question

from optest.numerics import dtype_of, round_to, widen
from optest.operators import operators
from optest.operators.calls import call
from optest.registry import load_object
from optest.spec import dtype

Array = np.ndarray[Any, Any]
Call = Callable[[int], dict[str, Any]]

WIDTHS = (1, 17, 1024, 65536)
DTYPES = ("float32", "float16", "bfloat16")
FILLS = ("randn", "uniform", "integer-exact")


def _conv(width: int) -> dict[str, Any]:
    channels = max(1, width // 8) if width > 8 else width
    return call({"padding": 1}, input=(1, channels, 100 if width <= 4096 else 10), weight=(8, channels, 8), bias=(8,))


def _rows(width: int) -> int:
    return 16 if width <= 4096 else 8


CALLS: dict[str, tuple[str, Call]] = {
    "matmul": ("matmul", lambda n: call(input=(16, n), other=(n, 16))),
    "bmm": ("bmm", lambda n: call(input=(2, 8, n), mat2=(2, n, 16))),
    "gemm": ("gemm", lambda n: call({"alpha": 0.7, "beta": -1.5}, a=(16, n), b=(n, 16), c=(16,))),
    "linear": ("linear", lambda n: call(input=(16, n), weight=(16, n), bias=(16,))),
    "einsum": ("einsum", lambda n: call({"equation": "bij,bkj->bik"}, operands0=(2, 8, n), operands1=(2, 16, n))),
    "conv1d": ("conv1d", _conv),
    "adaptive_avg_pool2d": ("adaptive_avg_pool2d", lambda n: call({"output_size": 1}, input=(8, _rows(n), 1, n))),
    "avg_pool2d": ("avg_pool2d", lambda n: call({"kernel_size": (1, n)}, input=(8, _rows(n), 1, n))),
    "attention over keys": ("scaled_dot_product_attention", lambda n: _attention(8, n, 16)),
    "attention over elements": ("scaled_dot_product_attention", lambda n: _attention(8, 9, n)),
    "rope": ("rope", lambda n: call(input=(4, n, 8), cos=(n, 4), sin=(n, 4))),
}


def _attention(queries: int, keys: int, elements: int) -> dict[str, Any]:
    return call(query=(1, 1, queries, elements), key=(1, 1, keys, elements), value=(1, 1, keys, 16))


def sample(label: str, width: int, name: str, fill: str, seed: int) -> Any:
    operator, make = CALLS[label]
    return question(operator, {**make(width), "dtypes": [name], "generator": fill}, seed)


# The other calls sum as one of these does; benchmarks/honest.py --source widths runs all widths of all.
ONE_OF_A_KIND = ("matmul", "conv1d", "avg_pool2d", "attention over elements")


def reference(label: str) -> Callable[..., Any]:
    return load_object(operators.get(CALLS[label][0]).reference)


def spoiled(label: str, fault: str) -> Kernel:
    """Return the reference with one fault in its inputs or its result."""

    def kernel(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        copies = [None if array is None else np.array(array) for array in inputs]
        name = dtype_of(copies[0].dtype).name
        if fault == "last term dropped":
            copies[0][..., -1] = 0
        if fault == "first term twice":
            copies[0][..., 0] = round_to(widen(copies[0][..., 0]) * 2.0, dtype(name))
        out = np.array(reference(label)(copies, attributes)[0])
        if fault == "one element":
            out.reshape(-1)[out.size // 2] *= 1.05
        if fault == "everything 1 % larger":
            out *= 1.01
        if fault == "truncated":
            out = truncated(out, name)
        return out

    return kernel


SUMS = tuple(label for label in CALLS if "attention" not in label and label != "rope")
FAULTS = ("last term dropped", "first term twice", "one element", "everything 1 % larger")


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("label", "width"),
    [
        *((label, width) for label in SUMS for width in (1, 17)),
        *(pytest.param(label, 4096, marks=pytest.mark.slow) for label in SUMS if label in ONE_OF_A_KIND),
    ],
)
def test_faults_fail(label: str, fault: str, width: int, name: str) -> None:
    # One of the fills detects it.
    kernel = spoiled(label, fault)
    assert any(not sample(label, width, name, fill, seed=width).is_answered(kernel) for fill in FILLS)


@pytest.mark.parametrize("name", DTYPES[1:])
@pytest.mark.parametrize("width", WIDTHS[1:3])
@pytest.mark.parametrize("label", SUMS)
def test_truncation_to_16_bits_fails(label: str, width: int, name: str) -> None:
    # Not in float32: there truncation is within the bound of a float32 accumulator.
    assert not sample(label, width, name, "randn", seed=width).is_answered(spoiled(label, "truncated"))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("label", SUMS)
def test_correct_rounding_passes(label: str, name: str) -> None:
    kernel = spoiled(label, "none")
    assert all(sample(label, 1024, name, fill, seed=1).is_answered(kernel) for fill in FILLS)


TINY = {
    "matmul": call(input=(16, 5), other=(5, 16)),
    "linear": call(input=(16, 5), weight=(16, 5)),
    "einsum": call({"equation": "ij,jk->ik"}, operands0=(16, 5), operands1=(5, 16)),
    "conv1d": call(input=(1, 5, 40), weight=(16, 5, 1)),
}


@pytest.mark.parametrize("operator", TINY)
def test_subnormal_products_may_round_one_by_one(operator: str) -> None:
    # Each loses up to half a subnormal; a sum that loses three more for each term fails.
    small = {"fill": "uniform", "low": -2e-22, "high": 2e-22}
    tiny = question(operator, {**TINY[operator], "dtypes": ["float32"], "generator": small}, 3)
    left, right = (np.asarray(operand) for operand in tiny.inputs)
    left = left[0].T if operator == "conv1d" else left
    right = {"linear": right.T, "conv1d": right[..., 0].T}.get(operator, right)
    with np.errstate(all="ignore"):
        products = left[:, :, None] * right[None]  # float32, most of them subnormal
    assert (np.abs(products) < 2.0**-126).mean() > 0.9
    for lost, is_right in ((0.0, True), (3.0 * 2.0**-149, False)):
        total = (products + np.float32(lost)).sum(1, dtype=np.float32)
        total = total.T[None] if operator == "conv1d" else total
        assert tiny.is_answered(lambda _inputs, _attributes, total=total: total) is is_right
