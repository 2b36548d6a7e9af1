"""Movements and indexing of ONNX."""

from __future__ import annotations

from math import prod

from optest.operators.describe import attribute
from optest.operators.onnx.spelling import axis_of, input_of, refuse, require_exact, spelled
from optest.operators.shapes import Attributes, Specs, broadcast_shapes, require_spec
from optest.spec import Call, UnfitArguments, format_shape

_AXIS = attribute("axis|dim: int = 0", "Dimension along which it works.")
_AXES = attribute("axes: ints = None", "Dimensions along which it works.")
PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@spelled(
    "Transpose",
    "permute",
    "data -> transposed",
    attribute("perm|dims: ints = None", "Dimensions in their new order; reversed by default."),
)
def _transpose_call(specs: Specs, attributes: Attributes) -> Call:
    perm = attributes["perm"]
    dims = tuple(reversed(range(input_of(specs, "data").rank))) if perm is None else perm
    return Call(operator="permute", attributes={"dims": dims})


@spelled(
    "Reshape",
    "reshape",
    "data -> reshaped",
    attribute("shape: ints", "New sizes; one may be -1, and a 0 keeps the input's size."),
    attribute("allowzero: bool = False", "A 0 in shape is a size of 0."),
)
def _reshape_call(specs: Specs, attributes: Attributes) -> Call:
    """Return a call of reshape, with the input's sizes in place of zeros unless ``allowzero`` is set."""
    spec, shape = input_of(specs, "data"), attributes["shape"]
    if not attributes["allowzero"]:
        if any(size == 0 and index >= spec.rank for index, size in enumerate(shape)):
            raise UnfitArguments(
                f"shape is {list(shape)}, expected zeros only at the {spec.rank} dimensions of data "
                f"({format_shape(spec.shape)}), whose sizes they keep; allowzero=1 means a size of 0"
            )
        shape = tuple(size or spec.shape[index] for index, size in enumerate(shape))
    return Call(operator="reshape", attributes={"shape": shape})


@spelled("Flatten", "reshape", "input -> output", attribute("axis: int = 1", "First dimension of the second size."))
def _flatten_call(specs: Specs, attributes: Attributes) -> Call:
    spec = input_of(specs, "input")
    axis = axis_of(attributes["axis"], spec.rank, last=0)
    return Call(operator="reshape", attributes={"shape": (prod(spec.shape[:axis]), prod(spec.shape[axis:]))})


@spelled("Squeeze", "reshape", "data -> squeezed", _AXES)
def _squeeze_call(specs: Specs, attributes: Attributes) -> Call:
    """Return a call of reshape without the dimensions ``axes``, or without all of size 1."""
    spec = input_of(specs, "data")
    if attributes["axes"] is None:
        return Call(operator="reshape", attributes={"shape": tuple(size for size in spec.shape if size != 1)})
    if not attributes["axes"]:
        raise UnfitArguments(
            "axes is [], expected dimensions; leave it out to remove all of size 1. Implementations differ in the "
            "meaning of an empty list"
        )
    axes = {axis_of(axis, spec.rank, "axes") for axis in attributes["axes"]}
    if any(spec.shape[axis] != 1 for axis in axes):
        raise UnfitArguments(
            f"axes is {list(attributes['axes'])}, expected dimensions of size 1 in {format_shape(spec.shape)}"
        )
    shape = tuple(size for index, size in enumerate(spec.shape) if index not in axes)
    return Call(operator="reshape", attributes={"shape": shape})


@spelled(
    "Unsqueeze", "reshape", "data -> expanded", attribute("axes: ints", "Indices of the new dimensions in the result.")
)
def _unsqueeze_call(specs: Specs, attributes: Attributes) -> Call:
    spec, listed = input_of(specs, "data"), attributes["axes"]
    axes = {axis_of(axis, spec.rank + len(listed), "axes") for axis in listed}
    if len(axes) < len(listed):
        raise UnfitArguments(f"axes is {list(listed)}, expected each axis once")
    sizes = iter(spec.shape)
    shape = tuple(1 if index in axes else next(sizes) for index in range(spec.rank + len(axes)))
    return Call(operator="reshape", attributes={"shape": shape})


@spelled(
    "Expand", "broadcast_to", "input -> output", attribute("shape|size: ints", "Sizes to broadcast with the input's.")
)
def _expand_call(specs: Specs, attributes: Attributes) -> Call:
    """Return a call of broadcast_to; a 1 in ``shape`` keeps the input's size."""
    if min(attributes["shape"], default=0) < 0:
        raise UnfitArguments(f"shape is {list(attributes['shape'])}, expected numbers of 0 or more")
    shape = broadcast_shapes(input_of(specs, "input").shape, attributes["shape"])
    return Call(operator="broadcast_to", attributes={"size": shape})


