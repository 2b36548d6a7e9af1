"""The attributes and case sets that the reductions share."""

from __future__ import annotations

from optest.spec import Attribute

__all__ = ["DIMS", "EVERY_SET", "EXACT_SETS", "KEEPDIM", "ONE_DIM", "ONE_OR_MORE_DIMS", "TOTAL_DTYPE"]

DIMS = Attribute(
    name="dim",
    type="ints",
    default=None,
    aliases=("axis", "axes"),
    description="Dimensions to reduce; none means all.",
)
ONE_OR_MORE_DIMS = Attribute(
    name="dim",
    type="int|ints",
    default=None,
    aliases=("axis", "axes"),
    description="Dimension to reduce, or several, which torch's own function does not take; none means all.",
)
ONE_DIM = Attribute(
    name="dim",
    type="int",
    default=None,
    aliases=("axis",),
    description="Dimension to reduce; none means all.",
)
KEEPDIM = Attribute(
    name="keepdim",
    type="bool",
    default=False,
    aliases=("keepdims",),
    description="Keep reduced dimensions with size 1.",
)
TOTAL_DTYPE = Attribute(
    name="dtype",
    type="dtype",
    default=None,
    description="Convert the input to this dtype first; integers wrap in it.",
)

EXACT_SETS = ("ordinary", "dtypes", "layouts", "sizes", "special", "attributes", "long", "ties", "empty", "refused")
EVERY_SET = (
    "ordinary",
    "dtypes",
    "layouts",
    "sizes",
    "special",
    "attributes",
    "long",
    "integer-exact",
    "zero-mean",
    "empty",
    "refused",
)
