"""The samples of the contractions find faults of every kind, and nothing in kernels that are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sample_questions import Kernel, wrong_answers

from optest.numerics import dtype_of, round_to, widen
from optest.operators.arrays import spec_of
from optest.operators.contraction.convolution import walk_of
from optest.operators.contraction.einsum import read_equation
from optest.spec import dtype

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]


def working(array: Any) -> Any:
    """In the arithmetic of an honest kernel: float32 for 8 to 32 bits, float64, or 64-bit integers."""
    if array is None:
        return None
    wide = widen(np.asarray(array))
    if wide.dtype.kind in "iu":
        return wide.astype(np.int64)
    return wide if np.asarray(array).dtype == np.float64 else wide.astype(np.float32)


def cut(array: Any) -> Any:
    """float32 operands in bfloat16."""
    if np.asarray(array).dtype != np.float32:
        return array
    return widen(round_to(np.asarray(array), dtype("bfloat16"))).astype(np.float32)


def add_up(a: Any, b: Any, name: str = "") -> Any:
    """a @ b for matrices; with a name, partial sums of 8 products are kept in that dtype."""
    if not name or a.dtype.kind == "i":
        return a @ b
    total = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))
    for start in range(0, a.shape[-1], 8):
        part = a[..., start : start + 8] @ b[..., start : start + 8, :]
        total = widen(round_to((total + part).astype(np.float64), dtype(name)))
    return total


def own_half(inputs: Sequence[Any]) -> str:
    name = dtype_of(np.asarray(inputs[0]).dtype).name
    return name if name in ("float16", "bfloat16") else ""


def without_last_tile(a: Any, b: Any, tile: int = 16) -> Any:
    depth = a.shape[-1]
    kept = depth - depth % tile if depth > tile else depth
    return a[..., :kept] @ b[..., :kept, :]


def without_last_columns(total: Any, tile: int = 16) -> Any:
    columns = total.shape[-1] if total.ndim else 0
    out = np.array(total)
    if columns > tile and columns % tile:
        out[..., columns - columns % tile :] = 0
    return out


def saturated(total: Any, like: Any) -> Any:
    kind = np.asarray(like).dtype
    return np.clip(total, np.iinfo(kind).min, np.iinfo(kind).max) if kind.kind in "iu" else total


def two(fault: Any) -> Kernel:
    """A matmul or bmm whose fault is in how two matrices are multiplied."""

    def kernel(inputs: Sequence[Any], attributes: Attributes) -> Any:
        a, b = working(inputs[0]), working(inputs[1])
        rows, columns = a.ndim == 1, b.ndim == 1
        total = fault(a[None] if rows else a, b[:, None] if columns else b, inputs, attributes)
        total = total[..., 0, :] if rows else total
        return total[..., 0] if columns else total

    return kernel


def narrow_integers(total: Any, attributes: Attributes) -> Any:
    """Sums of 8-bit integers in 16 bits."""
    return total.astype(np.int16) if attributes.get("out_dtype") == "int32" else total


PRODUCTS = {
    "last tile of the depth is lost": lambda a, b, *_: without_last_tile(a, b),
    "last tile of the columns is lost": lambda a, b, *_: without_last_columns(a @ b),
    "16-bit accumulator": lambda a, b, inputs, _: add_up(a, b, own_half(inputs)),
    "operands in bfloat16": lambda a, b, inputs, _: (
        working(cut(inputs[0])).reshape(a.shape) @ working(cut(inputs[1])).reshape(b.shape)
    ),
    "integers saturate": lambda a, b, inputs, _: saturated(a @ b, inputs[0]),
    "int32 sums in int16": lambda a, b, _, attributes: narrow_integers(a @ b, attributes),
    "first matrix for all": lambda a, b, *_: a @ np.broadcast_to(b[(0,) * (b.ndim - 2)] if b.size else b, b.shape),
    "NaN becomes 0": lambda a, b, *_: np.nan_to_num(a @ b, posinf=np.inf, neginf=-np.inf),
    "infinity becomes the largest": lambda a, b, *_: np.clip(a @ b, -3e38, 3e38) if a.dtype.kind == "f" else a @ b,
    "absolute values": lambda a, b, *_: np.abs(a) @ b,
    "2 ulp too large": lambda a, b, *_: (a @ b) * (1 + 2.0**-22) if a.dtype == np.float32 else a @ b,
}


@pytest.mark.parametrize("operator", ["matmul", "bmm"])
def test_honest_products_raise_no_alarm(operator: str) -> None:
    assert wrong_answers(operator, two(lambda a, b, *_: a @ b)) == []


@pytest.mark.parametrize("fault", PRODUCTS)
@pytest.mark.parametrize("operator", ["matmul", "bmm"])
def test_faulty_products_are_found(operator: str, fault: str) -> None:
    assert wrong_answers(operator, two(PRODUCTS[fault]), first=True)


def gemm(
    inputs: Sequence[Any],
    attributes: Attributes,
    *,
    reads_c: bool = False,
    c_of: Any = lambda c, total: c,
    late: bool = False,
    product: Any = np.matmul,
    **changed: Any,
) -> Any:
    bound = {**attributes, **changed}
    a, b, c = (working(each) for each in (*inputs, None)[:3])
    for trans, name in (("trans_a", "a"), ("trans_b", "b")):
        operand = a if name == "a" else b
        if bound[trans] or (attributes[trans] and operand.shape[-2] != operand.shape[-1]):  # else shapes would show it
            a, b = (a.swapaxes(-1, -2), b) if name == "a" else (a, b.swapaxes(-1, -2))
    kind = a.dtype.type
    nothing = np.zeros((*a.shape[:-1], b.shape[-1]), a.dtype)
    total = kind(bound["alpha"]) * product(a, b) if bound["alpha"] else nothing
    if late:
        total = widen(round_to(total, dtype_of(np.asarray(inputs[0]).dtype))).astype(total.dtype)
    if c is not None and (bound["beta"] or reads_c):
        total = total + kind(bound["beta"]) * c_of(c, total)
    return total


def along_rows(c: Any, total: Any) -> Any:
    """A bias for each row where it is meant for each column."""
    if c.ndim == 1 and c.shape[0] == total.shape[0]:
        return c[:, None]
    return c.reshape(-1)[:1] if c.ndim == 2 and c.shape[0] == 1 else c


GEMMS: dict[str, dict[str, Any]] = {
    "beta = 0 reads c": {"reads_c": True},
    "alpha is ignored": {"alpha": 1.0},
    "beta is ignored": {"beta": 1.0},
    "trans_a is ignored": {"trans_a": False},
    "trans_b is ignored": {"trans_b": False},
    "only the first element of a row bias": {"c_of": along_rows},
    "product is rounded before c": {"late": True},
    "last tile of the depth is lost": {"product": without_last_tile},
    "last tile of the columns is lost": {"product": lambda a, b: without_last_columns(a @ b)},
}


def test_an_honest_gemm_raises_no_alarm() -> None:
    assert wrong_answers("gemm", gemm) == []


@pytest.mark.parametrize("fault", GEMMS)
def test_faulty_gemms_are_found(fault: str) -> None:
    kernel = lambda inputs, attributes: gemm(inputs, attributes, **GEMMS[fault])  # noqa: E731
    assert wrong_answers("gemm", kernel, first=True)


def linear(
    inputs: Sequence[Any],
    _: Attributes,
    *,
    product: Any = np.matmul,
    bias_of: Any = lambda b, total: b,
    turned: bool = False,
    half: bool = False,
) -> Any:
    x, weight, bias = (working(each) for each in (*inputs, None)[:3])
    rows = weight[None] if weight.ndim == 1 else weight
    keeps = turned and rows.shape[0] == rows.shape[1]
    total = product(np.atleast_2d(x), rows if keeps else rows.T).reshape(*x.shape[:-1], rows.shape[0])
    total = total[..., 0] if weight.ndim == 1 else total
    if half and own_half(inputs):
        total = widen(round_to(total.astype(np.float64), dtype(own_half(inputs)))).astype(np.float32)
    return total if bias is None else total + bias_of(bias, total)


LINEARS: dict[str, dict[str, Any]] = {
    "weight is not transposed": {"turned": True},
    "bias is ignored": {"bias_of": lambda b, total: b * 0},
    "bias along rows": {"bias_of": lambda b, total: b[:, None] if total.shape[:1] == total.shape[1:] == b.shape else b},
    "first bias for all": {"bias_of": lambda b, total: b[:1]},
    "bias after rounding": {"half": True},
    "last tile of the depth is lost": {"product": without_last_tile},
    "last tile of the features is lost": {"product": lambda a, b: without_last_columns(a @ b)},
}


def test_an_honest_linear_raises_no_alarm() -> None:
    assert wrong_answers("linear", linear) == []


@pytest.mark.parametrize("fault", LINEARS)
def test_faulty_linears_are_found(fault: str) -> None:
    kernel = lambda inputs, attributes: linear(inputs, attributes, **LINEARS[fault])  # noqa: E731
    assert wrong_answers("linear", kernel, first=True)


def einsum(inputs: Sequence[Any], attributes: Attributes, fault: str = "") -> Any:
    """np.einsum with every label written out."""
    arrays = [working(each) for each in inputs]
    equation = read_equation(attributes["equation"], [each.shape for each in arrays])
    numbers = {label: index for index, label in enumerate(equation.sizes)}
    operands: list[Any] = []
    for array, labels in zip(arrays, equation.operands, strict=True):
        kept = [i for i, label in enumerate(labels) if array.shape[i] == equation.sizes[label]]
        squeezed = array.reshape([array.shape[i] for i in kept])
        operands += [squeezed, [numbers[labels[i]] for i in kept]]
    output = list(equation.output)
    shape = [equation.sizes[label] for label in output]
    if fault == "output in alphabetical order":
        output = sorted(output)
    total = np.einsum(*operands, [numbers[label] for label in output])
    if fault == "repeated labels are summed apart" and len(arrays) == 1 and not output:
        total = arrays[0].sum()
    if fault == "16-bit result of every operand" and own_half(inputs):
        total = widen(round_to(total.astype(np.float64), dtype("bfloat16")))
    summed = len(arrays) == 2 and arrays[0].ndim and equation.operands[0][-1] not in equation.output
    if fault == "last label is lost" and summed and arrays[0].shape[-1] > 1:
        operands[0] = operands[0].copy()
        operands[0][..., -1] = 0
        total = np.einsum(*operands, [numbers[label] for label in output])
    if fault == "the first batch for all" and total.ndim > 2 and total.size:
        total = np.broadcast_to(total[:1], total.shape)
    return total.reshape(shape)


EINSUMS = (
    "output in alphabetical order",
    "repeated labels are summed apart",
    "16-bit result of every operand",
    "last label is lost",
    "the first batch for all",
)


def test_an_honest_einsum_raises_no_alarm() -> None:
    assert wrong_answers("einsum", einsum) == []


@pytest.mark.parametrize("fault", EINSUMS)
def test_faulty_einsums_are_found(fault: str) -> None:
    kernel = lambda inputs, attributes: einsum(inputs, attributes, fault)  # noqa: E731
    assert wrong_answers("einsum", kernel, first=True)


def convolve(inputs: Sequence[Any], attributes: Attributes, fault: str = "") -> Any:
    """A direct convolution that gathers what each position sees; the shapes are right whatever the fault."""
    x, weight, bias = (working(each) for each in (*inputs, None)[:3])
    rank = weight.ndim - 2
    walk = walk_of(spec_of(np.asarray(inputs[0])), spec_of(np.asarray(inputs[1])), attributes, rank)
    batched = x if x.ndim == rank + 2 else x[None]
    stride, dilation, padding = walk.stride, walk.dilation, walk.padding
    if fault == "stride swapped":
        stride = stride[::-1]
    if fault == "stride ignored":
        stride = (1,) * rank
    if fault == "dilation ignored":
        dilation = (1,) * rank
    if fault == "dilation swapped":
        dilation = dilation[::-1]
    if fault == "padding swapped":
        padding = padding[::-1]
    if fault == "padding on one side":
        padding = tuple((0, before + after) for before, after in padding)
    if fault == "odd zero of 'same' first":
        padding = tuple((after, before) for before, after in padding)
    if fault == "kernel flipped":
        weight = np.flip(weight, axis=tuple(range(2, weight.ndim)))
    if fault == "kernel transposed" and rank == 2 and weight.shape[2] == weight.shape[3]:
        weight = weight.swapaxes(2, 3)
    if fault == "channels swapped" and weight.shape[0] == weight.shape[1]:
        weight = weight.swapaxes(0, 1)
    seen = batched
    for axis in range(rank):
        out, kernel = np.arange(walk.out[axis]), np.arange(walk.kernel[axis])
        places = np.add.outer(kernel * dilation[axis], out * stride[axis]) - padding[axis][0]
        size = batched.shape[2 + axis]
        inside = (places >= 0) & (places < size)
        if fault == "padding repeats the border":
            inside[...] = True
        where = 2 + 2 * axis
        seen = np.take(seen, np.clip(places, 0, size - 1), axis=where)
        shape = [1] * seen.ndim
        shape[where : where + 2] = places.shape
        seen = np.where(inside.reshape(shape), seen, 0)
    order = [0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 3 + 2 * rank, 2)]
    seen = seen.transpose(order).reshape(*batched.shape[:2], walk.taps, int(np.prod(walk.out)))
    groups, channels = walk.groups, batched.shape[1] // walk.groups
    if fault == "groups interleaved":
        seen = seen.reshape(seen.shape[0], channels, groups, *seen.shape[2:]).swapaxes(1, 2)
    seen = seen.reshape(batched.shape[0], groups, channels * walk.taps, seen.shape[-1])
    rows = weight.reshape(groups, weight.shape[0] // groups, -1)
    if fault == "last tile of the depth is lost":
        total = without_last_tile(rows, seen)
    elif fault == "16-bit accumulator":
        total = add_up(rows, seen, own_half(inputs))
    else:
        total = rows @ seen
    if fault == "last columns are lost":
        total = without_last_columns(total)
    if fault == "output channels interleaved" and groups > 1:
        total = total.swapaxes(1, 2)
    total = total.reshape(batched.shape[0], weight.shape[0], *walk.out)
    if bias is not None:
        shape = [1, -1, *(1,) * rank]
        if fault == "bias along the last axis" and total.shape[-1] == bias.size:
            shape = [1, *(1,) * rank, -1]
        total = total + (bias[:1] if fault == "first bias for all" else bias).reshape(shape)
    if fault == "int32 sums in int16":
        total = narrow_integers(total, attributes)
    return total if x.ndim == rank + 2 else total[0]


CONVOLUTIONS = (
    "stride ignored",
    "dilation ignored",
    "padding on one side",
    "odd zero of 'same' first",
    "padding repeats the border",
    "kernel flipped",
    "channels swapped",
    "groups interleaved",
    "output channels interleaved",
    "last tile of the depth is lost",
    "last columns are lost",
    "16-bit accumulator",
    "bias along the last axis",
    "first bias for all",
    "int32 sums in int16",
)
SWAPS = ("stride swapped", "dilation swapped", "padding swapped", "kernel transposed")


@pytest.mark.parametrize("operator", ["conv1d", "conv2d"])
def test_honest_convolutions_raise_no_alarm(operator: str) -> None:
    assert wrong_answers(operator, convolve) == []


@pytest.mark.parametrize(
    ("operator", "fault"),
    [*(("conv1d", fault) for fault in CONVOLUTIONS), *(("conv2d", fault) for fault in (*CONVOLUTIONS, *SWAPS))],
)
def test_faulty_convolutions_are_found(operator: str, fault: str) -> None:
    kernel = lambda inputs, attributes: convolve(inputs, attributes, fault)  # noqa: E731
    assert wrong_answers(operator, kernel, first=True)
