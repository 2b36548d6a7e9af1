"""Elementwise operators and activations of ONNX."""

from __future__ import annotations

from optest.operators.describe import attribute
from optest.operators.onnx.spelling import input_of, refuse, refuse_bool, require_exact, spelled
from optest.operators.shapes import Attributes, Specs, given, promote_tensors
from optest.spec import Call, Kind, UnfitArguments

_BEYOND_ROUNDING = 40.0
"""From here on log(1 + exp(x)) is x, in float64 too: exp(-40) is less than an eighth of its last place."""


@spelled("Div", "div", "A, B -> C", description="Integers give integers, rounded towards zero.")
def _div(specs: Specs, _: Attributes) -> Call:
    """Integers divide to integers, rounded towards zero."""
    both = input_of(specs, "A"), given(specs, 1, "B")
    for each in both:
        refuse_bool(each, "Div", "div")
    return Call(operator="div", attributes={"rounding_mode": "trunc" if promote_tensors(both).is_integer else None})


@spelled("Pow", "pow", "X, Y -> Z", description="The result has the dtype of X; where torch's is wider, it is refused.")
def _pow(specs: Specs, _: Attributes) -> Call:
    base, exponent = input_of(specs), given(specs, 1, "Y")
    if (promoted := promote_tensors((base, exponent))) != base.dtype:
        raise UnfitArguments(
            f"Pow of {base.dtype} and {exponent.dtype} gives {base.dtype} in ONNX, but pow gives {promoted}; "
            "state `op: pow`"
        )
    return Call(operator="pow")


@spelled(
    "Clip",
    "clip",
    "input -> output",
    attribute("min: float = None", "Lower bound; none is no bound."),
    attribute("max: float = None", "Upper bound; none is no bound, below min it wins."),
    description="Bounds of integers are whole numbers.",
)
def _clip(specs: Specs, attributes: Attributes) -> Call:
    for name in ("min", "max"):
        if attributes[name] is not None:
            require_exact(name, attributes[name], input_of(specs, "input"))
    if attributes["min"] is None and attributes["max"] is None:
        raise UnfitArguments("min and max are both left out, but one should be stated; without any it is `op: clone`")
    return Call(operator="clip", attributes=attributes)


@spelled(
    "Softplus",
    "softplus",
    "X -> Y",
    description="Without torch's threshold, beyond which float64 would show the difference.",
)
def _softplus(_: Specs, __: Attributes) -> Call:
    """torch's threshold of 20 would leave out what float64 still shows."""
    return Call(operator="softplus", attributes={"threshold": _BEYOND_ROUNDING})


@spelled(
    "Mod",
    ("remainder", "fmod"),
    "A, B -> C",
    attribute("fmod: bool = False", "1 has the sign of the dividend; 0 that of the divisor, of integers alone."),
)
def _mod(specs: Specs, attributes: Attributes) -> Call:
    if attributes["fmod"]:
        return Call(operator="fmod")
    if input_of(specs, "A").dtype.kind is Kind.FLOAT:
        raise UnfitArguments(
            "fmod is 0, but should be 1: ONNX takes 0 of integers alone; what has the sign of a float divisor is "
            "`op: remainder`"
        )
    return Call(operator="remainder")


@spelled(
    "Cast",
    "cast",
    "input -> output",
    attribute("to|dtype: dtype", "Dtype of the result, by its name."),
    attribute("saturate: bool = True", "float8 results stop at the largest finite value."),
)
def _cast(_: Specs, attributes: Attributes) -> Call:
    return Call(operator="cast", attributes={"dtype": attributes["to"], "saturate": attributes["saturate"]})


@spelled("Swish", "silu", "X -> Y", attribute("alpha: float = 1.0", "Any other than 1 is refused."))
def _swish(_: Specs, attributes: Attributes) -> Call:
    refuse("alpha", attributes["alpha"], 1.0, "silu has no other factor")
    return Call(operator="silu")
