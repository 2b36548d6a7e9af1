"""What grouped_matmul computes, and its terms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, inferred, quiet_hooks
from optest.operators.budgets import terms_of_products
from optest.operators.contraction.grouped_matmul import infer_grouped_matmul
from optest.spec import Terms, UnfitArguments


def grouped_matmul_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    inferred(infer_grouped_matmul, inputs, attributes)
    return (_by_expert(as_float64(inputs[0]), as_float64(inputs[1]), inputs[2]),)


def grouped_matmul_terms(inputs: Inputs, _attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the products."""
    x, weight = (np.abs(as_float64(each)) for each in inputs[:2])
    absolute, squared = (_by_expert(one, other, inputs[2]) for one, other in ((x, weight), (x * x, weight * weight)))
    return (terms_of_products(absolute, squared, x.shape[1], np.asarray(inputs[0])),)


def grouped_matmul_alternatives(inputs: Inputs, _attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Anything behind the last expert."""
    end = int(np.asarray(inputs[2])[-1]) if np.asarray(inputs[2]).size else 0
    return (np.broadcast_to(np.arange(len(actual[0]))[:, None] >= end, actual[0].shape),)


def _by_expert(x: Array, weight: Array, offs: Any) -> Array:
    """0 behind the last expert.

    Raises:
        UnfitArguments: for offsets that fall or leave the rows.
    """
    ends = [0, *np.asarray(offs).tolist()]
    if sorted(ends) != ends or ends[-1] > len(x):
        raise UnfitArguments(f"offs is {ends[1:]}, but should rise to {len(x)} at most")
    out = np.zeros((len(x), weight.shape[2]))
    for expert, (start, stop) in enumerate(pairwise(ends)):
        out[start:stop] = x[start:stop] @ weight[expert]
    return out


quiet_hooks(globals())
