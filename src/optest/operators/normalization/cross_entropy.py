"""The operators cross_entropy and cross_entropy_backward: descriptors, shape inference and samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from optest.operators.calls import EVERY_FLOAT, LARGE_SIZE, MAIN_FLOATS, SIZES, call, data_fill, uniform
from optest.operators.describe import FLOATS, attribute, composed, in_module
from optest.operators.indexing.gather import indexed, of, outside, with_fills
from optest.operators.samples import error_samples, in_every_layout, in_layouts_at_once, variations
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Shape,
    Specs,
    dense,
    index_range,
    require_dimensions,
    require_same_dtype,
    require_shape,
    require_spec,
)
from optest.spec import Interval, OperatorDescriptor, Sample, UnfitArguments
from optest.spec.declared_shapes import match_declaration

_OF_CLASSES = tuple((name, index) for index in ("int64", "int32") for (name,) in FLOATS)

_ATTRIBUTES = (
    attribute("ignore_index: int = -100", "Target value whose loss is 0; it does not count in the mean."),
    attribute(
        "reduction: str = 'mean'",
        "Return each loss, their sum, or their sum divided by the sum of weights.",
        choices=("none", "sum", "mean"),
    ),
    attribute(
        "label_smoothing: float = 0.0",
        "Share of the loss that is spread evenly over all classes, as in torch: the share of the mean over classes of "
        "-weight * log_softmax.",
    ),
)

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="cross_entropy",
        signature="input, target, weight? -> out",
        attributes=_ATTRIBUTES,
        dtype_variants=(*_OF_CLASSES, *((name, index, name) for name, index in _OF_CLASSES)),
        domain="cross_entropy_domain",
        generator={"target": "randint", "weight": "uniform"},
        sum_length="classes",
        rule=composed("w·(error of log_softmax + |log_softmax|); for n losses also 4√n·Σ|loss|, divided by Σw"),
        description="-weight[target] * log_softmax(input)[target]. Classes are in dimension 1, or dimension "
        "0 of a vector. Targets are indices of classes.",
    ),
    OperatorDescriptor(
        name="cross_entropy_backward",
        signature="grad_output, input, target, weight? -> grad_input",
        attributes=_ATTRIBUTES,
        dtype_variants=tuple((name, name, index, *weight) for name, index in _OF_CLASSES for weight in ((), (name,))),
        domain="cross_entropy_backward_domain",
        generator={"target": "randint", "weight": "uniform"},
        sum_length="classes",
        rule=composed("errors of softmax (or of exp(log_softmax)), of the difference and the factors, step by step"),
        description="Gradient of cross_entropy. With p = softmax(input) and q = (1 − s)·weight[target]·onehot(target) "
        "+ s/classes·weight for a label_smoothing s, it is grad_output · (p · Σq − q), divided by the sum of "
        "weight[target] for the mean, and 0 for an ignored target. grad_output is a scalar, or has an element "
        "for each loss.",
    ),
)


def class_dim(rank: int) -> int:
    """Return the dimension of classes: 0 of a vector, else 1."""
    return 0 if rank == 1 else 1


def infer_cross_entropy(specs: Specs, attributes: Attributes) -> Outputs:
    if not 0 <= (smoothing := attributes.get("label_smoothing", 0.0)) <= 1:
        raise UnfitArguments(f"label_smoothing is {smoothing}, expected 0 to 1")
    # A scalar has no dimension of classes.
    require_dimensions(require_spec(specs, 0, "input"), "input", 1)
    is_vector = require_spec(specs, 0, "input").rank == 1
    classes, rows = ("classes", "") if is_vector else ("batch, classes, *rest", "batch, *rest")
    loss = rows if attributes.get("reduction") == "none" else ""
    return match_declaration(specs, f"input: T[{classes}], target: index[{rows}], weight?: T[classes] -> T[{loss}]")[1]


def cross_entropy_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Return the ranges of target classes and weights."""
    spec = specs[0]
    classes = spec.shape[class_dim(spec.rank)] if spec is not None and spec.rank else 1
    return {"target": index_range(classes), "weight": Interval(low=0.25, high=2.0)}


def classes(specs: Specs, _attributes: Attributes) -> int:
    """Return the number of classes of input, which is the first spec or, after the gradient, the second."""
    # The gradient of the loss has fewer dimensions than input.
    spec = max((x for x in specs[:2] if x is not None), key=lambda x: x.rank)
    return spec.shape[class_dim(spec.rank)] if spec.rank else 1


def infer_cross_entropy_backward(specs: Specs, attributes: Attributes) -> Outputs:
    grad, spec = require_spec(specs, 0, "grad_output"), require_spec(specs, 1, "input")
    (loss,) = infer_cross_entropy(specs[1:], attributes)
    require_shape(grad, "grad_output", loss.shape, ", as the loss")
    require_same_dtype(spec, grad, "grad_output")
    return (dense(spec.dtype, spec.shape),)


