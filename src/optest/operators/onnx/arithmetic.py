"""Elementwise operators, activations, reductions and normalizations of ONNX.

By default reductions keep the reduced dimensions with size 1. Normalized dimensions begin at ``axis``, and parameters
precede statistics.
"""

from __future__ import annotations

from typing import Any

from optest.operators.describe import attribute
from optest.operators.onnx.spelling import axis_of, input_of, refuse, refuse_onnx_bool, require_exact, spelled
from optest.operators.shapes import (
    Attributes,
    Specs,
    optional_spec,
    promote_tensors,
    require_dimensions,
    require_spec,
)
from optest.spec import Call, Kind, UnfitArguments, format_shape


@spelled("Div", "div", "A, B -> C", description="Quotients of integers are integers, rounded towards zero.")
def _div_call(specs: Specs, _: Attributes) -> Call:
    operands = input_of(specs, "A"), require_spec(specs, 1, "B")
    for operand in operands:
        refuse_onnx_bool(operand, "Div", "div")
    return Call(operator="div", attributes={"rounding_mode": "trunc" if promote_tensors(operands).is_integer else None})


@spelled("Pow", "pow", "X, Y -> Z", description="The result has the dtype of X; refused if torch's dtype is wider.")
def _pow_call(specs: Specs, _: Attributes) -> Call:
    base, exponent = input_of(specs), require_spec(specs, 1, "Y")
    if (promoted := promote_tensors((base, exponent))) != base.dtype:
        raise UnfitArguments(
            f"Pow of {base.dtype} and {exponent.dtype} returns {base.dtype} in ONNX, but pow returns {promoted}: write "
            "`op: pow` to test torch's"
        )
    return Call(operator="pow")


@spelled(
    "Clip",
    "clip",
    "input -> output",
    attribute("min: float = None", "Lower bound."),
    attribute("max: float = None", "Upper bound; the result if it is below min."),
    description="Bounds of integer tensors are integers.",
)
def _clip_call(specs: Specs, attributes: Attributes) -> Call:
    for name in ("min", "max"):
        if attributes[name] is not None:
            require_exact(name, attributes[name], input_of(specs, "input"))
    if attributes["min"] is None and attributes["max"] is None:
        raise UnfitArguments("min and max are missing, expected one or both; without bounds write `op: clone`")
    return Call(operator="clip", attributes=attributes)


@spelled(
    "Softplus",
    "softplus",
    "X -> Y",
    description="log(1 + exp(X)) without torch's threshold of 20, whose effect is visible in float64.",
)
def _softplus_call(_: Specs, __: Attributes) -> Call:
    # From 40 on, log(1 + exp(x)) is x, in float64, too: exp(-40) is less than an eighth of its last place.
    return Call(operator="softplus", attributes={"threshold": 40.0})


@spelled(
    "Mod",
    ("remainder", "fmod"),
    "A, B -> C",
    attribute("fmod: bool = False", "1: sign of the dividend. 0: sign of the divisor, for integers only."),
)
def _mod_call(specs: Specs, attributes: Attributes) -> Call:
    if attributes["fmod"]:
        return Call(operator="fmod")
    if input_of(specs, "A").dtype.kind is Kind.FLOAT:
        raise UnfitArguments(
            "fmod is 0, expected 1 for floats: ONNX accepts 0 for integers only; for the sign of the divisor write "
            "`op: remainder`"
        )
    return Call(operator="remainder")


@spelled(
    "Cast",
    "cast",
    "input -> output",
    attribute("to|dtype: dtype", "Name of the result's dtype."),
    attribute("saturate: bool = True", "Clamp float8 results to the largest finite value."),
)
def _cast_call(_: Specs, attributes: Attributes) -> Call:
    return Call(operator="cast", attributes={"dtype": attributes["to"], "saturate": attributes["saturate"]})


@spelled("Swish", "silu", "X -> Y", attribute("alpha: float = 1.0", "Only 1 is accepted."))
def _swish_call(_: Specs, attributes: Attributes) -> Call:
    refuse("alpha", attributes["alpha"], 1.0, "silu has no alpha")
    return Call(operator="silu")


# Reductions

_AXES = attribute("axes|axis|dim: ints = None", "Dimensions to reduce; all by default.")
_KEEPDIMS = attribute("keepdims|keepdim: bool = True", "Keep reduced dimensions with size 1.")
_NOOP = attribute("noop_with_empty_axes: bool = False", "Refused if it is set and axes are left out.")


