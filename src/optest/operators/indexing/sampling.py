"""Which tokens are drawn from, and the draw: top_k_top_p_mask and top_k_top_p_sampling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, call, data, in_dtypes, laid, reshaped
from optest.operators.describe import attribute, exact, in_module, movement
from optest.operators.samples import in_every_layout, in_layouts_at_once, refused, variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense
from optest.spec import Interval, OperatorDescriptor, Sample, Tier, UnfitArguments, dtype
from optest.spec.declared_shapes import fitted

_VARIANTS = (
    *((name, index, "float32") for index in ("int32", "int64") for name in MAIN_FLOATS),
    *((name, other) for name in MAIN_FLOATS for other in ("int32", "int64", "float32")),
    *((name,) for name in MAIN_FLOATS),
)
_DRAWS = 1 << 14

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="top_k_top_p_mask",
        aliases=("apply_top_k_top_p", "top_k_mask_logits"),
        rule=movement(
            "docs/operators/indexing.md#top_k_top_p_mask",
            "all or some of equal logits at an end, either side of top_p where the sum of probabilities is within its "
            "error; softmax: docs/operators/normalization.md#softmax",
        ),
        description="logits with -∞ in place of what is not drawn from. Of the top_k largest logits of a row, those "
        "whose larger ones have less than top_p of the probability of all of them: softmax is taken after top_k, as in "
        "vLLM, transformers and FlashInfer's top_k_first. Without top_k or top_p, which state a number for each row, "
        "nothing is left out by it.",
    ),
    OperatorDescriptor(
        name="top_k_top_p_sampling",
        alternatives="top_k_top_p_sampling_alternatives",
        tags=("random",),
        aliases=("top_k_top_p_sampling_from_logits",),
        attributes=(attribute("dtype: dtype = 'int32'", "Integer dtype of the index."),),
        rule=exact(
            "docs/operators/indexing.md#top_k_top_p_sampling",
            "any logit that top_k_top_p_mask may leave; where 512 rows or more are equal, each as often as its "
            "probability says, and likely ones as often, by Bernstein's inequality with a false alarm in 10¹²",
        ),
        description="The index of one logit of each row, drawn at random from what top_k_top_p_mask leaves. "
        "Random numbers are the sampler's own, with a fixed seed; random_sample has one that is stated.",
    ),
    signature="logits, top_k?, top_p? -> out",
    dtype_variants=_VARIANTS,
    domain="sampling_domain",
    alternatives="top_k_top_p_mask_alternatives",
    generator={"logits": {"fill": "randn", "std": 2.0}, "top_k": "randint", "top_p": "uniform"},
)


def infer_top_k_top_p_mask(specs: Specs, _attributes: Attributes) -> Outputs:
    n, outputs = fitted(specs, "logits: T[rows, width], top_k?: index[rows], top_p?: [rows] -> T[rows, width]")
    if not n.width:
        raise UnfitArguments("logits has rows of 0, but should have 1 element or more to draw from")
    return outputs


def infer_top_k_top_p_sampling(specs: Specs, attributes: Attributes) -> Outputs:
    (spec,), index = infer_top_k_top_p_mask(specs, attributes), dtype(attributes.get("dtype", "int32"))
    if index.name not in ("int32", "int64"):
        raise UnfitArguments(f"dtype is {index}, but should be int32 or int64")
    return (dense(index, spec.shape[:1]),)


def sampling_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    width = specs[0].shape[-1] if specs[0] is not None and specs[0].rank else 1
    return {"top_k": Interval(low=1.0, high=float(max(width, 1))), "top_p": Interval(low=0.05, high=1.0)}


def _masked(rows: int, width: int, *, top_k: bool = True, top_p: bool = True, **more: Any) -> dict[str, Any]:
    shapes: dict[str, Any] = {
        "logits": (rows, width),
        **({"top_k": (rows,)} if top_k else {}),
        **({"top_p": (rows,)} if top_p else {}),
    }
    return call(**shapes, **more)


def _of_rows(
    values: list[list[Any]], top_k: list[int] | None = None, top_p: list[float] | None = None
) -> dict[str, Any]:
    """A call with these logits and ends."""
    fills = {"logits": data(values), **({} if top_k is None else {"top_k": data(top_k)})}
    fills = {**fills, **({} if top_p is None else {"top_p": data(top_p)})}
    ends = {"top_k": top_k is not None, "top_p": top_p is not None}
    return _masked(len(values), len(values[0]), **ends, generator=fills)


def top_k_top_p_mask_samples() -> Iterator[Sample]:
    calls = [_masked(33, 37), _masked(35, 64, top_p=False), _masked(36, 129, top_k=False)]
    yield from _common(calls)
    yield from variations("special", [{**calls[0], "generator": {"logits": {"fill": "randn", "std": 60.0}}}])


def top_k_top_p_sampling_samples() -> Iterator[Sample]:
    calls = [_masked(33, 37), _masked(35, 64, top_p=False), _masked(36, 129, top_k=False)]
    yield from _common(calls)
    yield from variations("attributes", [{**each, "attributes": {"dtype": "int64"}} for each in calls])
    # 16,384 draws from one row: a sampler that prefers some tokens, whose temperature is 0.9 in place of 1, or that
    # draws alike in rows that are alike, shows it.
    for width, top_k, top_p in ((8, 8, 1.0), (37, 10, 1.0), (129, 129, 0.875), (33, 12, 0.75)):
        ends = {"top_k": {"fill": "full", "value": top_k}, "top_p": {"fill": "full", "value": top_p}}
        stated = _masked(_DRAWS, width, generator={"logits": {"fill": "randn", "std": 1.5}, **ends})
        yield from variations("distribution", [reshaped(stated, logits=laid((_DRAWS, width), (0, 1)))])


def _common(calls: list[dict[str, Any]]) -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    plain = _masked(4, 33, top_k=False, top_p=False)
    yield from variations("ordinary", in_dtypes("logits", MAIN_FLOATS, (*calls, plain)))
    yield from variations("dtypes", [{**calls[0], "dtypes": list(each)} for each in _VARIANTS if len(each) == 3])
    for name, own in zip(MAIN_FLOATS, calls, strict=True):
        in_dtype = in_dtypes("logits", [name], [own])
        yield from in_every_layout(in_dtype)
        yield from in_layouts_at_once(in_dtype)
    sizes = [_masked(3, n) for n in (1, 2, 7, 15, 16, 17, 31, 33, 64, 65, 257, 1023, 1025, 32_000)]
    sizes += [_masked(n, 33) for n in (0, 1, 17, 65, 300)]
    yield from variations("sizes", in_dtypes("logits", MAIN_FLOATS[:2], sizes))
    yield from variations("sizes", [_masked(LARGE_SIZE, 17), _masked(33, 1)])
    row = [0.5, 3.0, 1.0, 2.5, -1.0, 2.0]
    for top_k in (1, 2, 5, 6):
        yield from variations("ends", [_of_rows([row] * 2, [top_k, 7 - top_k])])
    # From the one that is drawn whatever top_p is, to all of them.
    for top_p in (1e-6, 0.25, 0.4375, 0.6, 0.9, 0.999, 1.0):
        yield from variations("ends", [_of_rows([row], None, [top_p]), _of_rows([row], [4], [top_p])])
    few = {"logits": {"fill": "randint", "low": -2, "high": 3}}
    tied = [_masked(9, 33, generator=few), _masked(9, 33, top_p=False, generator=few)]
    tied += [_of_rows([[1.0] * 8] * 2, [3, 8]), _of_rows([[1.0] * 8], None, [0.4375])]
    yield from variations("ties", in_dtypes("logits", MAIN_FLOATS, tied))
    hidden = [["-inf", 1.0, "-inf", 0.5, 0.25, "-inf"], ["-inf", "-inf", 2.0, "-inf", "-inf", "-inf"]]
    yield from variations("special", [_of_rows(hidden, [4, 6]), _of_rows(hidden, None, [0.9, 1.0])])
    rising = [[-0.0625 * place for place in range(129)]]  # the last hardly count, and 16 bits lose them
    yield from variations("special", [_of_rows(rising, None, [0.9375]), _of_rows(rising, [100], [0.9375])])
    yield from refused(
        call(logits=(5,), top_k=(5,), dtypes=["float32", "int32"]),
        call(logits=(5, 7), top_k=(4,), dtypes=["float32", "int32"]),
        call(logits=(5, 0), top_k=(5,), dtypes=["float32", "int32"]),
        call(logits=(5, 7), top_p=(5, 1), dtypes=["float32", "float32"]),
    )
