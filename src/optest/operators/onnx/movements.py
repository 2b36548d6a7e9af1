"""Movements and indexing of ONNX."""

from __future__ import annotations

from math import prod

from optest.operators.onnx.reading import axis_of, flag, input_of, refuse, require_exact
from optest.operators.shapes import Attributes, Specs, broadcast_shapes, given
from optest.spec import Attribute, Call, Spelling, UnfitArguments, format_shape

__all__ = ["SPELLINGS"]

_AXIS = Attribute(name="axis", type="int", default=0, aliases=("dim",), description="Dimension along which it works.")
_AXES = Attribute(name="axes", type="ints", default=None, description="Dimensions that it is about.")
_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _transpose(specs: Specs, attributes: Attributes) -> Call:
    rank = input_of(specs, "data").rank
    return Call(
        operator="permute",
        attributes={"dims": (*reversed(range(rank)),) if attributes["perm"] is None else attributes["perm"]},
    )


def _reshape(specs: Specs, attributes: Attributes) -> Call:
    """A 0 is the input's own size there, unless ``allowzero`` is 1."""
    spec, shape = input_of(specs, "data"), attributes["shape"]
    if not attributes["allowzero"]:
        if any(size == 0 and index >= spec.rank for index, size in enumerate(shape)):
            raise UnfitArguments(f"shape is {list(shape)}, but data {format_shape(spec.shape)} has no size for each 0")
        shape = tuple(size or spec.shape[index] for index, size in enumerate(shape))
    return Call(operator="reshape", attributes={"shape": shape})


def _flatten(specs: Specs, attributes: Attributes) -> Call:
    spec = input_of(specs, "input")
    axis = axis_of(attributes["axis"], spec.rank, last=0)
    return Call(operator="reshape", attributes={"shape": (prod(spec.shape[:axis]), prod(spec.shape[axis:]))})


def _squeeze(specs: Specs, attributes: Attributes) -> Call:
    spec = input_of(specs, "data")
    if attributes["axes"] is None:
        return Call(operator="reshape", attributes={"shape": tuple(size for size in spec.shape if size != 1)})
    if not attributes["axes"]:
        raise UnfitArguments(
            "axes is [], but should name dimensions or be left out, which means all of size 1: implementations differ "
            "in whether none means all"
        )
    axes = {axis_of(axis, spec.rank, "axes") for axis in attributes["axes"]}
    if any(spec.shape[axis] != 1 for axis in axes):
        raise UnfitArguments(
            f"axes is {list(attributes['axes'])}, but should name sizes of 1 in {format_shape(spec.shape)}"
        )
    shape = tuple(size for index, size in enumerate(spec.shape) if index not in axes)
    return Call(operator="reshape", attributes={"shape": shape})


def _unsqueeze(specs: Specs, attributes: Attributes) -> Call:
    spec, stated = input_of(specs, "data"), attributes["axes"]
    axes = {axis_of(axis, spec.rank + len(stated), "axes") for axis in stated}
    if len(axes) < len(stated):
        raise UnfitArguments(f"axes is {list(stated)}, but should name each axis once")
    own = iter(spec.shape)
    shape = tuple(1 if index in axes else next(own) for index in range(spec.rank + len(axes)))
    return Call(operator="reshape", attributes={"shape": shape})


def _expand(specs: Specs, attributes: Attributes) -> Call:
    """A 1 in ``shape`` keeps the input's own size."""
    if min(attributes["shape"], default=0) < 0:
        raise UnfitArguments(f"shape is {list(attributes['shape'])}, but should be numbers of 0 or more")
    shape = broadcast_shapes(input_of(specs, "input").shape, attributes["shape"])
    return Call(operator="broadcast_to", attributes={"size": shape})