def _add_reduction(name: str, operator: str, **fixed: Any) -> None:
    """Add a spelling of a reduction; ``fixed`` are attributes that ONNX's name implies."""

    @spelled(name, operator, "data -> reduced", _AXES, _KEEPDIMS, _NOOP)
    def meaning(specs: Specs, attributes: Attributes) -> Call:
        axes = attributes["axes"]
        if not axes:
            reason = "without axes the result would be the input; write `op: clone` for that"
            refuse("noop_with_empty_axes", attributes["noop_with_empty_axes"], False, reason)
        data = input_of(specs, "data")
        if operator in ("sum", "prod"):
            refuse_onnx_bool(data, name, operator)
        # Axes out of range are left to the operator, which refuses them.
        sizes = [data.shape[axis] for axis in axes if -data.rank <= axis < data.rank] if axes else data.shape
        if operator == "mean" and 0 in sizes:
            raise UnfitArguments(
                f"data is {format_shape(data.shape)}, expected elements to reduce: in ONNX the mean of no elements is "
                "undefined; write `op: mean` to test torch's NaN"
            )
        # torch sums integers in int64, ONNX in their dtype.
        is_kept = operator in ("sum", "prod") and data.dtype.is_integer
        kept = {"dtype": data.dtype.name} if is_kept else {}
        common = {"dim": axes or None, "keepdim": attributes["keepdims"]}
        return Call(operator=operator, attributes={**common, **fixed, **kept})


def _add_index_of_extreme(name: str, operator: str) -> None:
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
    _add_reduction(_name, _operator)
_add_reduction("ReduceL1", "norm", p=1.0)
_add_reduction("ReduceL2", "norm", p=2.0)
_add_index_of_extreme("ArgMax", "argmax")
_add_index_of_extreme("ArgMin", "argmin")


@spelled(
    "CumSum",
    "cumsum",
    "x -> y",
    attribute("axis|dim: int", "Dimension of the sums."),
    attribute("exclusive: bool = False", "Each sum excludes its own element."),
    attribute("reverse: bool = False", "Sum from the end."),
)
def _cumsum_call(specs: Specs, attributes: Attributes) -> Call:
    x = input_of(specs, "x")
    require_dimensions(x, "x", 1)
    refuse_onnx_bool(x, "CumSum", "cumsum")
    kept = {"dtype": x.dtype.name} if x.dtype.is_integer else {}
    flags = {name: attributes[name] for name in ("exclusive", "reverse")}
    return Call(operator="cumsum", attributes={"dim": attributes["axis"], **flags, **kept})


# Normalizations

_EPSILON = attribute("epsilon|eps: float = 1e-05", "Added to the variance.")
_OVER_LAST = (
    attribute("axis: int = -1", "First of the normalized dimensions."),
    _EPSILON,
    attribute("stash_type: int = 1", "1: compute in float32 at least.", choices=(1,)),
    attribute("normalized_shape: ints = None", "In place of axis: the last sizes of the input."),
)


@spelled(
    "LayerNormalization",
    "layer_norm",
    "X, Scale?, B? -> Y",
    *_OVER_LAST,
    description="The outputs Mean and InvStdDev are not supported.",
)
def _layer_norm_call(specs: Specs, attributes: Attributes) -> Call:
    return _over_last_call("layer_norm", specs, attributes)


@spelled("RMSNormalization", "rms_norm", "X, scale? -> Y", *_OVER_LAST)
def _rms_norm_call(specs: Specs, attributes: Attributes) -> Call:
    spec, scale = input_of(specs), optional_spec(specs, 1)
    require_dimensions(spec, "X", 1)
    if scale is not None and scale.dtype != spec.dtype:
        raise UnfitArguments(
            f"X is {spec.dtype} and scale {scale.dtype}, expected one dtype: in ONNX Y is {scale.dtype}, as scale, but "
            f"rms_norm returns {spec.dtype}; write `op: rms_norm` to test torch's"
        )
    return _over_last_call("rms_norm", specs, attributes)


def _over_last_call(operator: str, specs: Specs, attributes: Attributes) -> Call:
    """Return a call that normalizes over the dimensions from ``axis`` on, or over ``normalized_shape``."""
    spec = input_of(specs)
    require_dimensions(spec, "X", 1)
    shape = attributes["normalized_shape"] or spec.shape[axis_of(attributes["axis"], spec.rank) :]
    return Call(operator=operator, attributes={"normalized_shape": shape, "eps": attributes["epsilon"]})


@spelled(
    "BatchNormalization",
    "batch_norm",
    "X, scale, B, input_mean, input_var -> Y",
    _EPSILON,
    attribute("momentum: float = 0.9", "For training only."),
    attribute("training_mode: bool = False", "Only 0 is accepted."),
    inputs=(0, 3, 4, 1, 2),
)
def _batch_norm_call(_: Specs, attributes: Attributes) -> Call:
    reason = "with 1 ONNX also returns running statistics; `op: batch_norm` with `training: true` does not"
    refuse("training_mode", attributes["training_mode"], False, reason)
    return Call(operator="batch_norm", attributes={"eps": attributes["epsilon"]})


@spelled(
    "InstanceNormalization",
    "group_norm",
    "input, scale, B -> output",
    _EPSILON,
    description="One group for each channel.",
)
def _instance_norm_call(specs: Specs, attributes: Attributes) -> Call:
    spec = input_of(specs, "input")
    require_dimensions(spec, "input", 2)
    return Call(operator="group_norm", attributes={"num_groups": spec.shape[1], "eps": attributes["epsilon"]})
