"""What a library says that an operator of its takes: dtypes, ranks and layouts of the mapping, held against tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from optest.clib.library.layouts import Gap, strides_of
from optest.clib.library.mapping import LAYOUTS
from optest.clib.library.mapping_words import SAME
from optest.clib.library.operator_mapping import OperatorMapping
from optest.spec import TensorSpec, TestCase

__all__ = ["outputs_of", "require_dtypes", "require_layouts", "require_ranks", "tensors_of"]

Tensors = Mapping[str, TensorSpec]
"""By name."""


def tensors_of(case: TestCase) -> dict[str, TensorSpec]:
    """Inputs and outputs by name."""
    return {**{each.name: each.spec for each in case.inputs}, **outputs_of(case)}


def outputs_of(case: TestCase) -> dict[str, TensorSpec]:
    """By name, as far as the case has them."""
    names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
    return dict(zip(names, case.outputs, strict=False))


def require_dtypes(tensors: Tensors, entry: OperatorMapping, free: Collection[str] = ()) -> str:
    """The dtype that the tensors share; those that are ``free``, since C is told theirs in a wrong call, may have any.

    Raises:
        Gap: for a dtype, or a mixture of them, that the operator does not have.
    """
    function = entry.any_function
    alike: list[str] = []
    for tensor, spec in tensors.items():
        own, allowed = spec.dtype.name, entry.dtypes_of.get(tensor)
        if tensor in free:
            alike += [] if alike else [own]
        elif allowed is None or (SAME in allowed and own not in allowed):
            alike.append(own)
        elif own not in allowed:
            raise Gap(f"{function} takes {tensor} of {' or '.join(allowed)}, but the case has {own}")
    shared = list(dict.fromkeys(alike))
    if len(shared) > 1:
        raise Gap(f"{function} takes tensors of one dtype, but the case has {', '.join(sorted(shared))}")
    name = shared[0] if shared else next(iter(entry.dtypes), "")
    has_any = len(free) == len(tensors) and len(set(entry.functions.values())) < 2
    if entry.dtypes and name not in entry.dtypes and not has_any:
        known = ", ".join(dict.fromkeys(entry.functions.values())) or f"{function} for {', '.join(entry.dtypes)}"
        raise Gap(f"there is no function for {name}; there is {known}")
    return name or next((spec.dtype.name for spec in tensors.values()), "float32")


def require_layouts(tensors: Tensors, entry: OperatorMapping) -> None:
    """Raise a gap for a tensor that lies in memory as the operator does not take it."""
    for tensor, needed in entry.layouts.items():
        if tensor in tensors and not _has_layout(tensors[tensor], needed):
            raise Gap(f"{entry.any_function} takes no {tensor} {tensors[tensor]}, but {needed}: {LAYOUTS[needed]}")


def _has_layout(spec: TensorSpec, needed: str) -> bool:
    if needed == "dense":
        return spec.is_dense
    innermost = strides_of(spec)[-2:]
    return not innermost or 1 in (innermost if needed == "matrix" else innermost[-1:])


def require_ranks(tensors: Tensors, entry: OperatorMapping) -> None:
    """Raise a gap for a number of dimensions that the operator does not take."""
    for tensor, allowed in entry.ranks.items():
        if tensor in tensors and tensors[tensor].rank not in {each.among(tensors) for each in allowed}:
            raise Gap(f"{entry.any_function} takes no {tensor} of {tensors[tensor].rank} dimensions")
