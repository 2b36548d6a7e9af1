"""Normalizations of ONNX: the normalized dimensions begin at ``axis``, and parameters precede statistics."""

from __future__ import annotations

from optest.operators.describe import attribute
from optest.operators.onnx.spelling import axis_of, input_of, refuse, spelled
from optest.operators.shapes import Attributes, Specs, optional_input, require_dimensions
from optest.spec import Call, UnfitArguments

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
def _layer_norm(specs: Specs, attributes: Attributes) -> Call:
    return _over_last("layer_norm", specs, attributes)


@spelled("RMSNormalization", "rms_norm", "X, scale? -> Y", *_OVER_LAST)
def _rms_norm(specs: Specs, attributes: Attributes) -> Call:
    spec, scale = input_of(specs), optional_input(specs, 1)
    require_dimensions(spec, "X", 1)
    if scale is not None and scale.dtype != spec.dtype:
        raise UnfitArguments(
            f"X is {spec.dtype} and scale {scale.dtype}, expected one dtype: in ONNX Y is {scale.dtype}, as scale, but "
            f"rms_norm returns {spec.dtype}; write `op: rms_norm` to test torch's"
        )
    return _over_last("rms_norm", specs, attributes)


def _over_last(operator: str, specs: Specs, attributes: Attributes) -> Call:
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
def _batch_norm(_: Specs, attributes: Attributes) -> Call:
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
def _instance_norm(specs: Specs, attributes: Attributes) -> Call:
    spec = input_of(specs, "input")
    require_dimensions(spec, "input", 2)
    return Call(operator="group_norm", attributes={"num_groups": spec.shape[1], "eps": attributes["epsilon"]})
