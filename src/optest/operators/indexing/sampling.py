"""Operators that sample tokens: top_k_top_p_mask and top_k_top_p_sampling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, call, data_fill, in_dtypes, reshaped, with_strides
from optest.operators.describe import attribute, exact, in_module, movement
from optest.operators.samples import error_samples, in_every_layout, in_layouts_at_once, variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense
from optest.spec import Interval, OperatorDescriptor, Sample, Tier, UnfitArguments, dtype
from optest.spec.declared_shapes import match_declaration

_VARIANTS = (
    *((name, index, "float32") for index in ("int32", "int64") for name in MAIN_FLOATS),
    *((name, limit_dtype) for name in MAIN_FLOATS for limit_dtype in ("int32", "int64", "float32")),
    *((name,) for name in MAIN_FLOATS),
)
# Enough to detect a temperature of 0.9 (see the set distribution), few enough to stay fast.
_DRAWS = 1 << 14

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="top_k_top_p_mask",
        aliases=("apply_top_k_top_p", "top_k_mask_logits"),
        rule=movement(
            "docs/operators/indexing.md#top_k_top_p_mask",
            "any number of equal logits at the end of top_k, either side of top_p if the sum of probabilities is "
            "within its error; softmax: docs/operators/normalization.md#softmax",
        ),
        description="logits with -∞ in place of those that must not be drawn. Kept are, of the top_k largest logits of "
        "a row, those whose larger ones have together less than top_p of the probability: softmax is taken after "
        "top_k, as in vLLM, transformers and FlashInfer's top_k_first. top_k and top_p have one number for each row; "
        "an input that is left out masks nothing.",
    ),
    OperatorDescriptor(
        name="top_k_top_p_sampling",
        alternatives="top_k_top_p_sampling_alternatives",
        tags=("random",),
        aliases=("top_k_top_p_sampling_from_logits",),
        attributes=(attribute("dtype: dtype = 'int32'", "Integer dtype of the index."),),
        rule=exact(
            "docs/operators/indexing.md#top_k_top_p_sampling",
            "any index that top_k_top_p_mask may keep; for 512 equal rows or more, the frequency of each index and "
            "the mean log-probability, by Bernstein's inequality with a false-alarm rate of 10⁻¹²",
        ),
        description="The index of one logit of each row, drawn at random from those that top_k_top_p_mask keeps. The "
        "sampler uses its own random numbers with a fixed seed; random_sample takes the random number as an attribute.",
    ),
    signature="logits, top_k?, top_p? -> out",
    dtype_variants=_VARIANTS,
    domain="sampling_domain",
    alternatives="top_k_top_p_mask_alternatives",
    generator={"logits": {"fill": "randn", "std": 2.0}, "top_k": "randint", "top_p": "uniform"},
)


def infer_top_k_top_p_mask(specs: Specs, _attributes: Attributes) -> Outputs:
    n, outputs = match_declaration(
        specs, "logits: T[rows, width], top_k?: index[rows], top_p?: [rows] -> T[rows, width]"
    )
    if not n.width:
        raise UnfitArguments("logits has rows of 0 elements, expected 1 or more")
    return outputs


def infer_top_k_top_p_sampling(specs: Specs, attributes: Attributes) -> Outputs:
    (spec,), index = infer_top_k_top_p_mask(specs, attributes), dtype(attributes.get("dtype", "int32"))
    if index.name not in ("int32", "int64"):
        raise UnfitArguments(f"dtype is {index}, expected int32 or int64")
    return (dense(index, spec.shape[:1]),)


def sampling_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Return the ranges of top_k, up to the number of logits, and top_p."""
    width = specs[0].shape[-1] if specs[0] is not None and specs[0].rank else 1
    return {"top_k": Interval(low=1.0, high=float(max(width, 1))), "top_p": Interval(low=0.05, high=1.0)}


def _sampling(rows: int, width: int, *, top_k: bool = True, top_p: bool = True, **options: Any) -> dict[str, Any]:
    """Return a call over `rows` x `width` logits, with top_k and top_p unless switched off."""
    shapes: dict[str, Any] = {
        "logits": (rows, width),
        **({"top_k": (rows,)} if top_k else {}),
        **({"top_p": (rows,)} if top_p else {}),
    }
    return call(**shapes, **options)


def _call_of_logits(
    values: list[list[Any]], top_k: list[int] | None = None, top_p: list[float] | None = None
) -> dict[str, Any]:
    """Return a call with these logits and, if given, these values of top_k and top_p."""
    fills = {"logits": data_fill(values), **({} if top_k is None else {"top_k": data_fill(top_k)})}
    fills = {**fills, **({} if top_p is None else {"top_p": data_fill(top_p)})}
    limits = {"top_k": top_k is not None, "top_p": top_p is not None}
    return _sampling(len(values), len(values[0]), **limits, generator=fills)


