"""Estimates of a case's memory before it is allocated, and upper bounds of its number of output elements."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from math import prod
from pathlib import Path

import numpy as np
import torch

from optest.spec import RuleClass, TensorSpec, TestCase
from optest.spec.calls import TensorRef
from optest.torch.calls.call import torch_call
from optest.torch.calls.refusals import REFUSALS
from optest.torch.fact_sheet import facts_of
from optest.torch.tensors import TORCH_DTYPES

_MEMINFO = Path("/proc/meminfo")
_LIMIT, _USED = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
_MIN_LIMIT = 2 << 30
# Half of the available memory: the estimate is not exact, and other programs need memory, too.
_SHARE = 2
_META = torch.device("meta")
# An input exists as generated, and as copied by the backend and the reference.
_COPIES = 3
_WIDE_BYTES = 8
# Inputs have gradients, outputs upstream gradients, and torch keeps intermediate results.
_WITH_GRADIENTS = 3
# Bytes per element of outputs of the widest dtype, in float64 and with error terms, for up to three outputs. It decides
# most cases without shape inference, which takes longer than most calls, and the first time a second.
_MAX_OUTPUT_BYTES = 3 * (2 * 16 + 3 * _WIDE_BYTES)


def available_bytes() -> int | None:
    """Return the bytes available without swapping, on the machine or within its container's limit; None if unknown."""
    limits = []
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable:"))
        limits.append(int(line.split()[1]) << 10)
    with suppress(OSError, ValueError):  # "max" means no limit
        limits.append(int(_LIMIT.read_text()) - int(_USED.read_text()))
    return min(limits) if limits else None


def default_limit() -> int:
    """Return the default memory limit of a case in bytes: half of the memory available now, at least 2 GiB."""
    return max(_MIN_LIMIT, (available_bytes() or 0) // _SHARE)


def why_too_large(case: TestCase, most: int | None) -> str | None:
    """Return the reason to skip a case that needs more than ``most`` bytes; None if it fits or there is no limit."""
    if most is None:
        return None
    specs = tuple(argument.spec for argument in case.inputs)
    elements = elements_at_most(case.attributes["call"], specs)
    if elements is not None and _with_outputs(case, elements * _MAX_OUTPUT_BYTES) <= most:
        return None
    if elements is not None and _with_outputs(case, 0) > most:
        widest = max(spec.dtype.itemsize_bytes for spec in specs)
        needed = _with_outputs(case, elements * (2 * widest + _wide_bytes(case)))
    else:
        needed = bytes_needed(case)
    if needed <= most:
        return None
    return f"too large: it needs about {_size_text(needed)} of memory, but --max-bytes is {_size_text(most)}"


def bytes_needed(case: TestCase) -> int:
    """Estimate a case's memory: copies of the inputs, the float64 reference with its error terms, and all outputs."""
    specs = tuple(argument.spec for argument in case.inputs)
    return _with_outputs(case, _bytes_of_outputs(case.attributes["call"], specs, _wide_bytes(case)))


def _wide_bytes(case: TestCase) -> int:
    """Return the bytes per element of the float64 reference and its error terms; 0 for exact rules, which need none."""
    rule = case.descriptor.rule
    is_moved = rule is not None and rule.kind in (RuleClass.MOVEMENT, RuleClass.EXACT)
    return 0 if is_moved else _WIDE_BYTES * (3 if case.descriptor.terms is not None else 1)


def _with_outputs(case: TestCase, outputs: int) -> int:
    """Return the bytes of all inputs plus ``outputs``, three times that with gradients."""
    wide = _wide_bytes(case)
    specs = [argument.spec for argument in case.inputs]
    forward = outputs + sum(s.storage_elements * (_COPIES * s.dtype.itemsize_bytes + wide) for s in specs)
    return forward * _WITH_GRADIENTS if case.attributes.get("grad") else forward


@lru_cache(maxsize=4096)
def _bytes_of_outputs(text: str, specs: tuple[TensorSpec, ...], wide: int) -> int:
    """Return the bytes of all outputs: two copies and ``wide`` bytes per element; 0 if shapes depend on values."""
    tensors = [torch.empty(spec.shape, dtype=TORCH_DTYPES[spec.dtype.name], device=_META) for spec in specs]
    try:
        leaves = torch_call(text).on(tensors, _META)()
    except REFUSALS:
        return 0
    outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return sum(prod(leaf.shape) * (2 * leaf.element_size() + wide) for leaf in outputs)


def _size_text(count: int) -> str:
    if count < 2**18:
        return f"{count / 2**10:.1f} KiB" if count >= 2**10 else f"{count} bytes"
    return f"{count / 2**30:.1f} GiB" if count >= 2**28 else f"{count / 2**20:.1f} MiB"


def elements_at_most(text: str, specs: Sequence[TensorSpec]) -> int | None:
    """Return an upper bound of the elements of each output, from name and shapes only; None if unknown."""
    call = torch_call(text).call
    match facts_of(call.function).size:
        case "given":
            return sum(spec.elements for spec in specs)
        case "attention":
            # One row of the size of a value per query, unless keys or values are broadcast to more batches.
            if len(call.args) < 3 or not all(isinstance(arg, TensorRef) for arg in call.args[:3]):
                return None
            query, key, value = (specs[arg.index].shape for arg in call.args[:3] if isinstance(arg, TensorRef))
            if not len(query) == len(key) == len(value) >= 2 or not query[-1]:
                return None
            if any(size > most for shape in (key, value) for size, most in zip(shape[:-2], query[:-2], strict=True)):
                return None
            return int(np.prod(query, dtype=object)) // query[-1] * value[-1]
        case "product" | "rows" as way:
            # One element per row and column, as if all pairs of batches were multiplied.
            if len(call.args) < 2 or not all(isinstance(arg, TensorRef) for arg in call.args[:2]):
                return None
            first, second = (specs[arg.index] for arg in call.args[:2] if isinstance(arg, TensorRef))
            if way == "rows":
                return first.elements * second.shape[-1] if second.shape else None
            summed = first.shape[-1] if first.shape else 0
            return first.elements // summed * (second.elements // summed) if summed else None
    if not _is_element_by_element(call.operator):
        return None
    if specs and all(spec.shape == specs[0].shape for spec in specs):
        return specs[0].elements
    try:
        shape = np.broadcast_shapes(*(spec.shape for spec in specs))
    except ValueError:
        return None
    return int(np.prod(shape, dtype=object))


@lru_cache(maxsize=1024)
def _is_element_by_element(name: str) -> bool:
    """Return whether torch tags an aten operator as pointwise or reduction: no output exceeds the broadcast shape."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    return any({torch.Tag.pointwise, torch.Tag.reduction} & set(overload.tags) for overload in overloads)
