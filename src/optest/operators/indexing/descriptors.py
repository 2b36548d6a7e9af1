"""Descriptors of the indexing family as data; hooks are import paths."""

from __future__ import annotations

from dataclasses import replace

from optest.operators.variants import BOOL, DIM, EVERY, FLOATS, NUMBERS, SUMS
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS", "INDEXED", "SCATTERED", "SORTED", "TOPK"]

_INFER = "optest.operators.indexing.inference:infer_"
_DOMAIN = "optest.operators.indexing.inference:"
_REFERENCE = "optest.operators.indexing.references:"
_ORDERING = "optest.operators.indexing.ordering:"
_SAMPLES = "optest.operators.indexing.case_sets:"
_SAMPLING = "optest.operators.indexing.sampling:"
_TERMS = "optest.operators.indexing.error_terms:"

_MOVED = Rule(kind=RuleClass.MOVEMENT, source="elements move and never change; indices are exact")
_INDEXED_DIM = Attribute(name="dim", type="int", aliases=("axis",), description="Dimension that is indexed.")
INDEXED = tuple((name, index) for index in ("int64", "int32") for (name,) in EVERY)
SCATTERED = tuple((name, index, name) for index in ("int64", "int32") for (name,) in (*NUMBERS, *BOOL))
SORTED = (*NUMBERS, *BOOL, ("uint16",), ("uint32",), ("uint64",))

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="gather",
        category="indexing",
        signature="input, index -> out",
        aliases=("gather_elements",),
        attributes=(_INDEXED_DIM,),
        dtype_variants=INDEXED,
        infer=_INFER + "gather",
        reference=_REFERENCE + "gather_reference",
        samples=_SAMPLES + "gather_samples",
        case_sets=("ordinary", "dtypes", "layouts", "sizes", "special", "attributes", "indices", "refused", "outside"),
        domain=_DOMAIN + "index_domain",
        generator={"index": "randint"},
        rule=_MOVED,
        description="out[i][j] = input[index[i][j]][j] for dim 0; negative indices are refused, unlike in ONNX.",
    ),
    OperatorDescriptor(
        name="index_select",
        category="indexing",
        signature="input, index -> out",
        attributes=(_INDEXED_DIM,),
        dtype_variants=INDEXED,
        infer=_INFER + "index_select",
        reference=_REFERENCE + "index_select_reference",
        samples=_SAMPLES + "index_select_samples",
        case_sets=("ordinary", "dtypes", "layouts", "sizes", "special", "attributes", "indices", "refused", "outside"),
        domain=_DOMAIN + "index_domain",
        generator={"index": "randint"},
        rule=_MOVED,
        description="The slices of input along dim that index names, in its order; an index of several dimensions, "
        "which torch does not take, puts them in place of dim, as ONNX's Gather. Negative indices are refused.",
    ),
    OperatorDescriptor(
        name="scatter_add",
        category="indexing",
        signature="input, index, src -> out",
        attributes=(_INDEXED_DIM,),
        dtype_variants=SCATTERED,
        infer=_INFER + "scatter_add",
        reference=_REFERENCE + "scatter_add_reference",
        terms=_TERMS + "scatter_add_terms",
        sum_length=_DOMAIN + "longest_scatter",
        samples=_SAMPLES + "scatter_add_samples",
        case_sets=(
            "ordinary",
            "dtypes",
            "layouts",
            "sizes",
            "special",
            "attributes",
            "indices",
            "long",
            "integer-exact",
            "zero-mean",
            "refused",
            "outside",
        ),
        domain=_DOMAIN + "index_domain",
        generator={"index": "randint"},
        rule=Rule(
            kind=RuleClass.ACCUMULATE,
            source=SUMS,
            formula="terms are the element and every src that names it, none where no index does; k is their number",
        ),
        description=(
            "A copy of input with out[index[i][j]][j] += src[i][j] for dim 0; indices may repeat, in any order. "
            "Integers wrap, bool is logical or."
        ),
    ),
    OperatorDescriptor(
        name="embedding",
        category="indexing",
        signature="weight, indices -> out",
        attributes=(
            Attribute(
                name="padding_idx",
                type="int",
                default=None,
                description="Row without a gradient; it is looked up like any other.",
            ),
        ),
        dtype_variants=INDEXED,
        infer=_INFER + "embedding",
        reference=_REFERENCE + "embedding_reference",
        samples=_SAMPLES + "embedding_samples",
        case_sets=("ordinary", "dtypes", "layouts", "sizes", "special", "attributes", "indices", "refused", "outside"),
        domain=_DOMAIN + "embedding_domain",
        generator={"indices": "randint"},
        rule=_MOVED,
        description="Rows of weight by index, in the shape of indices and one dimension more.",
    ),
    OperatorDescriptor(
        name="topk",
        category="indexing",
        signature="input -> values, indices",
        aliases=("TopK",),
        attributes=(
            Attribute(name="k", type="int", description="How many elements of each row."),
            DIM,
            Attribute(name="largest", type="bool", default=True, description="The largest, or else the smallest."),
            Attribute(name="sorted", type="bool", default=True, description="In order of size, or else in any order."),
        ),
        dtype_variants=NUMBERS,
        infer=_INFER + "topk",
        reference=_ORDERING + "topk_reference",
        alternatives=_ORDERING + "topk_alternatives",
        samples=_SAMPLES + "topk_samples",
        case_sets=("ordinary", "dtypes", "layouts", "sizes", "special", "attributes", "ties", "unordered", "refused"),
        rule=replace(_MOVED, formula="or others of equal elements, none twice; without sorted in any order"),
        description=(
            "The k largest or smallest elements along a dimension and where they are; NaN is the largest. Of equal "
            "elements any may be chosen, but none twice; without `sorted` a row is right in any order."
        ),
    ),
    OperatorDescriptor(
        name="sort",
        category="indexing",
        signature="input -> values, indices",
        attributes=(
            DIM,
            Attribute(name="descending", type="bool", default=False, description="From the largest to the smallest."),
            Attribute(name="stable", type="bool", default=False, description="Equal elements keep their order."),
        ),
        dtype_variants=SORTED,
        infer=_INFER + "sort",
        reference=_ORDERING + "sort_reference",
        alternatives=_ORDERING + "sort_alternatives",
        samples=_SAMPLES + "sort_samples",
        case_sets=("ordinary", "dtypes", "layouts", "sizes", "special", "attributes", "ties", "stable", "refused"),
        rule=replace(_MOVED, formula="without stable also others of equal elements, none twice"),
        description=(
            "The elements along a dimension in order and where they were; NaN is the largest. Without `stable` equal "
            "elements come in any order, −0 and 0 among them."
        ),
    ),
    OperatorDescriptor(
        name="random_sample",
        category="indexing",
        signature="logits -> out",
        attributes=(
            Attribute(name="random_value", type="float", description="What chance gave, from 0 to 1."),
            Attribute(
                name="top_p", type="float", default=1.0, aliases=("topp",), description="Share of the probability kept."
            ),
            Attribute(
                name="top_k",
                type="int",
                default=None,
                aliases=("topk",),
                description="How many of the largest are drawn from; none is all, 0 and 1 give the largest.",
            ),
            Attribute(
                name="temperature", type="float", default=1.0, description="Divides the logits; 0 is the largest."
            ),
            Attribute(name="dtype", type="dtype", default="int64", description="Integer dtype of the index."),
        ),
        dtype_variants=FLOATS,
        infer=_INFER + "random_sample",
        reference=_SAMPLING + "random_sample_reference",
        alternatives=_SAMPLING + "random_sample_alternatives",
        samples="optest.operators.indexing.case_sets_sampling:random_sample_samples",
        case_sets=("ordinary", "dtypes", "layouts", "sizes", "special", "attributes", "ties", "refused"),
        generator={"fill": "randn", "std": 2.0},
        rule=Rule(
            kind=RuleClass.EXACT,
            source="the definition; softmax: docs/operators/normalization.md#softmax",
            formula="or any with as large a logit; the next one too where the sum of probabilities lies within its "
            "error of the limit",
        ),
        description="The index of one of the logits, a 0-d tensor: from the largest on, the first at which the sum of "
        "softmax(logits / temperature) is at least random_value · min(top_p, sum of the first top_k). Where the "
        "largest is not finite, it is drawn.",
    ),
)
