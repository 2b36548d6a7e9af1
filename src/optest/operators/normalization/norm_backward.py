"""Gradients of row normalisations: rms_norm_backward and layer_norm_backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, Call, call, normal, without
from optest.operators.describe import FLOATS, attribute, composed, in_module
from optest.operators.normalization.helpers import EPS, filled
from optest.operators.normalization.layer_norm import MEAN_SQUARE_EPS, NORMALIZED_SHAPE, normalized_shape
from optest.operators.samples import error_samples, in_layouts_at_once, standard_samples, variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense, optional_spec, require_spec
from optest.spec import OperatorDescriptor, Sample
from optest.spec.declared_shapes import match_declaration

_VARIANTS = (*FLOATS, *((half, half, "float32") for half in ("float16", "bfloat16")))

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="rms_norm_backward",
        signature="grad_output, input, weight? -> grad_input, grad_weight?",
        attributes=(NORMALIZED_SHAPE, MEAN_SQUARE_EPS),
        description="Gradients of rms_norm. With r = 1 / √(mean x² + eps), z = x · r and g = grad_output · weight, "
        "grad_input is r · (g − z · mean(g · z)); with a weight, grad_weight is the sum of grad_output · z over the "
        "rows, in the dtype of weight.",
    ),
    OperatorDescriptor(
        name="layer_norm_backward",
        signature="grad_output, input, weight? -> grad_input, grad_weight?, grad_bias?",
        attributes=(
            NORMALIZED_SHAPE,
            EPS,
            attribute("bias: bool = True", "Return grad_bias in addition to grad_weight."),
        ),
        description="Gradients of layer_norm. With r = 1 / √(variance + eps), z = (x − mean) · r and "
        "g = grad_output · weight, grad_input is r · (g − mean g − z · mean(g · z)); with a weight, grad_weight is the "
        "sum of grad_output · z over the rows and grad_bias that of grad_output, in the dtype of weight.",
    ),
    twin="norm_backward_reference",
    dtype_variants=_VARIANTS,
    sum_length="longest_sum",
    rule=composed("errors of z and r, of the means and of the sums over rows, added up step by step"),
)


def infer_rms_norm_backward(specs: Specs, attributes: Attributes) -> Outputs:
    shape, weight = normalized_shape(require_spec(specs, 1, "input"), attributes), optional_spec(specs, 2)
    declared = "grad_output: T[*shape], input: T[*shape], weight?: T|float32[*normalized_shape] -> T[*shape]"
    _, outputs = match_declaration(specs, declared, normalized_shape=shape)
    return outputs if weight is None else (*outputs, dense(weight.dtype, shape))


def infer_layer_norm_backward(specs: Specs, attributes: Attributes) -> Outputs:
    # grad_bias has the spec of grad_weight.
    out, *weight_gradient = infer_rms_norm_backward(specs, attributes)
    return (out, *weight_gradient, *(weight_gradient if attributes.get("bias", True) else ()))


def longest_sum(specs: Specs, attributes: Attributes) -> int:
    """Return the length of the longer sum: over the columns of a row, or over the rows."""
    columns = prod(attributes["normalized_shape"])
    return max(columns, require_spec(specs, 0, "grad_output").elements // max(columns, 1))


def _gradient_samples(norm_gradient: Callable[..., Call], *calls: Call) -> Iterator[Sample]:
    """Yield the case sets that both operators share; `whole` builds calls, `calls` are the ordinary ones."""
    yield from standard_samples(calls, FLOATS, sized=lambda n: norm_gradient((3,), n), special=False)
    yield from variations("sizes", [norm_gradient((n,), 5) for n in (1, 17, 129, 1025)])
    for half in MAIN_FLOATS[1:]:
        mixed = [{**case, "dtypes": [half, half, "float32"]} for case in calls[:2]]
        yield from variations("dtypes", mixed)
        yield from in_layouts_at_once(mixed[:1])
    yield from variations("attributes", [without(case, "weight") for case in calls[:2]], dtypes=MAIN_FLOATS)
    yield from variations(
        "attributes", [norm_gradient((), 3, 5), norm_gradient((2,), 3, 1, 5), norm_gradient((4, 3), 1)]
    )
    for std, eps in ((1e-3, 1e-5), (0.5, 0.1)):
        yield from variations(
            "epsilon", [filled(norm_gradient((4,), 65, eps=eps), normal(0.0, std))], dtypes=MAIN_FLOATS
        )
    far = [
        filled(norm_gradient((4,), 257), normal(mean, std))
        for mean, std in ((-300.0, 2.0), (30.0, 0.5), (1500.0, 300.0))
    ]
    yield from variations("mean beside std", far, dtypes=MAIN_FLOATS)
    yield from variations("long", [norm_gradient((2,), 65536), norm_gradient((LARGE_SIZE,), 3)], dtypes=("float32",))
    yield from variations("long", [norm_gradient((300,), 17)], dtypes=MAIN_FLOATS)
    # A mean of 8 makes the sums over rows large.
    large = {**norm_gradient((65,), 33), "generator": {"grad_output": normal(8.0, 1.0)}}
    yield from variations("long", [large], dtypes=MAIN_FLOATS)
    # NaN and infinity must stay in their row of grad_input; weight is left out, as its gradient sums over rows.
    odd = [[1.0, 2.0, 3.0], ["nan", 1.0, 2.0], [0.5, "inf", 1.0], [0.0, 0.0, 0.0], [1.0, -1.0, 1.0]]
    rows = filled(norm_gradient((5,), 3), {"fill": "data", "values": odd})
    yield from variations("special", [without(rows, "weight")], dtypes=MAIN_FLOATS)
    yield from variations("empty", [norm_gradient((0,), 4)])
    yield from error_samples(
        call({"normalized_shape": [4]}, grad_output=(3, 4), input=(4, 4)),
        call({"normalized_shape": [3]}, grad_output=(3, 4), input=(3, 4)),
        call({"normalized_shape": [4]}, grad_output=(3, 4), input=(3, 4), weight=(3,)),
    )


def _norm_gradient(rows: Sequence[int], *shape: int, **attributes: Any) -> Call:
    """Return a call with a weight of `shape` and `rows` of that shape."""
    sizes = (*rows, *shape)
    return call({"normalized_shape": list(shape), **attributes}, grad_output=sizes, input=sizes, weight=shape)


def rms_norm_backward_samples() -> Iterator[Sample]:
    yield from _gradient_samples(
        _norm_gradient, _norm_gradient((4,), 37), _norm_gradient((3,), 5, 7), _norm_gradient((2, 3), 16, eps=1e-6)
    )


def layer_norm_backward_samples() -> Iterator[Sample]:
    yield from _gradient_samples(
        _norm_gradient,
        _norm_gradient((4,), 37),
        _norm_gradient((3,), 5, 7, bias=False),
        _norm_gradient((2, 3), 16, bias=False),
    )
