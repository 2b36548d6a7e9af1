"""Operators that reorder elements: transpose, permute, reshape, flip and roll."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from optest.operators.calls import MILLION, SIZES, call
from optest.operators.describe import EVERY, attribute, in_module
from optest.operators.movement.helpers import MOVED, distinct_dims, movement_samples
from optest.operators.samples import in_every_layout, in_layouts_at_once
from optest.operators.shapes import Attributes, Outputs, Shape, Specs, dense, normalize_dim, require_spec
from optest.spec import OperatorDescriptor, Sample, TensorSpec, UnfitArguments, format_shape

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="transpose",
        attributes=(
            attribute("dim0: int", "First dimension to swap."),
            attribute("dim1: int", "Second dimension to swap."),
        ),
        description="Swap two dimensions.",
    ),
    OperatorDescriptor(
        name="permute",
        aliases=("permute_dims",),
        attributes=(attribute("dims|perm: ints", "The input's dimensions in their new order."),),
        description="Reorder the dimensions.",
    ),
    OperatorDescriptor(
        name="reshape",
        attributes=(attribute("shape: ints", "The new sizes; one may be -1 and is computed from the others."),),
        description="Arrange the elements, in row-major order, in another shape. A size of 0 means 0, as with ONNX's "
        "allowzero.",
    ),
    OperatorDescriptor(
        name="flip",
        attributes=(attribute("dims: ints", "Dimensions to reverse."),),
        description="Reverse the order of elements along dimensions.",
    ),
    OperatorDescriptor(
        name="roll",
        attributes=(
            attribute("shifts: ints", "Numbers of positions by which elements move towards the end."),
            attribute("dims: ints = None", "Dimension of each shift; None rolls the flattened tensor."),
        ),
        description="Shift elements cyclically.",
    ),
    twin="movement_reference",
    dtype_variants=EVERY,
    rule=MOVED,
)


def infer_transpose(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    first = normalize_dim(attributes["dim0"], spec.rank, "dim0")
    second = normalize_dim(attributes["dim1"], spec.rank, "dim1")
    shape = list(spec.shape)
    if shape:
        shape[first], shape[second] = shape[second], shape[first]
    return (dense(spec.dtype, tuple(shape)),)


def infer_permute(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    dims = attributes["dims"]
    if len(dims) != spec.rank:
        raise UnfitArguments(f"dims is {list(dims)}, expected each of {spec.rank} dimensions once")
    order = distinct_dims(dims, spec.rank)
    return (dense(spec.dtype, tuple(spec.shape[dim] for dim in order)),)


def infer_reshape(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output spec; one size may be -1 and is computed from the others, unless they multiply to 0."""
    spec = require_spec(specs, 0, "input")
    shape: Shape = attributes["shape"]
    if any(size < -1 for size in shape) or shape.count(-1) > 1:
        raise UnfitArguments(f"shape is {list(shape)}, expected sizes of 0 or more, and -1 at most once")
    # math.prod of no sizes is 1.
    known_elements = math.prod(size for size in shape if size != -1)
    if -1 in shape:
        if known_elements == 0 or spec.elements % known_elements:
            raise _wrong_shape(spec, shape)
        shape = tuple(spec.elements // known_elements if size == -1 else size for size in shape)
    elif known_elements != spec.elements:
        raise _wrong_shape(spec, shape)
    return (dense(spec.dtype, shape),)


def _wrong_shape(spec: TensorSpec, shape: Shape) -> UnfitArguments:
    """Build the error for a shape with another number of elements."""
    return UnfitArguments(
        f"shape is {list(shape)}, expected a shape of {spec.elements} elements, as {format_shape(spec.shape)}"
    )


def infer_flip(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    distinct_dims(attributes["dims"], spec.rank)
    return (dense(spec.dtype, spec.shape),)


def infer_roll(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the spec of input; without dims there is one shift, and a dimension may occur again."""
    spec = require_spec(specs, 0, "input")
    shifts, dims = attributes["shifts"], attributes.get("dims") or ()
    if not shifts:
        raise UnfitArguments("shifts is [], expected 1 entry or more")
    # One shift without dims rolls the flattened tensor.
    if len(shifts) != len(dims) and (dims or len(shifts) > 1):
        raise UnfitArguments(f"dims is {list(dims)}, expected {len(shifts)} entries, one for each shift")
    if dims and not spec.rank:
        raise UnfitArguments(f"dims is {list(dims)}, expected none, as input is a scalar")
    for dim in dims:
        normalize_dim(dim, spec.rank, "dims")
    return (dense(spec.dtype, spec.shape),)


def transpose_samples() -> Iterator[Sample]:
    yield from movement_samples(
        [call({"dim0": 0, "dim1": 1}, input=(5, 37)), call({"dim0": 1, "dim1": 2}, input=(2, 17, 33))],
        lambda n: call({"dim0": 0, "dim1": 1}, input=(n, 3)),
        [
            *(call({"dim0": 0, "dim1": 1}, input=(3, n)) for n in SIZES),
            *(call({"dim0": a, "dim1": b}, input=(2, 3, 5, 4)) for a in (0, 1, -1, -2) for b in (0, 2, 3, -3)),
            call({"dim0": 0, "dim1": -1}, input=(33, 65)),
            *(call({"dim0": a, "dim1": b}, input=(3, 5, 7)) for a, b in ((0, 2), (-3, -2))),
            # A kernel may swap these in place.
            *(call({"dim0": -2, "dim1": -1}, input=shape) for shape in ((5, 5), (33, 33), (2, 16, 16))),
            call({"dim0": 0, "dim1": -1}, input=()),
            call({"dim0": 0, "dim1": 1}, input=(0, 3)),
            call({"dim0": 1, "dim1": -2}, input=(2, 3, 2, 4, 3)),
        ],
        [call({"dim0": 0, "dim1": 2}, input=(3, 4)), call({"dim0": -3, "dim1": 0}, input=(3, 4))],
        large=[call({"dim0": 0, "dim1": 1}, input=MILLION)],
    )


def permute_samples() -> Iterator[Sample]:
    # All orders of three dimensions, and negative ones.
    orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0), (-1, 0, 1), (1, -1, -3))
    yield from movement_samples(
        [call({"dims": [2, 0, 1]}, input=(3, 5, 17)), call({"dims": [0, 2, 3, 1]}, input=(2, 3, 9, 7))],
        lambda n: call({"dims": [1, 2, 0]}, input=(n, 2, 3)),
        [
            *(call({"dims": [2, 0, 1]}, input=(2, 3, n)) for n in SIZES),
            *(call({"dims": list(order)}, input=(2, 3, 4)) for order in orders),
            call({"dims": [3, 1, 4, 0, 2]}, input=(2, 3, 4, 5, 2)),
            call({"dims": [0, 1, 3, 2, 4, 5]}, input=(2, 2, 3, 2, 3, 5)),  # windows of an image
            call({"dims": [1, 0]}, input=(17, 17)),
            call({"dims": [2, 0, 1]}, input=(5, 5, 5)),
            call({"dims": []}, input=()),
            call({"dims": [1, 0]}, input=(0, 3)),
            call({"dims": [1, 0]}, input=(33, 65)),
            call({"dims": [3, 1, 4, 0, 2]}, input=(2, 3, 4, 5, 2), dtypes=("int8",)),
            call({"dims": [0, 3, 1, 2]}, input=(2, 5, 4, 3)),  # channels first, three of them
            call({"dims": [0, 2, 1, 3]}, input=(2, 1, 3, 4)),
        ],
        [call({"dims": [0]}, input=(3, 4)), call({"dims": [0, 0]}, input=(3, 4)), call({"dims": [0, 2]}, input=(3, 4))],
    )


def reshape_samples() -> Iterator[Sample]:
    shapes = ([24], [2, 12], [-1, 4], [4, -1], [2, -1, 3], [2, 1, 12, 1], [1, 24], [2, 3, 4])
    yield from movement_samples(
        [call({"shape": [15, -1]}, input=(3, 5, 17)), call({"shape": [-1]}, input=(7, 31))],
        lambda n: call({"shape": [6, n]}, input=(2, 3, n)),
        [
            *(call({"shape": [n, 6]}, input=(6, n)) for n in SIZES),
            *(call({"shape": shape}, input=(2, 3, 4)) for shape in shapes),
            call({"shape": []}, input=(1, 1)),
            call({"shape": [1, 1]}, input=()),
            call({"shape": [-1, 3]}, input=(0, 3)),
            call({"shape": [0, 5]}, input=(5, 0, 2)),
            call({"shape": [6, -1]}, input=(2, 3, 5, 3)),
            call({"shape": [4, 3, -1]}, input=(2, 3, 2, 5, 3)),
            call({"shape": [-1]}, input={"shape": [6, 6], "strides": [1, 6]}),
        ],
        [
            call({"shape": [5, 5]}, input=(4, 6)),
            call({"shape": [-1, 5]}, input=(4, 6)),
            call({"shape": [-1, -1]}, input=(4, 6)),
            call({"shape": [-2, 12]}, input=(4, 6)),
            call({"shape": [-1, 0]}, input=(0, 3)),
        ],
    )


def flip_samples() -> Iterator[Sample]:
    yield from movement_samples(
        [call({"dims": [1]}, input=(5, 37)), call({"dims": [0, 2]}, input=(3, 4, 17))],
        lambda n: call({"dims": [-1]}, input=(3, n)),
        [
            *(call({"dims": dims}, input=(2, 3, 5)) for dims in ([0], [1], [-1], [-3], [1, 0], [0, -1], [0, 1, 2], [])),
            *(call({"dims": dims}, input=(2, 3, 2, 5, 3)) for dims in ([1, -1], [2], [0, 1, 2, 3, 4])),
            call({"dims": [0]}, input=()),
            call({"dims": [0]}, input=(0, 3)),
        ],
        [
            call({"dims": [2]}, input=(3, 4)),
            call({"dims": [0, 0]}, input=(3, 4)),
            call({"dims": [0, -2]}, input=(3, 4)),
        ],
        large=[call({"dims": [0]}, input=MILLION)],
    )


def roll_samples() -> Iterator[Sample]:
    attribute_sets: list[dict[str, Any]] = [
        {"shifts": 1},
        {"shifts": -4},
        {"shifts": 7, "dims": 2},
        {"shifts": -7, "dims": 2},
        {"shifts": 0, "dims": 1},
        {"shifts": 3, "dims": 1},
        {"shifts": -17, "dims": 1},
        {"shifts": 65},
        {"shifts": 1, "dims": -3},
        {"shifts": [1, -2], "dims": [0, 2]},
        {"shifts": [1, 2], "dims": [2, 1]},
        {"shifts": [1, 1], "dims": [1, 1]},
        {"shifts": [1, 1, 3], "dims": [-1, -2, -3]},
    ]
    yield from movement_samples(
        [call({"shifts": 3, "dims": 1}, input=(5, 37)), call({"shifts": -5}, input=(3, 17))],
        lambda n: call({"shifts": 2, "dims": 1}, input=(3, n)),
        [
            *(call(attributes, input=(2, 3, 5)) for attributes in attribute_sets),
            call({"shifts": [1, 2], "dims": [2, -1]}, input=(2, 3, 4, 2, 5)),
            call({"shifts": 1}, input=()),
            call({"shifts": 2, "dims": 1}, input=(0, 3)),
            call({"shifts": [1, 2], "dims": [1, 3]}, input=(2, 3, 4, 5)),
        ],
        [
            call({"shifts": 1, "dims": 2}, input=(3, 4)),
            call({"shifts": [1, 2], "dims": [0]}, input=(3, 4)),
            call({"shifts": [1, 2]}, input=(3, 4)),
            call({"shifts": []}, input=(3, 4)),
        ],
    )
    # The flattened order is row-major for every layout in memory.
    yield from in_every_layout([call({"shifts": -5}, input=(3, 17))])
    yield from in_layouts_at_once([call({"shifts": 4}, input=(3, 5, 7))])
