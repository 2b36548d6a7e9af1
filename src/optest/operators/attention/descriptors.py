"""Descriptors of the attention family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import FLOATS, SUMS
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_INFER = "optest.operators.attention.inference:"
_REFERENCE = "optest.operators.attention.references:"
_TERMS = "optest.operators.attention.error_terms:"
_SAMPLES = "optest.operators.attention.case_sets:"

_NAMES = tuple(variant[0] for variant in FLOATS)
_BOOL_MASKS = tuple((name, name, name, "bool") for name in _NAMES)
_INDICES = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
_POSITIONS = tuple((name, name, name, index) for name in _NAMES for index in _INDICES)
_WIDE_TABLES = tuple(
    (half, "float32", "float32", *index)
    for half in ("float16", "bfloat16")
    for index in ((), *((name,) for name in _INDICES))
)

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="scaled_dot_product_attention",
        category="attention",
        signature="query, key, value, attn_mask? -> out",
        aliases=("sdpa",),
        attributes=(
            Attribute(
                name="is_causal",
                type="bool",
                default=False,
                description="Query i sees keys 0 to i, counted from the first of both, whatever their number.",
            ),
            Attribute(name="scale", type="float", default=None, description="Factor of the scores; none means 1/√E."),
            Attribute(
                name="enable_gqa",
                type="bool",
                default=False,
                description="Groups of heads of query share a head of key and value: h reads h // (heads / key heads).",
            ),
        ),
        dtype_variants=(*FLOATS, *_BOOL_MASKS),
        infer=_INFER + "infer_scaled_dot_product_attention",
        reference=_REFERENCE + "scaled_dot_product_attention_reference",
        terms=_TERMS + "scaled_dot_product_attention_terms",
        sum_length=_INFER + "attention_length",
        operations="optest.operators.attention.operations:scaled_dot_product_attention_operations",
        samples=_SAMPLES + "attention_samples",
        case_sets=(
            "ordinary",
            "dtypes",
            "layouts",
            "sizes",
            "special",
            "attributes",
            "masks",
            "grouped heads",
            "large scores",
            "long",
            "refused",
        ),
        rule=Rule(
            kind=RuleClass.COMPOSED,
            source="docs/operators/attention.md#scaled_dot_product_attention",
            formula="Σp·ε·|v| + |y|·Σp·ε + 4√S·(Σp|v| + |y|) + 8|y|",
        ),
        description="softmax(scale · query @ keyᵀ + attn_mask) @ value. A bool mask is true where a key is seen; a "
        "query that sees none gets zeros. A masked key has the weight 0: NaN or infinity in its value gives NaN.",
    ),
    OperatorDescriptor(
        name="rope",
        category="attention",
        signature="input, cos, sin, position_ids? -> out",
        aliases=("RotaryEmbedding",),
        attributes=(
            Attribute(
                name="interleaved",
                type="bool",
                default=False,
                description="Pairs are neighbours (2i, 2i + 1), as in GPT-J; else those of the halves (i, i + n/2), as "
                "in GPT-NeoX and Llama.",
            ),
            Attribute(
                name="rotary_embedding_dim",
                type="int",
                default=0,
                description="How many elements of each vector are rotated, the first ones; 0 means all.",
            ),
        ),
        dtype_variants=(*FLOATS, *_POSITIONS, *_WIDE_TABLES),
        infer=_INFER + "infer_rope",
        reference=_REFERENCE + "rope_reference",
        terms=_TERMS + "rope_terms",
        sum_length=_INFER + "rope_length",
        domain=_INFER + "positions_domain",
        samples=_SAMPLES + "rope_samples",
        case_sets=(
            "ordinary",
            "dtypes",
            "layouts",
            "sizes",
            "special",
            "attributes",
            "positions",
            "integer-exact",
            "refused",
        ),
        rule=Rule(kind=RuleClass.ACCUMULATE, source=SUMS, formula="terms are the two products"),
        description="Rotates pairs of each vector: (x₁·cos − x₂·sin, x₂·cos + x₁·sin). input is (…, S, D); cos and sin "
        "have half the rotated size, and a row for each place of the sequence (S, or batch × S), or are tables that "
        "position_ids (S, or batch × S) index. They are inputs, as in every kernel library: the angles of large "
        "positions cannot be told in float32. 16-bit results are computed in float32 and rounded once.",
    ),
)
