"""Normalizations of ONNX: the normalized dimensions begin at ``axis``, and parameters come before statistics."""

from __future__ import annotations

from optest.operators.describe import attribute
from optest.operators.onnx.spelling import axis_of, input_of, refuse, spelled
from optest.operators.shapes import Attributes, Specs, optional, require_dimensions
from optest.spec import Call, UnfitArguments

_EPSILON = attribute("epsilon|eps: float = 1e-05", "Added to variance.")
_AXIS = attribute("axis: int = -1", "First of the normalized dimensions.")
_STASH_TYPE = attribute("stash_type: int = 1", "It computes in float32 at least.", choices=(1,))
_NORMALIZED_SHAPE = attribute("normalized_shape: ints = None", "In place of axis: the last sizes of the input.")


_OVER_LAST = (_AXIS, _EPSILON, _STASH_TYPE, _NORMALIZED_SHAPE)


@spelled(
    "LayerNormalization",
    "layer_norm",
    "X, Scale?, B? -> Y",
    *_OVER_LAST,
    description="Mean and InvStdDev are no results here.",
)
def _layer_norm(specs: Specs, attributes: Attributes) -> Call:
    return _over_last("layer_norm", specs, attributes)


@spelled("RMSNormalization", "rms_norm", "X, scale? -> Y", *_OVER_LAST)
def _rms_norm(specs: Specs, attributes: Attributes) -> Call:
    spec, scale = input_of(specs), optional(specs, 1)
    require_dimensions(spec, "X", 1)
    if scale is not None and scale.dtype != spec.dtype:
        raise UnfitArguments(
            f"X is {spec.dtype} and scale {scale.dtype}, but should be alike: in ONNX Y is {scale.dtype}, as "
            f"scale, but rms_norm gives {spec.dtype}; state `op: rms_norm`"
        )
    return _over_last("rms_norm", specs, attributes)


def _over_last(operator: str, specs: Specs, attributes: Attributes) -> Call:
    spec = input_of(specs)
    require_dimensions(spec, "X", 1)
    shape = attributes["normalized_shape"] or spec.shape[axis_of(attributes["axis"], spec.rank) :]
    return Call(operator=operator, attributes={"normalized_shape": shape, "eps": attributes["epsilon"]})


@spelled(
    "BatchNormalization",
    "batch_norm",
    "X, scale, B, input_mean, input_var -> Y",
    _EPSILON,
    attribute("momentum: float = 0.9", "Of training alone."),
    attribute("training_mode: bool = False", "1 is refused."),
    inputs=(0, 3, 4, 1, 2),
)
def _batch_norm(_: Specs, attributes: Attributes) -> Call:
    reason = "its running statistics are results too, which `op: batch_norm` with `training: true` leaves out"
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
    """Every channel is a group of its own."""
    spec = input_of(specs, "input")
    require_dimensions(spec, "input", 2)
    return Call(operator="group_norm", attributes={"num_groups": spec.shape[1], "eps": attributes["epsilon"]})
