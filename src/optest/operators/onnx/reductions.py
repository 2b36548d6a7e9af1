"""Reductions of ONNX: they keep the reduced dimensions, with size 1, unless they are told otherwise."""

from __future__ import annotations

from typing import Any

from optest.operators.onnx.reading import flag, input_of, refuse, refuse_bool, require_dimensions
from optest.operators.shapes import Attributes, Shape, Specs
from optest.spec import Attribute, Call, Spelling, UnfitArguments, format_shape

__all__ = ["SPELLINGS"]

_AXES = Attribute(
    name="axes",
    type="ints",
    default=None,
    aliases=("axis", "dim"),
    description="Dimensions to reduce; none means all.",
)
_KEEPDIMS = flag("keepdims", 1, "Keep reduced dimensions with size 1.", "keepdim")
_NOOP = flag("noop_with_empty_axes", 0, "1 is refused where axes are left out.")


def _reduction(name: str, operator: str, **fixed: Any) -> Spelling:
    """The same reduction under ONNX's name; ``fixed`` are attributes of the operator that the name stands for."""

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
        return Call(
            operator=operator,
            attributes={
                "dim": axes or None,
                "keepdim": attributes["keepdims"],
                **fixed,
                **kept,
            },
        )

    return Spelling(
        name=name,
        operators=(operator,),
        signature="data -> reduced",
        meaning=meaning,
        attributes=(_AXES, _KEEPDIMS, _NOOP),
    )


def _reduced(shape: Shape, axes: tuple[int, ...] | None) -> Shape:
    """The sizes that are reduced; axes that there are not are the operator's to refuse."""
    rank = len(shape)
    return tuple(shape[axis] for axis in axes if -rank <= axis < rank) if axes else shape


def _index_of(name: str, operator: str) -> Spelling:
    def meaning(_: Specs, attributes: Attributes) -> Call:
        refuse("select_last_index", attributes["select_last_index"], False, "any of several equal elements is right")
        return Call(operator=operator, attributes={"dim": attributes["axis"], "keepdim": attributes["keepdims"]})

    return Spelling(
        name=name,
        operators=(operator,),
        signature="data -> reduced",
        meaning=meaning,
        attributes=(
            Attribute(name="axis", type="int", default=0, aliases=("dim",), description="Dimension to reduce."),
            _KEEPDIMS,
            flag("select_last_index", 0, "1 is refused."),
        ),
    )


def _cumsum(specs: Specs, attributes: Attributes) -> Call:
    x = input_of(specs, "x")
    require_dimensions(x, "x", 1)
    refuse_bool(x, "CumSum", "cumsum")
    dtype = x.dtype
    kept = {"dtype": dtype.name} if dtype.is_integer else {}
    ways = {name: attributes[name] for name in ("exclusive", "reverse")}
    return Call(operator="cumsum", attributes={"dim": attributes["axis"], **ways, **kept})


SPELLINGS = (
    _reduction("ReduceSum", "sum"),
    _reduction("ReduceMean", "mean"),
    _reduction("ReduceProd", "prod"),
    _reduction("ReduceMax", "amax"),
    _reduction("ReduceMin", "amin"),
    _reduction("ReduceL1", "norm", p=1.0),
    _reduction("ReduceL2", "norm", p=2.0),
    _reduction("ReduceLogSumExp", "logsumexp"),
    _index_of("ArgMax", "argmax"),
    _index_of("ArgMin", "argmin"),
    Spelling(
        name="CumSum",
        operators=("cumsum",),
        signature="x -> y",
        meaning=_cumsum,
        attributes=(
            Attribute(name="axis", type="int", aliases=("dim",), description="Dimension along which it adds up."),
            flag("exclusive", 0, "Add up to each element without it."),
            flag("reverse", 0, "Add up from the end."),
        ),
    ),
)
