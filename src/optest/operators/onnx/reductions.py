"""Reductions of ONNX: they keep the reduced dimensions, with size 1, unless they are told otherwise."""

from __future__ import annotations

from typing import Any

from optest.operators.describe import attribute
from optest.operators.onnx.spelling import input_of, refuse, refuse_bool, spelled
from optest.operators.shapes import Attributes, Shape, Specs, require_dimensions
from optest.spec import Call, UnfitArguments, format_shape

_AXES = attribute("axes|axis|dim: ints = None", "Dimensions to reduce; none means all.")
_KEEPDIMS = attribute("keepdims|keepdim: bool = True", "Keep reduced dimensions with size 1.")
_NOOP = attribute("noop_with_empty_axes: bool = False", "1 is refused where axes are left out.")


def _reduction(name: str, operator: str, **fixed: Any) -> None:
    """The same reduction under ONNX's name; ``fixed`` are attributes of the operator that the name stands for."""

    @spelled(name, operator, "data -> reduced", _AXES, _KEEPDIMS, _NOOP)
    def meaning(specs: Specs, attributes: Attributes) -> Call:
        axes = attributes["axes"]
        if not axes:
            reason = "with no axes it would give its input back, which is `op: clone`"
            refuse("noop_with_empty_axes", attributes["noop_with_empty_axes"], False, reason)
        data = input_of(specs, "data")
        if operator in ("sum", "prod"):
            refuse_bool(data, name, operator)
        if operator == "mean" and 0 in _reduced(data.shape, axes):
            raise UnfitArguments(
                f"data is {format_shape(data.shape)}, but should have elements to reduce: ONNX leaves the mean of none "
                "undefined; torch's NaN is that of `op: mean`"
            )
        dtype = data.dtype
        kept = {"dtype": dtype.name} if operator in ("sum", "prod") and dtype.is_integer else {}
        stated = {"dim": axes or None, "keepdim": attributes["keepdims"]}
        return Call(operator=operator, attributes={**stated, **fixed, **kept})


def _reduced(shape: Shape, axes: tuple[int, ...] | None) -> Shape:
    """The sizes that are reduced; axes that there are not are the operator's to refuse."""
    rank = len(shape)
    return tuple(shape[axis] for axis in axes if -rank <= axis < rank) if axes else shape


def _index_of(name: str, operator: str) -> None:
    @spelled(
        name,
        operator,
        "data -> reduced",
        attribute("axis|dim: int = 0", "Dimension to reduce."),
        _KEEPDIMS,
        attribute("select_last_index: bool = False", "1 is refused."),
    )
    def meaning(_: Specs, attributes: Attributes) -> Call:
        refuse("select_last_index", attributes["select_last_index"], False, "any of several equal elements is right")
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
    attribute("axis|dim: int", "Dimension along which it adds up."),
    attribute("exclusive: bool = False", "Add up to each element without it."),
    attribute("reverse: bool = False", "Add up from the end."),
)
def _cumsum(specs: Specs, attributes: Attributes) -> Call:
    x = input_of(specs, "x")
    require_dimensions(x, "x", 1)
    refuse_bool(x, "CumSum", "cumsum")
    dtype = x.dtype
    kept = {"dtype": dtype.name} if dtype.is_integer else {}
    ways = {name: attributes[name] for name in ("exclusive", "reverse")}
    return Call(operator="cumsum", attributes={"dim": attributes["axis"], **ways, **kept})
