"""How many operators torch has, so that a run can say which share of them it asked for.

torch itself lists what a tensor of another kind has to answer (``torch.overrides``); a function, its method and its
in-place form are one operator: ``torch.add``, ``torch.Tensor.add``, ``torch.add_`` and ``+``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import lru_cache

import torch

from optest.spec.call_names import canonical

__all__ = ["declared"]


def declared(names: Iterable[str]) -> tuple[int, list[str]]:
    """The number of torch's operators, and which of these names are not among them (those that make tensors of
    nothing, operators of ``torch.ops`` that are no aten ones)."""
    known = _known()
    return len(known), sorted(name for name in names if canonical(name).operator not in known)


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    listed = torch.overrides.get_overridable_functions()
    return frozenset(
        name
        for home, functions in listed.items()
        if inspect.ismodule(home) or home is torch.Tensor
        for name in (canonical(f"torch.{getattr(function, '__name__', '')}").operator for function in functions)
        if name and name != "get"  # of a property
    )
