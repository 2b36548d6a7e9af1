"""`optest check` with default settings finds faulty movement kernels of every kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from faulty_kernels import Fault, finds, found_by, read_as_dense, unexpected

from optest.numerics import widen
from optest.operators import operators

Inputs, Attributes, Right = Sequence[Any], Mapping[str, Any], list[Any]

OPERATORS = (
    *("transpose", "permute", "reshape", "broadcast_to", "tile", "flip", "roll", "tril", "triu"),
    *("concat", "split", "slice", "pad"),
)


def again(operator: str, inputs: Inputs, attributes: Attributes) -> list[Any]:
    """The reference with other attributes or inputs."""
    from optest.registry import load_object

    return list(load_object(operators.get(operator).reference)(inputs, dict(attributes)))


def fitting(found: Sequence[Any], right: Right) -> Sequence[Any]:
    """A kernel that writes into buffers of the right shape, whatever it computes."""
    if all(a.shape == b.shape for a, b in zip(found, right, strict=False)) and len(found) == len(right):
        return found
    return [np.resize(a, b.shape).astype(b.dtype) for a, b in zip(found, right, strict=False)]


def with_attributes(operator: str, **changed: Any) -> Fault:
    """A kernel that takes other attributes than it was given; it may change every one by a function."""

    def fault(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
        stated = {**attributes}
        for name, change in changed.items():
            stated[name] = change(attributes[name]) if callable(change) else change
        try:
            return fitting(again(operator, inputs, stated), right)
        except (ValueError, TypeError, IndexError):
            return right

    return fault


def last_element_missing(_: Inputs, __: Attributes, right: Right) -> Sequence[Any]:
    for each in right:
        if each.size:
            each.reshape(-1)[-1] = 0
    return right


def without_tail(tile: int) -> Fault:
    """Columns behind the last whole tile are left as zeros."""

    def fault(_: Inputs, __: Attributes, right: Right) -> Sequence[Any]:
        for each in right:
            if each.ndim and each.shape[-1] > tile:
                each[..., each.shape[-1] // tile * tile :] = 0
        return right

    return fault


def negative_zero_lost(_: Inputs, __: Attributes, right: Right) -> Sequence[Any]:
    return [
        each + each.dtype.type(0) if each.dtype.kind in "fcV" and each.dtype.itemsize > 1 else each for each in right
    ]


def nan_lost(_: Inputs, __: Attributes, right: Right) -> Sequence[Any]:
    return [np.nan_to_num(each, nan=0.0) if each.dtype.kind == "f" else each for each in right]


def through_float32(_: Inputs, __: Attributes, right: Right) -> Sequence[Any]:
    """Elements travel as float32: 64-bit integers and float64 lose their low bits."""
    with np.errstate(all="ignore"):
        return [
            each if each.dtype.itemsize < 8 or each.dtype.kind == "c" else each.astype(np.float32).astype(each.dtype)
            for each in right
        ]


def low_half_of_wide_elements(_: Inputs, __: Attributes, right: Right) -> Sequence[Any]:
    for each in right:
        if each.dtype.itemsize == 16:
            each.imag = 0
    return right


def dense_input_flipped(_: Inputs, __: Attributes, right: Right) -> Sequence[Any]:
    return [each[..., ::-1].copy() if each.ndim else each for each in right]


COMMON: dict[str, Fault] = {
    "last element missing": last_element_missing,
    "tail of 16 missing": without_tail(16),
    "tail of 64 missing": without_tail(64),
    "tail of 256 missing": without_tail(256),
    "-0 lost": negative_zero_lost,
    "NaN lost": nan_lost,
    "through float32": through_float32,
    "imaginary part lost": low_half_of_wide_elements,
    "last dimension reversed": dense_input_flipped,
}


def positive(dim: Any) -> Any:
    """Negative dimensions are taken for the first."""
    return max(dim, 0) if isinstance(dim, int) else tuple(max(each, 0) for each in dim) if dim is not None else None


def multiplied_by_mask(operator: str) -> Fault:
    def fault(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
        (source,) = inputs
        if source.dtype.kind != "f":
            return right
        mask = again(operator, [np.ones(source.shape)], attributes)[0]
        with np.errstate(all="ignore"):
            return [(source * mask).astype(source.dtype)]

    return fault


def reflected_with_border(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
    """The border element is repeated, as NumPy's mode `symmetric` does."""
    (before, after), *more = [
        (attributes["pad"][i], attributes["pad"][i + 1]) for i in range(0, len(attributes["pad"]), 2)
    ]
    if attributes["mode"] != "reflect" or more or min(before, after) < 0:
        return right
    array = inputs[0]
    return [np.pad(array, [(0, 0)] * (array.ndim - 1) + [(before, after)], mode="symmetric")]


