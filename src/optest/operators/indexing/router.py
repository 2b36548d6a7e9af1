"""Operators that choose experts in a mixture of experts: topksoftmax and topkrouter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, call, data_fill
from optest.operators.describe import attribute, composed, in_module
from optest.operators.samples import error_samples, in_every_layout, standard_samples, variations
from optest.operators.shapes import Attributes, Outputs, Specs
from optest.spec import Interval, OperatorDescriptor, Sample, Tier, UnfitArguments
from optest.spec.declared_shapes import match_declaration

_SCORES = tuple((name,) for name in MAIN_FLOATS)
_TOPK = attribute("topk|k: int", "Number of experts per row.")

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="topksoftmax",
        signature="input -> values, indices",
        aliases=("topk_softmax",),
        attributes=(
            _TOPK,
            attribute("norm|renormalize: bool = False", "Divide the chosen probabilities by their sum."),
        ),
        dtype_variants=_SCORES,
        alternatives="topksoftmax_alternatives",
        rule=composed("as softmax; with norm y·(Σ error / Σ + 4√k + 5) more; any of equal probabilities, none twice"),
        description="The topk largest probabilities of softmax over each row of a matrix, in descending order, in "
        "float32, and their columns in int32.",
    ),
    OperatorDescriptor(
        name="topkrouter",
        signature="input, correction_bias -> values, indices",
        attributes=(
            _TOPK,
            attribute("routed_scaling_factor: float = 1.0", "Factor of the weights."),
            attribute("n_group: int = 8", "Number of groups of experts, of equal size."),
            attribute("topk_group: int = 4", "Number of groups to choose experts from."),
        ),
        dtype_variants=tuple((name, "float32") for name in MAIN_FLOATS),
        alternatives="topkrouter_alternatives",
        domain={"correction_bias": Interval(low=0.0, high=1.0)},
        generator={"correction_bias": "uniform"},
        rule=composed("y·(8 + 4√k + 9 + 10⁻⁹/Σu); any of equal scores, none twice"),
        description="The router of DeepSeek-V3. Scores are sigmoid(input) + correction_bias. The topk_group groups "
        "with the largest sums of their two best scores are kept; scores of other groups become 0. values are the "
        "weights of the topk best columns, in descending order of scores: sigmoid(input) divided by its sum over them, "
        "times routed_scaling_factor. values are float32, indices int32.",
    ),
)


def infer_topksoftmax(specs: Specs, attributes: Attributes) -> Outputs:
    return _infer_chosen(specs, "input: T[rows, width]", attributes["topk"])[1]


def infer_topkrouter(specs: Specs, attributes: Attributes) -> Outputs:
    width, out = _infer_chosen(specs, "input: T[rows, width], correction_bias: [width]", attributes["topk"])
    groups, chosen = attributes.get("n_group", 8), attributes.get("topk_group", 4)
    if groups < 1 or width % groups or width < 2 * groups:
        raise UnfitArguments(f"n_group is {groups}, expected a divisor of {width} columns with groups of 2 or more")
    if not 1 <= chosen <= groups or attributes["topk"] > chosen * (width // groups):
        raise UnfitArguments(
            f"topk_group is {chosen}, expected 1 to {groups}, with at least {attributes['topk']} (topk) columns"
        )
    return out


def _infer_chosen(specs: Specs, declared: str, topk: int) -> tuple[int, Outputs]:
    """Return the number of columns and the output specs; raise UnfitArguments if topk exceeds the columns."""
    n, outputs = match_declaration(specs, f"{declared} -> float32[rows, topk], int32[rows, topk]", topk=topk)
    if not 1 <= topk <= n.width:
        raise UnfitArguments(f"topk is {topk}, expected 1 to {n.width}, the columns of input")
    return n.width, outputs


def topksoftmax_samples() -> Iterator[Sample]:
    calls = [
        call({"topk": 5}, input=(4, 37)),
        call({"topk": 8, "norm": True}, input=(7, 64)),
        call({"topk": 1}, input=(3, 9)),
    ]
    yield from standard_samples(calls, _SCORES, sized=lambda n: call({"topk": min(max(n, 1), 4)}, input=(3, max(n, 1))))
    # Numbers of tokens around the block sizes of kernels.
    rows = [call({"topk": 2, "norm": True}, input=(n, 8)) for n in (0, 1, 17, 129, 1025)]
    yield from variations("sizes", [*rows, call({"topk": 2}, input=(LARGE_SIZE, 17)), call({"topk": 1}, input=(9, 1))])
    cases = [call({"topk": k, "norm": norm}, input=(5, 33)) for k in (1, 2, 8, 32, 33) for norm in (False, True)]
    yield from variations("attributes", cases, dtypes=MAIN_FLOATS)
    # exp of these overflows float32 without the shift by the maximum; nearly equal and equal logits follow.
    for fill in ({"fill": "uniform", "low": 84.0, "high": 92.0}, {"fill": "randn", "std": 0.01}, "zeros"):
        calls = [call({"topk": 6, "norm": norm}, input=(4, 65), generator=fill) for norm in (False, True)]
        yield from variations("special", calls, dtypes=MAIN_FLOATS)
    # Seven values in 33 columns: most probabilities have equals.
    ties = {"fill": "randint", "low": -3, "high": 4}
    yield from variations("ties", [call({"topk": 9}, input=(5, 33), generator=ties)], dtypes=MAIN_FLOATS)
    # Masked logits are −∞ or a large negative number.
    masked_logits = data_fill([["-inf", 1.0, "-inf", 2.0, 0.5, "-inf"], [-1e4, 0.0, 3.0, -1e4, 1.0, "-inf"]])
    calls = [call({"topk": 3, "norm": norm}, input=(2, 6), generator=masked_logits) for norm in (False, True)]
    yield from variations("special", calls, dtypes=MAIN_FLOATS)
    yield from error_samples(
        call({"topk": 5}, input=(3, 4)), call({"topk": 0}, input=(3, 4)), call({"topk": 1}, input=(2, 3, 4))
    )


def _router(rows: int, width: int = 256, topk: int = 8, **attributes: Any) -> dict[str, Any]:
    """Return a topkrouter call over `rows` x `width` scores."""
    return call({"topk": topk, **attributes}, input=(rows, width), correction_bias=(width,))


def topkrouter_samples() -> Iterator[Sample]:
    few_groups = {"n_group": 4, "topk_group": 2}
    calls = [_router(5), _router(3, routed_scaling_factor=2.5), _router(4, 36, 3, **few_groups)]
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    for name in MAIN_FLOATS:
        yield from variations("ordinary", [{**case, "dtypes": [name, "float32"]} for case in calls])
    yield from in_every_layout(calls)
    yield from variations("sizes", [_router(n) for n in (0, 1, 17, 65, 300)])
    sizes = [_router(3, n * 4, 3, **few_groups) for n in (2, 5, 7, 16, 33, 257)]
    sizes += [_router(n, 20, 3, **few_groups) for n in (0, 1)]
    yield from variations(
        "sizes", [*sizes, _router(LARGE_SIZE, 20, 2, **few_groups), _router(3, 2, 1, n_group=1, topk_group=1)]
    )
    yield from variations("attributes", [_router(5, topk=k) for k in (1, 2, 6, 32, 128)])
    cases = [_router(4, 64, 4, n_group=n, topk_group=m) for n, m in ((1, 1), (2, 1), (16, 3), (32, 32))]
    yield from variations("attributes", [*cases, *(_router(4, routed_scaling_factor=f) for f in (0.5, 16.0))])
    for fills in (
        {"correction_bias": "zeros"},
        {"input": {"fill": "randn", "std": 6.0}},
        {"input": {"fill": "uniform", "low": -12.0, "high": -8.0}},
        {"correction_bias": {"fill": "uniform", "low": 4.0, "high": 8.0}},
    ):
        for name in MAIN_FLOATS:
            yield from variations("special", [{**_router(5), "generator": fills, "dtypes": [name, "float32"]}])
    yield from error_samples(
        _router(3, 36, 3),
        _router(3, topk=0),
        _router(3, topk=129),
        _router(3, topk_group=9),
        call({"topk": 8}, input=(3, 256), correction_bias=(255,)),
        call({"topk": 8}, input=(256,), correction_bias=(256,)),
    )
