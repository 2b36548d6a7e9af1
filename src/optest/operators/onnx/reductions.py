"""Reductions of ONNX: by default they keep the reduced dimensions with size 1."""

from __future__ import annotations

from typing import Any

from optest.operators.describe import attribute
from optest.operators.onnx.spelling import input_of, refuse, refuse_bool, spelled
from optest.operators.shapes import Attributes, Shape, Specs, require_dimensions
from optest.spec import Call, UnfitArguments, format_shape

_AXES = attribute("axes|axis|dim: ints = None", "Dimensions to reduce; all by default.")
_KEEPDIMS = attribute("keepdims|keepdim: bool = True", "Keep reduced dimensions with size 1.")
_NOOP = attribute("noop_with_empty_axes: bool = False", "Refused if it is set and axes are left out.")


def _reduction(name: str, operator: str, **fixed: Any) -> None:
    """Add a spelling of a reduction; ``fixed`` are attributes that ONNX's name implies."""

    @spelled(name, operator, "data -> reduced", _AXES, _KEEPDIMS, _NOOP)
    def meaning(specs: Specs, attributes: Attributes) -> Call:
        axes = attributes["axes"]
        if not axes:
            reason = "without axes the result would be the input; write `op: clone` for that"
            refuse("noop_with_empty_axes", attributes["noop_with_empty_axes"], False, reason)
        data = input_of(specs, "data")
        if operator in ("sum", "prod"):
            refuse_bool(data, name, operator)
        if operator == "mean" and 0 in _reduced(data.shape, axes):
            raise UnfitArguments(
                f"data is {format_shape(data.shape)}, expected elements to reduce: in ONNX the mean of no elements is "
                "undefined; write `op: mean` to test torch's NaN"
            )
        # torch sums integers in int64, ONNX in their dtype.
        is_kept = operator in ("sum", "prod") and data.dtype.is_integer
        kept = {"dtype": data.dtype.name} if is_kept else {}
        common = {"dim": axes or None, "keepdim": attributes["keepdims"]}
        return Call(operator=operator, attributes={**common, **fixed, **kept})


def _reduced(shape: Shape, axes: tuple[int, ...] | None) -> Shape:
    """Return the sizes that are reduced, all of them without axes."""
    # Axes out of range are left to the operator, which refuses them.
    rank = len(shape)
    return tuple(shape[axis] for axis in axes if -rank <= axis < rank) if axes else shape


def _index_of(name: str, operator: str) -> None:
    """Add a spelling of argmax or argmin."""

    @spelled(
        name,
        operator,
        "data -> reduced",
        attribute("axis|dim: int = 0", "Dimension to reduce."),
        _KEEPDIMS,
        attribute("select_last_index: bool = False", "Only 0 is accepted."),
    )
    def meaning(_: Specs, attributes: Attributes) -> Call:
        refuse("select_last_index", attributes["select_last_index"], False, f"{operator} accepts any of equal elements")
        return Call(operator=operator, attributes={"dim": attributes["axis"], "keepdim": attributes["keepdims"]})


for _name, _operator in (
    ("ReduceSum", "sum"),
    ("ReduceMean", "mean"),
    ("ReduceProd", "prod"),
    ("ReduceMax", "amax"),
    ("ReduceMin", "amin"),
    ("ReduceLogSumExp", "logsumexp"),
):
    _reduction(_name, _operator)
_reduction("ReduceL1", "norm", p=1.0)
_reduction("ReduceL2", "norm", p=2.0)
_index_of("ArgMax", "argmax")
_index_of("ArgMin", "argmin")


@spelled(
    "CumSum",
    "cumsum",
    "x -> y",
    attribute("axis|dim: int", "Dimension of the sums."),
    attribute("exclusive: bool = False", "Each sum excludes its own element."),
    attribute("reverse: bool = False", "Sum from the end."),
)
def _cumsum(specs: Specs, attributes: Attributes) -> Call:
    x = input_of(specs, "x")
    require_dimensions(x, "x", 1)
    refuse_bool(x, "CumSum", "cumsum")
    kept = {"dtype": x.dtype.name} if x.dtype.is_integer else {}
    flags = {name: attributes[name] for name in ("exclusive", "reverse")}
    return Call(operator="cumsum", attributes={"dim": attributes["axis"], **flags, **kept})
