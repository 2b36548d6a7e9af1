"""What a library says that an operator of its takes: dtypes and ranks of the mapping, held against tensors."""

from __future__ import annotations

from collections.abc import Mapping

from optest.clib.library.direct import SAME, DirectCall
from optest.clib.library.mapping import LAYOUTS, RANK, OperatorMapping
from optest.spec import TensorSpec, TestCase, contiguous_strides

__all__ = ["SAME", "lack_of_dtypes", "lack_of_layouts", "lack_of_tensors", "tensors_of"]


def tensors_of(case: TestCase) -> dict[str, TensorSpec]:
    """Inputs and outputs by name."""
    names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
    return {
        **{each.name: each.spec for each in case.inputs},
        **dict(zip(names, case.outputs, strict=False)),
    }


def lack_of_tensors(case: TestCase, entry: OperatorMapping) -> str | None:
    """What the operator does not have of what the case asks (``for int8``), None if it has it all."""
    tensors = tensors_of(case)
    return lack_of_dtypes(tensors, entry) or _lack_of_ranks(tensors, entry)


def lack_of_dtypes(tensors: Mapping[str, TensorSpec], entry: OperatorMapping | DirectCall) -> str | None:
    """Which dtype, or mixture of them, the operator does not have; None if it has it."""
    if not entry.dtypes and not entry.dtypes_of:
        return None
    alike = list(dict.fromkeys(spec.dtype.name for name, spec in tensors.items() if name not in entry.dtypes_of))
    for name in alike:
        if entry.dtypes and name not in entry.dtypes:
            return f"for {name}"
    if len(alike) > 1:
        return f"for {' with '.join(alike)}"
    for tensor, allowed in entry.dtypes_of.items():
        if tensor in tensors:
            own = tensors[tensor].dtype.name
            if own not in allowed and not (SAME in allowed and own in alike):
                return f"for {own} as {tensor}"
    return None


def lack_of_layouts(tensors: Mapping[str, TensorSpec], entry: OperatorMapping) -> str | None:
    """Which tensor lies in memory as the operator does not take it; None if each does as it should."""
    for tensor, needed in entry.layouts.items():
        if tensor in tensors and not _has_layout(tensors[tensor], needed):
            return f"for {tensor} {tensors[tensor]}: {LAYOUTS[needed]}"
    return None


def _has_layout(spec: TensorSpec, needed: str) -> bool:
    if needed == "dense":
        return spec.is_dense
    innermost = (contiguous_strides(spec.shape) if spec.strides is None else spec.strides)[-2:]
    return not innermost or 1 in (innermost if needed == "matrix" else innermost[-1:])


def _lack_of_ranks(tensors: Mapping[str, TensorSpec], entry: OperatorMapping) -> str | None:
    for tensor, allowed in entry.ranks.items():
        if tensor in tensors and tensors[tensor].rank not in {_rank(each, tensors) for each in allowed}:
            return f"for {tensor} of {tensors[tensor].rank} dimensions"
    return None


def _rank(stated: int | str, tensors: Mapping[str, TensorSpec]) -> int | None:
    """A number, or some less than another tensor has; None where that one is left out."""
    rule = RANK.fullmatch(stated) if isinstance(stated, str) else None
    if rule is None:
        return stated if isinstance(stated, int) else None
    other = tensors.get(rule["name"])
    return None if other is None else other.rank - int(rule["fewer"])
