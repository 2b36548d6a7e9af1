"""What products of matrices may lose."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import (
    Attributes,
    Inputs,
    as_float64,
    quiet,
)
from optest.operators.contraction.references import gemm_operands, linear_operands
from optest.operators.products import terms_of_products
from optest.spec import Terms

__all__ = [
    "bmm_terms",
    "gemm_terms",
    "linear_terms",
    "matmul_terms",
]


@quiet
def matmul_terms(inputs: Inputs, _attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the products. Below the normal range a product is off by half a subnormal, whatever its size,
    for which the bound has room as well: here and wherever products are added up."""
    a, b = as_float64(inputs[0]), as_float64(inputs[1])
    absolute, squared = np.asarray(np.abs(a) @ np.abs(b)), np.asarray((a * a) @ (b * b))
    return (terms_of_products(absolute, squared, a.shape[-1], np.asarray(inputs[0])),)


bmm_terms = matmul_terms


@quiet
def gemm_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """alpha · products and beta · c; the factors' own roundings count as further terms."""
    a, b, c = gemm_operands(inputs, attributes)
    alpha, beta = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
    a, b = a.astype(np.float64), b.astype(np.float64)
    shape = (*a.shape[:-1], b.shape[-1])
    absolute, squared = np.zeros(shape), np.zeros(shape)
    if alpha:
        absolute = abs(alpha) * (np.abs(a) @ np.abs(b))
        squared = alpha * alpha * ((a * a) @ (b * b))
    count = a.shape[-1] + (alpha != 1)
    if c is not None:
        added = beta * c.astype(np.float64)
        absolute, squared = absolute + np.abs(added), squared + added * added
        count += 1 + (beta != 1)
    return (terms_of_products(absolute, squared, count, np.asarray(inputs[0]), factor=alpha),)


@quiet
def linear_terms(inputs: Inputs, _attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the products and the bias."""
    x, weight, bias = linear_operands(inputs)
    x, weight = x.astype(np.float64, copy=False), weight.astype(np.float64, copy=False)
    absolute, squared = np.asarray(np.abs(x) @ np.abs(weight)), np.asarray((x * x) @ (weight * weight))
    count = x.shape[-1]
    if bias is not None:
        added = np.abs(bias.astype(np.float64))
        absolute, squared, count = absolute + added, squared + added * added, count + 1
    return (terms_of_products(absolute, squared, count, np.asarray(inputs[0])),)
