"""How much memory a case needs, told before any of it is taken."""

from __future__ import annotations

from functools import lru_cache
from math import prod

import torch

from optest.backends.torch_calls.calling import torch_call
from optest.backends.torch_tensors import TORCH_DTYPES
from optest.spec import RuleClass, TensorSpec, TestCase

__all__ = ["bytes_needed", "why_too_large"]

_META = torch.device("meta")
_COPIES = 3
"""Of an input: as it is drawn, the backend's own, and the reference's."""

_REFUSALS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What torch refuses a call with, or to tell without values what it yields."""

_WIDE_BYTES = 8
_WITH_GRADIENTS = 3
"""Every input has a gradient, every output one from above, and torch keeps what lies between them."""


def why_too_large(case: TestCase, most: int | None) -> str | None:
    """Why the case is left out, None if it fits."""
    if most is None:
        return None
    needed = bytes_needed(case)
    if needed <= most:
        return None
    return f"it needs about {_shown(needed)} of memory, but --max-bytes is {_shown(most)}"


def bytes_needed(case: TestCase) -> int:
    """An estimate: copies of the inputs, the reference in float64 with its error terms, and all outputs."""
    rule = case.descriptor.rule
    is_moved = rule is not None and rule.kind in (RuleClass.MOVEMENT, RuleClass.EXACT)
    wide = 0 if is_moved else _WIDE_BYTES * (3 if case.descriptor.terms is not None else 1)
    specs = tuple(argument.spec for argument in case.inputs)
    given = sum(spec.storage_elements * (_COPIES * spec.dtype.itemsize_bytes + wide) for spec in specs)
    forward = given + _bytes_of_outputs(case.attributes["call"], specs, wide)
    return forward * _WITH_GRADIENTS if case.attributes.get("grad") else forward


@lru_cache(maxsize=4096)
def _bytes_of_outputs(text: str, specs: tuple[TensorSpec, ...], wide: int) -> int:
    """Of what the call yields, twice and in float64; 0 where only the values say how much that is."""
    tensors = [torch.empty(spec.shape, dtype=TORCH_DTYPES[spec.dtype.name], device=_META) for spec in specs]
    try:
        leaves = torch_call(text).on(tensors, _META)()
    except _REFUSALS:
        return 0
    outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return sum(prod(leaf.shape) * (2 * leaf.element_size() + wide) for leaf in outputs)


def _shown(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**28 else f"{count / 2**20:.1f} MiB"
