"""Descriptors of the movement family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import (
    EVERY,
)
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_INFER = "optest.operators.movement.inference:infer_"
_REFERENCE = "optest.operators.movement.references:"
_TERMS = "optest.operators.movement.error_terms:"

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="transpose",
        category="movement",
        signature="input -> out",
        aliases=("Transpose",),
        attributes=(
            Attribute(name="dim0", type="int", description="First dimension to swap."),
            Attribute(name="dim1", type="int", description="Second dimension to swap."),
        ),
        dtype_variants=EVERY,
        infer=_INFER + "transpose",
        reference=_REFERENCE + "transpose_reference",
        rule=Rule(kind=RuleClass.MOVEMENT, source="elements move and never change"),
        description="Two dimensions swapped.",
    ),
)