def promoted_as_first(inputs: Inputs, _: Attributes, right: Right) -> Sequence[Any]:
    """Everything is converted to the dtype of the first tensor."""
    with np.errstate(all="ignore"):
        return [right[0].astype(inputs[0].dtype)]


def rounded_down_on_conversion(inputs: Inputs, _: Attributes, right: Right) -> Sequence[Any]:
    """Integers are truncated on their way to float32."""
    if right[0].dtype != np.float32 or all(each.dtype == np.float32 for each in inputs):
        return right
    whole = np.concatenate([widen(each).astype(np.float64).reshape(-1) for each in inputs])
    if whole.size != right[0].size or right[0].ndim != 1:
        return right
    near = whole.astype(np.float32)
    return [np.where(np.abs(near) > np.abs(whole), np.nextafter(near, np.float32(0)), near)]


def later_tensors_at_the_first_offset(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
    """The third tensor is written where the second begins."""
    if len(inputs) < 3 or any(each.shape == (0,) for each in inputs):
        return right
    swapped = [inputs[0], *inputs[:0:-1]]
    return fitting(again("concat", swapped, attributes), right)


SPECIFIC: dict[tuple[str, str], Fault] = {
    ("transpose", "negative dims are 0"): with_attributes("transpose", dim0=positive, dim1=positive),
    ("transpose", "identity"): with_attributes("transpose", dim1=0, dim0=0),
    ("transpose", "last two dims always"): with_attributes("transpose", dim0=-1, dim1=-2),
    ("permute", "inverse order"): with_attributes(
        "permute", dims=lambda dims: tuple(np.argsort([dim % len(dims) for dim in dims]).tolist())
    ),
    ("permute", "reversed order"): with_attributes("permute", dims=lambda dims: dims[::-1]),
    ("permute", "identity"): with_attributes("permute", dims=lambda dims: tuple(range(len(dims)))),
    ("reshape", "column-major"): lambda inputs, attributes, right: [
        np.asarray(inputs[0]).reshape(right[0].shape, order="F").copy()
    ],
    ("broadcast_to", "wrong side"): lambda inputs, attributes, right: [np.resize(inputs[0], right[0].shape)],
    ("broadcast_to", "first row only"): lambda inputs, attributes, right: [
        np.concatenate([right[0][:1], np.zeros_like(right[0][1:])]) if right[0].ndim else right[0]
    ],
    ("tile", "each element repeated"): lambda inputs, attributes, right: [
        np.sort(right[0], axis=-1, kind="stable") if right[0].ndim and right[0].dtype.kind in "fiu" else right[0]
    ],
    ("tile", "dims from the front"): with_attributes("tile", dims=lambda dims: (*dims, 1) if len(dims) == 1 else dims),
    ("tile", "dims reversed"): with_attributes("tile", dims=lambda dims: dims[::-1]),
    ("flip", "first dim only"): with_attributes("flip", dims=lambda dims: dims[:1]),
    ("flip", "negative dims are 0"): with_attributes("flip", dims=lambda dims: tuple(set(positive(dims)))),
    ("flip", "every dim"): lambda inputs, attributes, right: [np.flip(inputs[0]).copy()],
    ("roll", "other direction"): with_attributes("roll", shifts=lambda shifts: tuple(-each for each in shifts)),
    ("roll", "off by one"): with_attributes("roll", shifts=lambda shifts: (shifts[0] + 1, *shifts[1:])),
    ("roll", "flat always"): lambda inputs, attributes, right: again(
        "roll", inputs, {"shifts": attributes["shifts"][:1], "dims": None}
    ),
    ("roll", "shift not wrapped"): with_attributes("roll", shifts=lambda s: tuple(max(-4, min(4, each)) for each in s)),
    ("roll", "first dim only"): with_attributes(
        "roll", shifts=lambda shifts: shifts[:1], dims=lambda dims: dims and dims[:1]
    ),
    ("tril", "sign of diagonal"): with_attributes("tril", diagonal=lambda diagonal: -diagonal),
    ("tril", "diagonal ignored"): with_attributes("tril", diagonal=0),
    ("tril", "diagonal excluded"): with_attributes("tril", diagonal=lambda diagonal: diagonal - 1),
    ("tril", "upper"): lambda inputs, attributes, right: again("triu", inputs, attributes),
    ("tril", "multiplied by a mask"): multiplied_by_mask("tril"),
    ("triu", "sign of diagonal"): with_attributes("triu", diagonal=lambda diagonal: -diagonal),
    ("triu", "multiplied by a mask"): multiplied_by_mask("triu"),
    ("triu", "diagonal excluded"): with_attributes("triu", diagonal=lambda diagonal: diagonal + 1),
    ("concat", "wrong axis"): with_attributes("concat", dim=0),
    ("concat", "negative dim is 0"): with_attributes("concat", dim=positive),
    ("concat", "order"): lambda inputs, attributes, right: fitting(
        again("concat", [*inputs[1:], inputs[0]], attributes), right
    ),
    ("concat", "third at the wrong place"): later_tensors_at_the_first_offset,
    ("concat", "dtype of the first"): promoted_as_first,
    ("concat", "integers truncated"): rounded_down_on_conversion,
    ("split", "wrong axis"): with_attributes("split", dim=0),
    ("split", "parts in reverse"): lambda inputs, attributes, right: fitting(right[::-1], right),
    ("split", "first part repeated"): lambda inputs, attributes, right: (
        [np.resize(right[0], e.shape) for e in right] if right[0].size else right
    ),
    ("split", "short last part dropped"): lambda inputs, attributes, right: right[:-1] if len(right) > 1 else right,
    ("slice", "step ignored"): with_attributes("slice", step=None),
    ("slice", "start ignored"): with_attributes("slice", start=None),
    ("slice", "end included"): with_attributes(
        "slice",
        start=lambda s: s and tuple(each + 1 for each in s),
        end=lambda e: e and tuple(min(x, 2**62) + 1 for x in e),
    ),
    ("slice", "negative dim is 0"): with_attributes("slice", dim=lambda d: None if d is None else positive(d)),
    ("slice", "backwards is forwards"): lambda inputs, attributes, right: [
        right[0][:, ::-1] if attributes["step"] and attributes["step"][0] < 0 and right[0].ndim > 1 else right[0]
    ],
    ("pad", "sides swapped"): with_attributes("pad", pad=lambda pad: tuple(pad[i ^ 1] for i in range(len(pad)))),
    ("pad", "first dim first"): with_attributes(
        "pad", pad=lambda pad: tuple(x for i in range(len(pad) - 2, -1, -2) for x in pad[i : i + 2])
    ),
    ("pad", "value ignored"): with_attributes("pad", value=0.0),
    ("pad", "mode ignored"): with_attributes("pad", mode="replicate"),
    ("pad", "reflect is circular"): with_attributes("pad", mode=lambda m: "circular" if m == "reflect" else m),
    ("pad", "circular is reflect"): with_attributes("pad", mode=lambda m: "reflect" if m == "circular" else m),
    ("pad", "border repeated in reflect"): reflected_with_border,
    ("pad", "negative pads ignored"): with_attributes("pad", pad=lambda pad: tuple(max(each, 0) for each in pad)),
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_reference_raises_no_alarm(operator: str) -> None:
    assert unexpected(operator) == []


@pytest.mark.parametrize("name", COMMON)
@pytest.mark.parametrize("operator", OPERATORS)
def test_common_faults_are_found(operator: str, name: str) -> None:
    assert finds(operator, COMMON[name])


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_layout_that_is_ignored_is_found(operator: str) -> None:
    found = found_by(operator, read_as_dense(operator))
    assert len([name for name in found if "/layouts/" in name]) >= 3, found


@pytest.mark.parametrize(("operator", "name"), SPECIFIC)
def test_faults_of_the_operator_are_found(operator: str, name: str) -> None:
    assert finds(operator, SPECIFIC[operator, name])