_ORDINARY = [_sampling(33, 37), _sampling(35, 64, top_p=False), _sampling(36, 129, top_k=False)]


def top_k_top_p_mask_samples() -> Iterator[Sample]:
    yield from _shared_samples(_ORDINARY)
    yield from variations("special", [{**_ORDINARY[0], "generator": {"logits": {"fill": "randn", "std": 60.0}}}])


def top_k_top_p_sampling_samples() -> Iterator[Sample]:
    yield from _shared_samples(_ORDINARY)
    yield from variations("attributes", [{**case, "attributes": {"dtype": "int64"}} for case in _ORDINARY])
    # 16,384 draws from one row detect a sampler that prefers some tokens, whose temperature is 0.9 instead of 1, or
    # that draws the same token in equal rows.
    for width, top_k, top_p in ((8, 8, 1.0), (37, 10, 1.0), (129, 129, 0.875), (33, 12, 0.75)):
        limits = {"top_k": {"fill": "full", "value": top_k}, "top_p": {"fill": "full", "value": top_p}}
        case = _sampling(_DRAWS, width, generator={"logits": {"fill": "randn", "std": 1.5}, **limits})
        yield from variations("distribution", [reshaped(case, logits=with_strides((_DRAWS, width), (0, 1)))])


def _shared_samples(calls: list[dict[str, Any]]) -> Iterator[Sample]:
    """Yield the case sets that both operators share."""
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    plain = _sampling(4, 33, top_k=False, top_p=False)
    yield from variations("ordinary", in_dtypes("logits", MAIN_FLOATS, (*calls, plain)))
    yield from variations(
        "dtypes", [{**calls[0], "dtypes": list(variant)} for variant in _VARIANTS if len(variant) == 3]
    )
    for name, case in zip(MAIN_FLOATS, calls, strict=True):
        in_dtype = in_dtypes("logits", [name], [case])
        yield from in_every_layout(in_dtype)
        yield from in_layouts_at_once(in_dtype)
    sizes = [_sampling(3, n) for n in (1, 2, 7, 15, 16, 17, 31, 33, 64, 65, 257, 1023, 1025, 32_000)]
    sizes += [_sampling(n, 33) for n in (0, 1, 17, 65, 300)]
    yield from variations("sizes", in_dtypes("logits", MAIN_FLOATS[:2], sizes))
    yield from variations("sizes", [_sampling(LARGE_SIZE, 17), _sampling(33, 1)])
    row = [0.5, 3.0, 1.0, 2.5, -1.0, 2.0]
    for top_k in (1, 2, 5, 6):
        yield from variations("ends", [_call_of_logits([row] * 2, [top_k, 7 - top_k])])
    # From the largest only, which every top_p keeps, to all logits.
    for top_p in (1e-6, 0.25, 0.4375, 0.6, 0.9, 0.999, 1.0):
        yield from variations("ends", [_call_of_logits([row], None, [top_p]), _call_of_logits([row], [4], [top_p])])
    few = {"logits": {"fill": "randint", "low": -2, "high": 3}}
    tied = [_sampling(9, 33, generator=few), _sampling(9, 33, top_p=False, generator=few)]
    tied += [_call_of_logits([[1.0] * 8] * 2, [3, 8]), _call_of_logits([[1.0] * 8], None, [0.4375])]
    yield from variations("ties", in_dtypes("logits", MAIN_FLOATS, tied))
    masked = [["-inf", 1.0, "-inf", 0.5, 0.25, "-inf"], ["-inf", "-inf", 2.0, "-inf", "-inf", "-inf"]]
    yield from variations("special", [_call_of_logits(masked, [4, 6]), _call_of_logits(masked, None, [0.9, 1.0])])
    # The last ones are improbable, and sums in 16 bits lose them.
    rising = [[-0.0625 * position for position in range(129)]]
    yield from variations(
        "special", [_call_of_logits(rising, None, [0.9375]), _call_of_logits(rising, [100], [0.9375])]
    )
    yield from error_samples(
        call(logits=(5,), top_k=(5,), dtypes=["float32", "int32"]),
        call(logits=(5, 7), top_k=(4,), dtypes=["float32", "int32"]),
        call(logits=(5, 0), top_k=(5,), dtypes=["float32", "int32"]),
        call(logits=(5, 7), top_p=(5, 1), dtypes=["float32", "float32"]),
    )