@spelled(
    "Split",
    "split",
    "input -> *outputs",
    _AXIS,
    attribute("split: ints = None", "Size of each part."),
    attribute("num_outputs: int = None", "Number of parts; the last may be smaller."),
)
def _split_call(specs: Specs, attributes: Attributes) -> Call:
    """Return a call of split with the sizes of all parts."""
    spec, sizes, count = input_of(specs, "input"), attributes["split"], attributes["num_outputs"]
    axis = axis_of(attributes["axis"], spec.rank)
    if (sizes is None) == (count is None):
        state = "missing" if sizes is None else "both set"
        raise UnfitArguments(f"split and num_outputs are {state}, expected one of them")
    if sizes is None:
        size = spec.shape[axis]
        part = -(-size // count) if count > 0 else 0
        last = size - part * (count - 1)
        if count < 1 or last < 0:
            raise UnfitArguments(
                f"num_outputs is {count}, expected 1 or more, so that {size} elements fill all parts except the last"
            )
        sizes = (part,) * (count - 1) + (last,)
    return Call(operator="split", attributes={"split_size_or_sections": sizes, "dim": axis})


@spelled(
    "Pad",
    "pad",
    "data -> output",
    attribute("pads|pad: ints", "Elements to add at the beginning of every dimension, then at the ends."),
    attribute(
        "mode: str = 'constant'",
        "Source of the elements: constant_value, a reflection, the edge, or the other end.",
        choices=tuple(PAD_MODES),
    ),
    attribute("constant_value|value: float = 0.0", "Value of added elements in mode constant."),
    _AXES,
)
def _pad_call(specs: Specs, attributes: Attributes) -> Call:
    """Return a call of pad with torch's order: from the last dimension, without leading ones that are not padded."""
    rank, pads, axes = input_of(specs, "data").rank, attributes["pads"], attributes["axes"]
    require_exact("constant_value", attributes["constant_value"], input_of(specs, "data"))
    named = range(rank) if axes is None else [axis_of(axis, rank, "axes") for axis in axes]
    if len(pads) != 2 * len(named):
        raise UnfitArguments(f"pads is {list(pads)}, expected {2 * len(named)} numbers: beginnings, then ends")
    begins, ends = [0] * rank, [0] * rank
    for index, axis in enumerate(named):
        begins[axis], ends[axis] = pads[index], pads[index + len(named)]
    padded = [axis for axis in range(rank) if begins[axis] or ends[axis]]
    first = min(padded, default=rank)
    last_first = tuple(pad for axis in reversed(range(first, rank)) for pad in (begins[axis], ends[axis]))
    # torch refuses other modes without any padding.
    mode = PAD_MODES[attributes["mode"]] if padded else "constant"
    return Call(operator="pad", attributes={"pad": last_first, "mode": mode, "value": attributes["constant_value"]})


@spelled(
    "Trilu",
    ("triu", "tril"),
    "input -> output",
    attribute("upper: bool = True", "Keep the upper triangle, else the lower."),
    attribute("k|diagonal: int = 0", "Diagonal at the border of the triangle."),
)
def _trilu_call(_: Specs, attributes: Attributes) -> Call:
    return Call(operator="triu" if attributes["upper"] else "tril", attributes={"diagonal": attributes["k"]})


@spelled(
    "Gather",
    ("embedding", "index_select"),
    "data, indices -> output",
    _AXIS,
    description="embedding for rows of a matrix (axis 0 of two dimensions), else index_select. Negative indices are "
    "refused.",
)
def _gather_call(specs: Specs, attributes: Attributes) -> Call:
    rank = input_of(specs, "data").rank
    axis = axis_of(attributes["axis"], rank)
    if (rank, axis) == (2, 0):
        return Call(operator="embedding")
    if not require_spec(specs, 1, "indices").rank:
        raise UnfitArguments(
            "indices is a scalar, expected one dimension of size 1: ONNX removes the axis for a scalar, but "
            "index_select keeps it"
        )
    return Call(operator="index_select", attributes={"dim": axis})


@spelled("GatherElements", "gather", "data, indices -> output", _AXIS, description="Negative indices are refused.")
def _gather_elements_call(_: Specs, attributes: Attributes) -> Call:
    return Call(operator="gather", attributes={"dim": attributes["axis"]})


@spelled(
    "ScatterElements",
    "scatter_add",
    "data, indices, updates -> output",
    _AXIS,
    attribute("reduction: str = 'none'", "Only add is accepted.", choices=("none", "add", "mul", "max", "min")),
    description="Negative indices are refused.",
)
def _scatter_elements_call(_: Specs, attributes: Attributes) -> Call:
    refuse("reduction", attributes["reduction"], "add", "for the others write `op: torch.scatter`")
    return Call(operator="scatter_add", attributes={"dim": attributes["axis"]})
