"""Descriptor, inference and samples of adamw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from optest.operators.calls import EVERY_FLOAT, LARGE_SIZE, call
from optest.operators.describe import FLOATS, attribute, composed, in_module
from optest.operators.samples import error_samples, in_layouts_at_once, standard_samples, variations
from optest.operators.shapes import Attributes, Outputs, Specs
from optest.spec import Interval, OperatorDescriptor, Sample, UnfitArguments
from optest.spec.declared_shapes import match_declaration

_NAMES = ("param", "grad", "exp_avg", "exp_avg_sq")
_MOMENTS = tuple((half, half, "float32", "float32") for half in ("float16", "bfloat16"))

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="adamw",
        signature="param, grad, exp_avg, exp_avg_sq -> new_param, new_exp_avg, new_exp_avg_sq",
        attributes=(
            attribute("step: int = 1", "Number of this step, from 1."),
            attribute("lr: float = 0.001", "Learning rate."),
            attribute("beta1: float = 0.9", "Decay of exp_avg."),
            attribute("beta2: float = 0.999", "Decay of exp_avg_sq."),
            attribute("eps: float = 1e-08", "Added to the root."),
            attribute("weight_decay: float = 0.01", "Decay of param, times lr."),
            attribute("maximize: bool = False", "Step along the gradient: −grad in place of grad."),
        ),
        dtype_variants=(*FLOATS, *_MOMENTS),
        domain={"exp_avg_sq": Interval(low=0.0, high=1.0)},
        generator={"exp_avg_sq": "uniform"},
        rule=composed("running errors of the formula: betas, their powers and lr rounded, root and quotients 2.5 ulp"),
        description="A step of AdamW (Loshchilov and Hutter, 2019, as torch.optim.AdamW has it): m = β₁·exp_avg + "
        "(1 − β₁)·grad and v = β₂·exp_avg_sq + (1 − β₂)·grad², then param·(1 − lr·weight_decay) − lr / (1 − β₁ᵗ) · m / "
        "(√v / √(1 − β₂ᵗ) + eps). Outputs have the dtypes of their inputs; moments of 16 bits are used before they "
        "are rounded.",
    ),
)


def infer_adamw(specs: Specs, attributes: Attributes) -> Outputs:
    if attributes.get("step", 1) < 1:
        raise UnfitArguments(f"step is {attributes['step']}, expected 1 or more")
    for name in ("beta1", "beta2"):
        if not 0 <= attributes.get(name, 0.5) < 1:
            raise UnfitArguments(f"{name} is {attributes[name]}, expected at least 0 and below 1")
    declared = "param: T[*shape], grad: T[*shape], exp_avg: M[*shape], exp_avg_sq: M[*shape]"
    return match_declaration(specs, f"{declared} -> T[*shape], M[*shape], M[*shape]")[1]


def _adamw_call(*shape: int, generator: Any = None, dtypes: Sequence[str] = (), **attributes: Any) -> dict[str, Any]:
    shapes: dict[str, Any] = dict.fromkeys(_NAMES, shape)
    return call(attributes, dtypes=dtypes, generator=generator, **shapes)


def adamw_samples() -> Iterator[Sample]:
    calls = [_adamw_call(5, 37), _adamw_call(3, 4, 9, step=10, lr=0.01), _adamw_call(129, step=1000, weight_decay=0.1)]
    yield from standard_samples(calls, FLOATS, sized=lambda n: _adamw_call(n, step=3), special=False)
    for dtypes in _MOMENTS:
        yield from variations("dtypes", [{**each, "dtypes": list(dtypes)} for each in calls])
        yield from in_layouts_at_once([{**calls[0], "dtypes": list(dtypes)}])
    attributes: list[dict[str, Any]] = [
        {"weight_decay": 0.0},
        {"weight_decay": 10.0, "lr": 0.05},
        {"beta1": 0.5, "beta2": 0.95, "step": 7},
        {"beta1": 0.0, "step": 2},
        {"eps": 0.1, "step": 4},
        {"eps": 1e-3, "lr": 1.0},
        {"maximize": True},
        {"maximize": True, "weight_decay": 10.0, "lr": 0.05, "step": 3},
    ]
    yield from variations("attributes", [_adamw_call(4, 33, **values) for values in attributes], dtypes=EVERY_FLOAT)
    # The power 1 − βᵗ is near 0 for the first steps, and 1 for the last.
    steps = [_adamw_call(65, step=step, lr=0.1) for step in (1, 2, 3, 100, 100_000, 10_000_000)]
    yield from variations("steps", steps, dtypes=("float32", "bfloat16"))
    # A first step divides a gradient by its own magnitude; a tiny or zero one is compared with eps.
    first = {"exp_avg": "zeros", "exp_avg_sq": "zeros"}
    small = {**first, "grad": {"fill": "randn", "std": 1e-6}}
    yield from variations(
        "first", [_adamw_call(4, 33, generator=fill, lr=0.1) for fill in (first, small)], dtypes=EVERY_FLOAT
    )
    nothing = {**first, "grad": "zeros"}
    yield from variations("first", [_adamw_call(17, generator=nothing)], dtypes=EVERY_FLOAT)
    large = {"grad": {"fill": "randn", "std": 1e3}}
    yield from variations("large", [_adamw_call(65, generator=large, step=2)], dtypes=("float32", "bfloat16"))
    special = {"grad": {"fill": "data", "values": ["nan", "inf", "-inf", 0.0, -0.0, 1.0, 2.0]}}
    yield from variations("special", [_adamw_call(7, generator=special)], dtypes=EVERY_FLOAT)
    yield from variations("sizes", [_adamw_call(LARGE_SIZE, 3, dtypes=("bfloat16",)), _adamw_call(), _adamw_call(0, 4)])
    yield from variations("sizes", [_adamw_call(5, 1), _adamw_call(7, 1), _adamw_call(1, 1)], dtypes=EVERY_FLOAT)
    shapes: dict[str, Any] = dict.fromkeys(_NAMES, (3, 4))
    yield from error_samples(
        call(**{**shapes, "grad": (4,)}),
        call(**{**shapes, "exp_avg_sq": (3, 1)}),
        call({"step": 0}, **shapes),
        call(dtypes=("float32", "float16", "float32", "float32"), **shapes),
    )