def cross_entropy_backward_domain(specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    """Return the ranges of cross_entropy, whose specs follow that of grad_output."""
    return cross_entropy_domain(specs[1:], attributes)


def _loss(*shape: int, weighted: bool = False, **attributes: Any) -> dict[str, Any]:
    """Return a cross_entropy call for input of `shape`, with a target for each row of classes."""
    dim = class_dim(len(shape))
    rows: Shape = (*shape[:dim], *shape[dim + 1 :])
    shapes: dict[str, Any] = {"input": shape, "target": rows, **({"weight": (shape[dim],)} if weighted else {})}
    return call(attributes, **shapes)


# Logits whose exp underflows or overflows float32 without the shift by the maximum, and nearly equal ones.
_LOGIT_RANGES: tuple[dict[str, Any], ...] = (
    uniform(-110.0, -95.0),
    uniform(-200.0, 200.0),
    uniform(900.0, 1000.0),
    {"fill": "randn", "std": 0.01},
)


def cross_entropy_samples() -> Iterator[Sample]:
    calls = [_loss(4, 37), _loss(3, 5, 7, reduction="none"), _loss(33, 5, reduction="sum")]
    per_row = _loss(16, 37, reduction="none")
    yield from indexed("input", calls, _OF_CLASSES, lambda n: _loss(3, max(n, 1)), {"input": {"fill": "randn"}})
    yield from variations("sizes", of("input", ("float32",), [_loss(n, 5) for n in SIZES if n]))
    weighted = [_loss(4, 37, weighted=True, reduction=kind) for kind in ("none", "sum", "mean")]
    deep = _loss(2, 5, 3, 4, weighted=True)
    yield from in_every_layout([{**weighted[0], "dtypes": ["float32", "int64", "float32"]}], names=["weight"])
    for name in EVERY_FLOAT:
        cases = ({**case, "dtypes": [name, "int64", name]} for case in (*weighted, deep))
        yield from variations("weights", cases)
    unweighted = [_loss(*shape, reduction=kind) for shape in ((9, 4), (2, 6, 5)) for kind in ("none", "sum", "mean")]
    yield from variations("attributes", of("input", MAIN_FLOATS, [*unweighted, _loss(7), _loss(3, 1)]))
    yield from variations("attributes", [_loss(2, 3, 2, 2, 2, 3), _loss(2, 3, 2, 2, 2, 3, reduction="none")])
    # An ignored target may be a valid class, too.
    for ignored, kind in ((-100, "mean"), (2, "mean"), (2, "sum"), (-100, "none"), (0, "none")):
        targets = data_fill([ignored, 1, 4, ignored, 3, 1])
        rows = _loss(6, 5, ignore_index=ignored, reduction=kind)
        yield from variations("ignored", of("input", MAIN_FLOATS, with_fills([rows], target=targets)))
    for fill in _LOGIT_RANGES:
        yield from variations("special", of("input", MAIN_FLOATS, with_fills([per_row], input=fill)))
    yield from variations("special", of("input", MAIN_FLOATS, with_fills([per_row], input="special")))
    masked = data_fill(
        [["-inf", 1.0, "-inf", 2.0], ["inf", 0.0, 1.0, 2.0], [0.0, "nan", 1.0, 2.0], [0.0, -90.0, 1.0, 0.0]]
    )
    rows = _loss(4, 4, reduction="none")
    yield from variations(
        "special", of("input", MAIN_FLOATS, with_fills([rows], input=masked, target=data_fill([1, 0, 2, 1])))
    )
    # Rows longer than one block of threads, and many short ones.
    long = [_loss(2, 65536), _loss(4097, 3), _loss(2, 1025, 3, reduction="none")]
    yield from variations("long", of("input", MAIN_FLOATS, long))
    # More rows than 16 bits index.
    many = _loss(LARGE_SIZE, 17, reduction="none")
    yield from variations("long", of("input", ("float32",), [many, _loss(LARGE_SIZE, 3)]))
    yield from variations("smoothing", of("input", MAIN_FLOATS, _smoothed_calls(_loss)))
    yield from variations("empty", [_loss(0, 5, reduction="sum"), _loss(0, 5, reduction="none")])
    yield from error_samples(
        call(input=(3, 4), target=(4,)),
        call(input=(3, 4), target=(3, 1)),
        call(input=(3, 4), target=(3,), weight=(3,)),
        call(input=(3, 4), target=(3,), dtypes=("float32", "float32")),
    )
    yield from outside(_loss(5, 4, reduction="none"), "target", [[0, 1, 2, 3, 3]], 4)


def _smoothed_calls(rows: Callable[..., dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield calls with label smoothing: few and many classes, ignored targets, and weights."""
    for kind in ("none", "sum", "mean"):
        yield rows(9, 37, label_smoothing=0.1, reduction=kind)
        yield {**rows(4, 257, label_smoothing=0.5, reduction=kind), "generator": {"input": uniform(20.0, 30.0)}}
        ignored = {"target": data_fill([2, 1, 4, 2, 3, 1])}
        yield {**rows(6, 5, label_smoothing=0.2, ignore_index=2, reduction=kind), "generator": ignored}
    yield from (rows(3, 5, 7, label_smoothing=0.25, weighted=True, reduction=kind) for kind in ("none", "mean"))


def _loss_gradient(*shape: int, **options: Any) -> dict[str, Any]:
    """Return a cross_entropy_backward call: that of the loss, with grad_output."""
    case = _loss(*shape, **options)
    is_per_row = case.get("attributes", {}).get("reduction") == "none"
    return {**case, "shapes": {"grad_output": case["shapes"]["target"] if is_per_row else [], **case["shapes"]}}


def cross_entropy_backward_samples() -> Iterator[Sample]:
    calls = [_loss_gradient(4, 37), _loss_gradient(3, 5, 7, reduction="none"), _loss_gradient(33, 5, reduction="sum")]
    variants = [(name, name, index) for name, index in _OF_CLASSES]
    yield from indexed("input", calls, variants, lambda n: _loss_gradient(3, max(n, 1)), {"input": {"fill": "randn"}})
    yield from in_every_layout(calls[1:2], names=["grad_output"])
    yield from variations(
        "layouts", of("input", MAIN_FLOATS[1:], (sample.case for sample in in_layouts_at_once(calls[1:2])))
    )
    sizes = [_loss_gradient(n, 5, reduction=kind) for n in (1, 17, 129, 1025) for kind in ("none", "mean")]
    yield from variations("sizes", of("input", ("float32",), sizes))
    weighted = [_loss_gradient(4, 37, weighted=True, reduction=kind) for kind in ("none", "sum", "mean")]
    for name in EVERY_FLOAT:
        dtypes = [name, name, "int64", name]
        deep = _loss_gradient(2, 5, 3, weighted=True)
        yield from variations("weights", ({**case, "dtypes": dtypes} for case in (*weighted, deep)))
    single = {**weighted[0], "dtypes": ["float32", "float32", "int64", "float32"]}
    yield from in_every_layout([single], names=["weight"])
    yield from variations(
        "attributes", of("input", MAIN_FLOATS, [_loss_gradient(7), _loss_gradient(3, 1), _loss_gradient(2, 6, 5)])
    )
    yield from variations(
        "attributes", [_loss_gradient(2, 3, 2, 2, 2, 3), _loss_gradient(2, 3, 2, 2, 2, 3, reduction="none")]
    )
    for ignored, kind in ((-100, "mean"), (2, "mean"), (2, "sum"), (0, "none")):
        targets = data_fill([ignored, 1, 4, ignored, 3, 1])
        cases = with_fills([_loss_gradient(6, 5, ignore_index=ignored, reduction=kind)], target=targets)
        yield from variations("ignored", of("input", MAIN_FLOATS, cases))
    # Without any counted target the mean would be 0 / 0; the sum is 0.
    all_ignored = with_fills([_loss_gradient(2, 5, ignore_index=3, reduction="sum")], target=data_fill([3, 3]))
    yield from variations("ignored", of("input", MAIN_FLOATS, all_ignored))
    yield from variations("smoothing", of("input", MAIN_FLOATS, _smoothed_calls(_loss_gradient)))
    for fill in _LOGIT_RANGES:
        yield from variations("special", of("input", MAIN_FLOATS, with_fills(calls[1:2], input=fill)))
    masked = data_fill([["-inf", 1.0, "-inf", 2.0], [0.0, "nan", 1.0, 2.0], [0.0, -90.0, 1.0, 0.0]])
    rows = _loss_gradient(3, 4, reduction="none")
    yield from variations(
        "special", of("input", MAIN_FLOATS, with_fills([rows], input=masked, target=data_fill([1, 2, 1])))
    )
    long = [_loss_gradient(2, 65536), _loss_gradient(4097, 3), _loss_gradient(LARGE_SIZE, 17, reduction="none")]
    yield from variations("long", of("input", ("float32",), long))
    yield from variations("empty", [_loss_gradient(0, 5, reduction="sum"), _loss_gradient(0, 5, reduction="none")])
    yield from error_samples(
        call({"reduction": "none"}, grad_output=(), input=(3, 4), target=(3,)),
        call(grad_output=(3,), input=(3, 4), target=(3,)),
        call(grad_output=(), input=(3, 4), target=(4,)),
    )
    yield from outside(_loss_gradient(5, 4, reduction="none"), "target", [[0, 1, 2, 3, 3]], 4)