def _split(specs: Specs, attributes: Attributes) -> Call:
    spec, sizes, count = input_of(specs, "input"), attributes["split"], attributes["num_outputs"]
    axis = axis_of(attributes["axis"], spec.rank)
    if (sizes is None) == (count is None):
        raise UnfitArguments("either split or num_outputs should be stated")
    if sizes is None:
        size = spec.shape[axis]
        each = -(-size // count) if count > 0 else 0
        last = size - each * (count - 1)
        if count < 1 or last < 0:
            raise UnfitArguments(f"num_outputs is {count}, but should be 1 or more and divide {size} into parts")
        sizes = (each,) * (count - 1) + (last,)
    return Call(operator="split", attributes={"split_size_or_sections": sizes, "dim": axis})


def _pad(specs: Specs, attributes: Attributes) -> Call:
    """torch begins with the last dimension and leaves out leading ones that stay."""
    rank, pads, axes = input_of(specs, "data").rank, attributes["pads"], attributes["axes"]
    require_exact("constant_value", attributes["constant_value"], input_of(specs, "data"))
    named = range(rank) if axes is None else [axis_of(axis, rank, "axes") for axis in axes]
    if len(pads) != 2 * len(named):
        raise UnfitArguments(f"pads is {list(pads)}, but should be {2 * len(named)} numbers: beginnings, then ends")
    begins, ends = [0] * rank, [0] * rank
    for place, axis in enumerate(named):
        begins[axis], ends[axis] = pads[place], pads[place + len(named)]
    padded = [axis for axis in range(rank) if begins[axis] or ends[axis]]
    first = min(padded, default=rank)
    last_first = tuple(each for axis in reversed(range(first, rank)) for each in (begins[axis], ends[axis]))
    mode = _PAD_MODES[attributes["mode"]] if padded else "constant"
    return Call(operator="pad", attributes={"pad": last_first, "mode": mode, "value": attributes["constant_value"]})


def _trilu(_: Specs, attributes: Attributes) -> Call:
    return Call(operator="triu" if attributes["upper"] else "tril", attributes={"diagonal": attributes["k"]})


def _gather(specs: Specs, attributes: Attributes) -> Call:
    """Rows of a matrix are embedding's."""
    rank = input_of(specs, "data").rank
    axis = axis_of(attributes["axis"], rank)
    if (rank, axis) == (2, 0):
        return Call(operator="embedding")
    if not given(specs, 1, "indices").rank:
        raise UnfitArguments(
            "indices is a scalar, which takes axis away; index_select keeps it, so give indices one dimension of 1"
        )
    return Call(operator="index_select", attributes={"dim": axis})


def _gather_elements(_: Specs, attributes: Attributes) -> Call:
    return Call(operator="gather", attributes={"dim": attributes["axis"]})


def _scatter_elements(_: Specs, attributes: Attributes) -> Call:
    refuse("reduction", attributes["reduction"], "add", "scatter_add adds up; the others are `op: torch.scatter`")
    return Call(operator="scatter_add", attributes={"dim": attributes["axis"]})


SPELLINGS = (
    Spelling(
        name="Transpose",
        operators=("permute",),
        signature="data -> transposed",
        meaning=_transpose,
        attributes=(
            Attribute(
                name="perm",
                type="ints",
                default=None,
                aliases=("dims",),
                description="The dimensions in their new order; none reverses them.",
            ),
        ),
    ),
    Spelling(
        name="Reshape",
        operators=("reshape",),
        signature="data -> reshaped",
        meaning=_reshape,
        attributes=(
            Attribute(name="shape", type="ints", description="The new sizes; one may be -1, and a 0 keeps the own."),
            flag("allowzero", 0, "A 0 is a size of 0."),
        ),
    ),
    Spelling(
        name="Flatten",
        operators=("reshape",),
        signature="input -> output",
        meaning=_flatten,
        attributes=(
            Attribute(name="axis", type="int", default=1, description="First dimension that goes into the second."),
        ),
    ),
    Spelling(
        name="Squeeze", operators=("reshape",), signature="data -> squeezed", meaning=_squeeze, attributes=(_AXES,)
    ),
    Spelling(
        name="Unsqueeze",
        operators=("reshape",),
        signature="data -> expanded",
        meaning=_unsqueeze,
        attributes=(Attribute(name="axes", type="ints", description="Places of the new dimensions in the result."),),
    ),
    Spelling(
        name="Expand",
        operators=("broadcast_to",),
        signature="input -> output",
        meaning=_expand,
        attributes=(
            Attribute(name="shape", type="ints", aliases=("size",), description="Broadcast with the input's own."),
        ),
    ),
    Spelling(
        name="Split",
        operators=("split",),
        signature="input -> *outputs",
        meaning=_split,
        attributes=(
            _AXIS,
            Attribute(name="split", type="ints", default=None, description="Size of each part."),
            Attribute(
                name="num_outputs", type="int", default=None, description="So many parts; the last may be smaller."
            ),
        ),
    ),
    Spelling(
        name="Pad",
        operators=("pad",),
        signature="data -> output",
        meaning=_pad,
        attributes=(
            Attribute(
                name="pads", type="ints", aliases=("pad",), description="Beginnings of every dimension, then ends."
            ),
            Attribute(
                name="mode",
                type="str",
                default="constant",
                choices=tuple(_PAD_MODES),
                description="What is added: constant_value, a reflection, the edge, or the other end.",
            ),
            Attribute(
                name="constant_value",
                type="float",
                default=0.0,
                aliases=("value",),
                description="What mode constant adds.",
            ),
            _AXES,
        ),
    ),
    Spelling(
        name="Trilu",
        operators=("triu", "tril"),
        signature="input -> output",
        meaning=_trilu,
        attributes=(
            flag("upper", 1, "The upper triangle stays, or else the lower."),
            Attribute(name="k", type="int", default=0, aliases=("diagonal",), description="Diagonal of the border."),
        ),
    ),
    Spelling(
        name="Gather",
        operators=("embedding", "index_select"),
        signature="data, indices -> output",
        meaning=_gather,
        attributes=(_AXIS,),
        description="Rows of a matrix (axis 0 of two dimensions) are embedding's; negative indices are refused.",
    ),
    Spelling(
        name="GatherElements",
        operators=("gather",),
        signature="data, indices -> output",
        meaning=_gather_elements,
        attributes=(_AXIS,),
        description="Negative indices are none of gather's.",
    ),
    Spelling(
        name="ScatterElements",
        operators=("scatter_add",),
        signature="data, indices, updates -> output",
        meaning=_scatter_elements,
        attributes=(
            _AXIS,
            Attribute(
                name="reduction",
                type="str",
                default="none",
                choices=("none", "add", "mul", "max", "min"),
                description="add alone.",
            ),
        ),
        description="Negative indices are none of scatter_add's.",
    ),
)
