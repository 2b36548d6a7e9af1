"""Normalizations of ONNX: the normalized dimensions begin at ``axis``, and parameters come before statistics."""

from __future__ import annotations

from typing import Any

from optest.operators.onnx.reading import axis_of, flag, input_of, refuse, require_dimensions
from optest.operators.shapes import Attributes, Specs
from optest.spec import Attribute, Call, Spelling, UnfitArguments

__all__ = ["SPELLINGS"]

_EPSILON = Attribute(name="epsilon", type="float", default=1e-5, aliases=("eps",), description="Added to variance.")
_AXIS = Attribute(name="axis", type="int", default=-1, description="First of the normalized dimensions.")
_STASH_TYPE = Attribute(
    name="stash_type", type="int", default=1, choices=(1,), description="It computes in float32 at least."
)
_NORMALIZED_SHAPE = Attribute(
    name="normalized_shape", type="ints", default=None, description="In place of axis: the last sizes of the input."
)


def _over_last(operator: str) -> Any:
    def meaning(specs: Specs, attributes: Attributes) -> Call:
        spec = input_of(specs)
        require_dimensions(spec, "X", 1)
        scale = specs[1] if len(specs) > 1 else None
        if operator == "rms_norm" and scale is not None and scale.dtype != spec.dtype:
            raise UnfitArguments(
                f"X is {spec.dtype} and scale {scale.dtype}, but should be alike: in ONNX Y is {scale.dtype}, as "
                f"scale, but rms_norm gives {spec.dtype}; state `op: rms_norm`"
            )
        shape = attributes["normalized_shape"] or spec.shape[axis_of(attributes["axis"], spec.rank) :]
        return Call(operator=operator, attributes={"normalized_shape": shape, "eps": attributes["epsilon"]})

    return meaning


def _batch_norm(_: Specs, attributes: Attributes) -> Call:
    reason = "its running statistics are results too, which `op: batch_norm` with `training: true` leaves out"
    refuse("training_mode", attributes["training_mode"], False, reason)
    return Call(operator="batch_norm", attributes={"eps": attributes["epsilon"]})


def _instance_norm(specs: Specs, attributes: Attributes) -> Call:
    """Every channel is a group of its own."""
    spec = input_of(specs, "input")
    require_dimensions(spec, "input", 2)
    return Call(operator="group_norm", attributes={"num_groups": spec.shape[1], "eps": attributes["epsilon"]})


SPELLINGS = (
    Spelling(
        name="LayerNormalization",
        operators=("layer_norm",),
        signature="X, Scale?, B? -> Y",
        meaning=_over_last("layer_norm"),
        attributes=(_AXIS, _EPSILON, _STASH_TYPE, _NORMALIZED_SHAPE),
        description="Mean and InvStdDev are no results here.",
    ),
    Spelling(
        name="RMSNormalization",
        operators=("rms_norm",),
        signature="X, scale? -> Y",
        meaning=_over_last("rms_norm"),
        attributes=(_AXIS, _EPSILON, _STASH_TYPE, _NORMALIZED_SHAPE),
    ),
    Spelling(
        name="BatchNormalization",
        operators=("batch_norm",),
        signature="X, scale, B, input_mean, input_var -> Y",
        inputs=(0, 3, 4, 1, 2),
        meaning=_batch_norm,
        attributes=(
            _EPSILON,
            Attribute(name="momentum", type="float", default=0.9, description="Of training alone."),
            flag("training_mode", 0, "1 is refused."),
        ),
    ),
    Spelling(
        name="InstanceNormalization",
        operators=("group_norm",),
        signature="input, scale, B -> output",
        meaning=_instance_norm,
        attributes=(_EPSILON,),
        description="One group for each channel.",
    ),
)
