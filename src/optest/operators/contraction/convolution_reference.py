"""What convolutions compute, and their terms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, optional_input, quiet, spec_of, widen
from optest.operators.budgets import terms_of_products
from optest.operators.contraction.convolution import Walk, walk_of
from optest.operators.contraction.matmul_reference import product, result_of, with_bias
from optest.spec import Terms


def _reference(inputs: Inputs, attributes: Attributes, rank: int) -> tuple[Array, ...]:
    x, weight, bias = _operands(inputs)
    walk = _walk(inputs, attributes, rank)
    result = result_of(np.asarray(inputs[0]), attributes)
    total = product(_rows(widen(weight), walk), _columns(widen(x), walk), result)
    return (with_bias(_placed(total, x, weight, walk), None if bias is None else _along(widen(bias), rank)),)


def _terms(inputs: Inputs, attributes: Attributes, rank: int) -> tuple[Terms, ...]:
    x, weight, bias = _operands(inputs)
    walk = _walk(inputs, attributes, rank)
    rows, columns = np.abs(_rows(as_float64(weight), walk)), _columns(np.abs(as_float64(x)), walk)
    absolute = _placed(np.matmul(rows, columns), x, weight, walk)
    np.multiply(columns, columns, out=columns)
    squared = _placed(np.matmul(rows * rows, columns), x, weight, walk)
    count = rows.shape[-1]
    if bias is not None:
        added = np.abs(_along(as_float64(bias), rank))
        absolute, squared, count = absolute + added, squared + added * added, count + 1
    return (terms_of_products(absolute, squared, count, x),)


def _reference_of(rank: int) -> Callable[[Inputs, Attributes], tuple[Array, ...]]:
    return quiet(lambda inputs, attributes: _reference(inputs, attributes, rank))


def _terms_of(rank: int) -> Callable[[Inputs, Attributes], tuple[Terms, ...]]:
    @quiet
    def terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
        """The terms are the products under the kernel, those with padding included, and the bias."""
        return _terms(inputs, attributes, rank)

    return terms


conv1d_reference, conv2d_reference, conv3d_reference = map(_reference_of, (1, 2, 3))
conv1d_terms, conv2d_terms, conv3d_terms = map(_terms_of, (1, 2, 3))


def _operands(inputs: Inputs) -> tuple[Array, Array, Array | None]:
    return np.asarray(inputs[0]), np.asarray(inputs[1]), optional_input(inputs, 2)


def _walk(inputs: Inputs, attributes: Attributes, rank: int) -> Walk:
    return walk_of(spec_of(np.asarray(inputs[0])), spec_of(np.asarray(inputs[1])), attributes, rank)


def _along(bias: Array, rank: int) -> Array:
    return bias.reshape(-1, *(1,) * rank)


def _rows(weight: Array, walk: Walk) -> Array:
    """(groups, output channels of a group, products)."""
    return np.ascontiguousarray(weight).reshape(walk.groups, weight.shape[0] // walk.groups, -1)


def _columns(x: Array, walk: Walk) -> Array:
    """(batch, groups, products, positions): what the kernel sees at each position, as a copy of its own."""
    rank = len(walk.kernel)
    batched = x if x.ndim == rank + 2 else x[None]
    padded = np.pad(batched, ((0, 0), (0, 0), *walk.padding)) if any(map(any, walk.padding)) else batched
    lead, steps = padded.strides[:2], padded.strides[2:]
    seen = np.lib.stride_tricks.as_strided(
        padded,
        (*padded.shape[:2], *walk.kernel, *walk.out),
        (
            *lead,
            *(step * dilation for step, dilation in zip(steps, walk.dilation, strict=True)),
            *(step * stride for step, stride in zip(steps, walk.stride, strict=True)),
        ),
        writeable=False,
    )
    products = padded.shape[1] // walk.groups * walk.taps
    return np.asarray(seen.copy().reshape(padded.shape[0], walk.groups, products, int(np.prod(walk.out))))


def _placed(total: Array, x: Array, weight: Array, walk: Walk) -> Array:
    """(batch, groups, channels, positions) as the output has it."""
    lead = x.shape[: x.ndim - len(walk.kernel) - 1]
    return np.asarray(total.reshape(*lead, weight.shape[0], *walk.out))
