"""Descriptors of the movement family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.movement.descriptors_parts import PARTS
from optest.operators.variants import EVERY
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_INFER = "optest.operators.movement.inference:infer_"
_REFERENCE = "optest.operators.movement.references:"
_SAMPLES = "optest.operators.movement.case_sets:"

_RULE = Rule(kind=RuleClass.MOVEMENT, source="elements move and never change")
_FILLED = Rule(kind=RuleClass.MOVEMENT, source="one value everywhere, whatever stood in the input")
_SETS = ("ordinary", "dtypes", "layouts", "sizes", "special", "attributes", "refused")
_DIAGONAL = Attribute(
    name="diagonal", type="int", default=0, description="Diagonal that is the border; positive ones lie above the main."
)

WHOLE: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="transpose",
        category="movement",
        signature="input -> out",
        attributes=(
            Attribute(name="dim0", type="int", description="First dimension to swap."),
            Attribute(name="dim1", type="int", description="Second dimension to swap."),
        ),
        dtype_variants=EVERY,
        infer=_INFER + "transpose",
        reference=_REFERENCE + "transpose_reference",
        samples=_SAMPLES + "transpose_samples",
        case_sets=_SETS,
        rule=_RULE,
        description="Two dimensions swapped.",
    ),
    OperatorDescriptor(
        name="permute",
        category="movement",
        signature="input -> out",
        attributes=(
            Attribute(
                name="dims", type="ints", aliases=("perm",), description="The input's dimensions in their new order."
            ),
        ),
        dtype_variants=EVERY,
        infer=_INFER + "permute",
        reference=_REFERENCE + "permute_reference",
        samples=_SAMPLES + "permute_samples",
        case_sets=_SETS,
        rule=_RULE,
        description="All dimensions in another order.",
    ),
    OperatorDescriptor(
        name="reshape",
        category="movement",
        signature="input -> out",
        attributes=(Attribute(name="shape", type="ints", description="The new sizes; one may be -1 and follows."),),
        dtype_variants=EVERY,
        infer=_INFER + "reshape",
        reference=_REFERENCE + "reshape_reference",
        samples=_SAMPLES + "reshape_samples",
        case_sets=_SETS,
        rule=_RULE,
        description="The elements in row-major order, in another shape. A size of 0 is 0, as with ONNX's allowzero.",
    ),
    OperatorDescriptor(
        name="broadcast_to",
        category="movement",
        signature="input -> out",
        aliases=("expand",),
        attributes=(
            Attribute(name="size", type="ints", aliases=("shape",), description="The new sizes; -1 keeps the own."),
        ),
        dtype_variants=EVERY,
        infer=_INFER + "broadcast_to",
        reference=_REFERENCE + "broadcast_to_reference",
        samples=_SAMPLES + "broadcast_to_samples",
        case_sets=_SETS,
        rule=_RULE,
        description="Sizes of 1 repeated, and new dimensions in front; one-way, unlike ONNX Expand.",
    ),
    OperatorDescriptor(
        name="tile",
        category="movement",
        signature="input -> out",
        aliases=("Tile",),
        attributes=(
            Attribute(name="dims", type="ints", aliases=("repeats",), description="How often each dimension repeats."),
        ),
        dtype_variants=EVERY,
        infer=_INFER + "tile",
        reference=_REFERENCE + "tile_reference",
        samples=_SAMPLES + "tile_samples",
        case_sets=_SETS,
        rule=_RULE,
        description="The whole tensor repeated; the shorter of shape and dims is preceded by ones.",
    ),
    OperatorDescriptor(
        name="flip",
        category="movement",
        signature="input -> out",
        attributes=(Attribute(name="dims", type="ints", description="Dimensions to reverse."),),
        dtype_variants=EVERY,
        infer=_INFER + "flip",
        reference=_REFERENCE + "flip_reference",
        samples=_SAMPLES + "flip_samples",
        case_sets=_SETS,
        rule=_RULE,
        description="Dimensions reversed.",
    ),
    OperatorDescriptor(
        name="roll",
        category="movement",
        signature="input -> out",
        attributes=(
            Attribute(name="shifts", type="ints", description="Places by which elements move towards the end."),
            Attribute(
                name="dims",
                type="ints",
                default=None,
                description="Dimension of each shift; without any, the tensor rolls as if it were flat.",
            ),
        ),
        dtype_variants=EVERY,
        infer=_INFER + "roll",
        reference=_REFERENCE + "roll_reference",
        samples=_SAMPLES + "roll_samples",
        case_sets=_SETS,
        rule=_RULE,
        description="Elements shifted; what leaves at one end comes back at the other.",
    ),
    OperatorDescriptor(
        name="tril",
        category="movement",
        signature="input -> out",
        attributes=(_DIAGONAL,),
        dtype_variants=EVERY,
        infer=_INFER + "tril",
        reference=_REFERENCE + "tril_reference",
        samples=_SAMPLES + "tril_samples",
        case_sets=_SETS,
        rule=_RULE,
        description="The lower triangle of the last two dimensions; +0 above it, whatever stood there.",
    ),
    OperatorDescriptor(
        name="triu",
        category="movement",
        signature="input -> out",
        attributes=(_DIAGONAL,),
        dtype_variants=EVERY,
        infer=_INFER + "triu",
        reference=_REFERENCE + "triu_reference",
        samples=_SAMPLES + "triu_samples",
        case_sets=_SETS,
        rule=_RULE,
        description="The upper triangle of the last two dimensions; +0 below it, whatever stood there.",
    ),
)

COPIES: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="clone",
        category="movement",
        signature="input -> out",
        aliases=("rearrange", "contiguous", "Identity"),
        dtype_variants=EVERY,
        infer=_INFER + "same",
        reference=_REFERENCE + "clone_reference",
        samples=_SAMPLES + "clone_samples",
        case_sets=_SETS[:5],
        rule=_RULE,
        description="A copy, from one layout in memory to another; dense unless the backend is asked for another.",
    ),
    OperatorDescriptor(
        name="zeros_like",
        category="movement",
        signature="input -> out",
        aliases=("zeros",),
        dtype_variants=EVERY,
        infer=_INFER + "same",
        reference=_REFERENCE + "zeros_like_reference",
        samples=_SAMPLES + "like_samples",
        case_sets=_SETS[:5],
        rule=_FILLED,
        description="+0 in the shape and dtype of input, whose elements are not read.",
    ),
    OperatorDescriptor(
        name="ones_like",
        category="movement",
        signature="input -> out",
        aliases=("ones",),
        dtype_variants=EVERY,
        infer=_INFER + "same",
        reference=_REFERENCE + "ones_like_reference",
        samples=_SAMPLES + "like_samples",
        case_sets=_SETS[:5],
        rule=_FILLED,
        description="1 in the shape and dtype of input, whose elements are not read.",
    ),
)

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (*WHOLE, *PARTS, *COPIES)
