"""Elementwise operators and activations of ONNX."""

from __future__ import annotations

from optest.operators.describe import attribute
from optest.operators.onnx.spelling import input_of, refuse, refuse_bool, require_exact, spelled
from optest.operators.shapes import Attributes, Specs, promote_tensors, require_spec
from optest.spec import Call, Kind, UnfitArguments


@spelled("Div", "div", "A, B -> C", description="Quotients of integers are integers, rounded towards zero.")
def _div(specs: Specs, _: Attributes) -> Call:
    operands = input_of(specs, "A"), require_spec(specs, 1, "B")
    for operand in operands:
        refuse_bool(operand, "Div", "div")
    return Call(operator="div", attributes={"rounding_mode": "trunc" if promote_tensors(operands).is_integer else None})


@spelled("Pow", "pow", "X, Y -> Z", description="The result has the dtype of X; refused if torch's dtype is wider.")
def _pow(specs: Specs, _: Attributes) -> Call:
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
def _clip(specs: Specs, attributes: Attributes) -> Call:
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
def _softplus(_: Specs, __: Attributes) -> Call:
    # From 40 on, log(1 + exp(x)) is x, in float64, too: exp(-40) is less than an eighth of its last place.
    return Call(operator="softplus", attributes={"threshold": 40.0})


@spelled(
    "Mod",
    ("remainder", "fmod"),
    "A, B -> C",
    attribute("fmod: bool = False", "1: sign of the dividend. 0: sign of the divisor, for integers only."),
)
def _mod(specs: Specs, attributes: Attributes) -> Call:
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
def _cast(_: Specs, attributes: Attributes) -> Call:
    return Call(operator="cast", attributes={"dtype": attributes["to"], "saturate": attributes["saturate"]})


@spelled("Swish", "silu", "X -> Y", attribute("alpha: float = 1.0", "Only 1 is accepted."))
def _swish(_: Specs, attributes: Attributes) -> Call:
    refuse("alpha", attributes["alpha"], 1.0, "silu has no alpha")
    return Call(operator="silu")
