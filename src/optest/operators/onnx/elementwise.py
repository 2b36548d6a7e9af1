"""Elementwise operators and activations of ONNX."""

from __future__ import annotations

from optest.operators.onnx.reading import flag, refuse
from optest.operators.shapes import Attributes, Specs
from optest.spec import Attribute, Call, Spelling

__all__ = ["SPELLINGS"]


def _mod(_: Specs, attributes: Attributes) -> Call:
    refuse("fmod", attributes["fmod"], False, "the sign of the dividend is that of `op: torch.fmod`")
    return Call(operator="remainder")


def _cast(_: Specs, attributes: Attributes) -> Call:
    return Call(operator="cast", attributes={"dtype": attributes["to"], "saturate": attributes["saturate"]})


def _swish(_: Specs, attributes: Attributes) -> Call:
    refuse("alpha", attributes["alpha"], 1.0, "silu has no other factor")
    return Call(operator="silu")


SPELLINGS = (
    Spelling(
        name="Mod",
        operators=("remainder",),
        signature="A, B -> C",
        meaning=_mod,
        attributes=(flag("fmod", 0, "1 is refused: `torch.fmod` has the sign of the dividend."),),
    ),
    Spelling(
        name="Cast",
        operators=("cast",),
        signature="input -> output",
        meaning=_cast,
        attributes=(
            Attribute(name="to", type="dtype", aliases=("dtype",), description="Dtype of the result, by its name."),
            flag("saturate", 1, "float8 results stop at the largest finite value."),
        ),
    ),
    Spelling(
        name="Swish",
        operators=("silu",),
        signature="X -> Y",
        meaning=_swish,
        attributes=(Attribute(name="alpha", type="float", default=1.0, description="Any other than 1 is refused."),),
    ),
)
