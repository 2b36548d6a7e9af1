"""Descriptors of the operators that join, cut and extend tensors."""

from __future__ import annotations

from optest.operators.variants import EVERY, MIXED
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["PARTS"]

_INFER = "optest.operators.movement.inference_parts:infer_"
_REFERENCE = "optest.operators.movement.references:"
_SAMPLES = "optest.operators.movement.case_sets_parts:"

_RULE = Rule(kind=RuleClass.MOVEMENT, source="elements move and never change")
_SETS = ("ordinary", "dtypes", "layouts", "sizes", "special", "attributes", "refused")
_FIRST_DIM = Attribute(
    name="dim", type="int", default=0, aliases=("axis",), description="Dimension along which it works."
)

PARTS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="concat",
        category="movement",
        signature="*tensors -> out",
        aliases=("cat", "concatenate", "Concat"),
        attributes=(_FIRST_DIM,),
        dtype_variants=(*EVERY, *MIXED),
        infer=_INFER + "concat",
        reference=_REFERENCE + "concat_reference",
        samples=_SAMPLES + "concat_samples",
        case_sets=(*_SETS[:5], "promotion", *_SETS[5:]),
        rule=Rule(
            kind=RuleClass.MOVEMENT, source="elements move; those of a narrower dtype are converted, rounded once"
        ),
        description="Tensors joined along a dimension, in their common dtype; empty 1-d tensors are skipped.",
    ),
    OperatorDescriptor(
        name="split",
        category="movement",
        signature="input -> *out",
        attributes=(
            Attribute(
                name="split_size_or_sections",
                type="int|ints",
                aliases=("split_size", "sections", "split"),
                description="Size of each part, of which the last may be smaller; or a list of the sizes in order.",
            ),
            _FIRST_DIM,
        ),
        dtype_variants=EVERY,
        infer=_INFER + "split",
        reference=_REFERENCE + "split_reference",
        samples=_SAMPLES + "split_samples",
        case_sets=_SETS,
        rule=_RULE,
        description="Parts of a tensor along a dimension.",
    ),
    OperatorDescriptor(
        name="slice",
        category="movement",
        signature="input -> out",
        aliases=("Slice",),
        attributes=(
            Attribute(
                name="dim",
                type="ints",
                default=None,
                aliases=("axis", "axes"),
                description="Dimensions that are cut, each once; none means the first ones.",
            ),
            Attribute(
                name="start",
                type="ints",
                default=None,
                aliases=("starts",),
                description="First index of each dimension.",
            ),
            Attribute(
                name="end", type="ints", default=None, aliases=("ends",), description="Index before which each ends."
            ),
            Attribute(
                name="step", type="ints", default=None, aliases=("steps",), description="Distance of indices; not 0."
            ),
        ),
        dtype_variants=EVERY,
        infer=_INFER + "slice",
        reference=_REFERENCE + "slice_reference",
        samples=_SAMPLES + "slice_samples",
        case_sets=_SETS,
        rule=_RULE,
        description=(
            "input[start:end:step] along one or more dimensions, bounds counted and clamped as in torch and ONNX; "
            "a negative step walks backwards as in ONNX, with an end far below -size for the first element."
        ),
    ),
    OperatorDescriptor(
        name="pad",
        category="movement",
        signature="input -> out",
        attributes=(
            Attribute(
                name="pad",
                type="ints",
                description="Elements before and after the last dimension, then the one before it; negative ones crop.",
            ),
            Attribute(
                name="mode",
                type="str",
                default="constant",
                choices=("constant", "reflect", "replicate", "circular"),
                description="What is added: a value, the mirrored tensor, its border, or its other end.",
            ),
            Attribute(name="value", type="float", default=0.0, description="What mode constant adds."),
        ),
        dtype_variants=EVERY,
        infer=_INFER + "pad",
        reference=_REFERENCE + "pad_reference",
        samples=_SAMPLES + "pad_samples",
        case_sets=_SETS,
        rule=_RULE,
        description=(
            "A tensor extended at its borders, as torch.nn.functional.pad: the modes other than constant pad one to "
            "three dimensions of a tensor with one or two more. ONNX states pads in another order."
        ),
    ),
)
