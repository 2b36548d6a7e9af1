"""Movements and indexing of ONNX."""

from __future__ import annotations

from math import prod

from optest.operators.describe import attribute
from optest.operators.onnx.spelling import axis_of, input_of, refuse, require_exact, spelled
from optest.operators.shapes import Attributes, Specs, broadcast_shapes, given
from optest.spec import Call, UnfitArguments, format_shape

_AXIS = attribute("axis|dim: int = 0", "Dimension along which it works.")
_AXES = attribute("axes: ints = None", "Dimensions that it is about.")
PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@spelled(
    "Transpose",
    "permute",
    "data -> transposed",
    attribute("perm|dims: ints = None", "The dimensions in their new order; none reverses them."),
)
def _transpose(specs: Specs, attributes: Attributes) -> Call:
    rank = input_of(specs, "data").rank
    return Call(
        operator="permute",
        attributes={"dims": (*reversed(range(rank)),) if attributes["perm"] is None else attributes["perm"]},
    )


@spelled(
    "Reshape",
    "reshape",
    "data -> reshaped",
    attribute("shape: ints", "The new sizes; one may be -1, and a 0 keeps the own."),
    attribute("allowzero: bool = False", "A 0 is a size of 0."),
)
def _reshape(specs: Specs, attributes: Attributes) -> Call:
    """A 0 is the input's own size there, unless ``allowzero`` is 1."""
    spec, shape = input_of(specs, "data"), attributes["shape"]
    if not attributes["allowzero"]:
        if any(size == 0 and index >= spec.rank for index, size in enumerate(shape)):
            raise UnfitArguments(f"shape is {list(shape)}, but data {format_shape(spec.shape)} has no size for each 0")
        shape = tuple(size or spec.shape[index] for index, size in enumerate(shape))
    return Call(operator="reshape", attributes={"shape": shape})


@spelled(
    "Flatten", "reshape", "input -> output", attribute("axis: int = 1", "First dimension that goes into the second.")
)
def _flatten(specs: Specs, attributes: Attributes) -> Call:
    spec = input_of(specs, "input")
    axis = axis_of(attributes["axis"], spec.rank, last=0)
    return Call(operator="reshape", attributes={"shape": (prod(spec.shape[:axis]), prod(spec.shape[axis:]))})


@spelled("Squeeze", "reshape", "data -> squeezed", _AXES)
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


@spelled(
    "Unsqueeze", "reshape", "data -> expanded", attribute("axes: ints", "Places of the new dimensions in the result.")
)
def _unsqueeze(specs: Specs, attributes: Attributes) -> Call:
    spec, stated = input_of(specs, "data"), attributes["axes"]
    axes = {axis_of(axis, spec.rank + len(stated), "axes") for axis in stated}
    if len(axes) < len(stated):
        raise UnfitArguments(f"axes is {list(stated)}, but should name each axis once")
    own = iter(spec.shape)
    shape = tuple(1 if index in axes else next(own) for index in range(spec.rank + len(axes)))
    return Call(operator="reshape", attributes={"shape": shape})


@spelled("Expand", "broadcast_to", "input -> output", attribute("shape|size: ints", "Broadcast with the input's own."))
def _expand(specs: Specs, attributes: Attributes) -> Call:
    """A 1 in ``shape`` keeps the input's own size."""
    if min(attributes["shape"], default=0) < 0:
        raise UnfitArguments(f"shape is {list(attributes['shape'])}, but should be numbers of 0 or more")
    shape = broadcast_shapes(input_of(specs, "input").shape, attributes["shape"])
    return Call(operator="broadcast_to", attributes={"size": shape})


@spelled(
    "Split",
    "split",
    "input -> *outputs",
    _AXIS,
    attribute("split: ints = None", "Size of each part."),
    attribute("num_outputs: int = None", "So many parts; the last may be smaller."),
)
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


@spelled(
    "Pad",
    "pad",
    "data -> output",
    attribute("pads|pad: ints", "Beginnings of every dimension, then ends."),
    attribute(
        "mode: str = 'constant'",
        "What is added: constant_value, a reflection, the edge, or the other end.",
        choices=tuple(PAD_MODES),
    ),
    attribute("constant_value|value: float = 0.0", "What mode constant adds."),
    _AXES,
)
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
    mode = PAD_MODES[attributes["mode"]] if padded else "constant"
    return Call(operator="pad", attributes={"pad": last_first, "mode": mode, "value": attributes["constant_value"]})


@spelled(
    "Trilu",
    ("triu", "tril"),
    "input -> output",
    attribute("upper: bool = True", "The upper triangle stays, or else the lower."),
    attribute("k|diagonal: int = 0", "Diagonal of the border."),
)
def _trilu(_: Specs, attributes: Attributes) -> Call:
    return Call(operator="triu" if attributes["upper"] else "tril", attributes={"diagonal": attributes["k"]})


@spelled(
    "Gather",
    ("embedding", "index_select"),
    "data, indices -> output",
    _AXIS,
    description="Rows of a matrix (axis 0 of two dimensions) are embedding's; negative indices are refused.",
)
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


@spelled(
    "GatherElements", "gather", "data, indices -> output", _AXIS, description="Negative indices are none of gather's."
)
def _gather_elements(_: Specs, attributes: Attributes) -> Call:
    return Call(operator="gather", attributes={"dim": attributes["axis"]})


@spelled(
    "ScatterElements",
    "scatter_add",
    "data, indices, updates -> output",
    _AXIS,
    attribute("reduction: str = 'none'", "add alone.", choices=("none", "add", "mul", "max", "min")),
    description="Negative indices are none of scatter_add's.",
)
def _scatter_elements(_: Specs, attributes: Attributes) -> Call:
    refuse("reduction", attributes["reduction"], "add", "scatter_add adds up; the others are `op: torch.scatter`")
    return Call(operator="scatter_add", attributes={"dim": attributes["axis"]})
