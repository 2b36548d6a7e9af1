"""How much memory a case needs, told before any of it is taken, and how many elements its outputs have at most."""

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
_LEAST_LIMIT = 2 << 30
_SHARE = 2
"""Of what is available one part in two: the estimate is near, and other programs need some as well."""

_META = torch.device("meta")
_COPIES = 3
"""Of an input: as it is drawn, the backend's own, and the reference's."""

_WIDE_BYTES = 8
_WITH_GRADIENTS = 3
"""Every input has a gradient, every output one from above, and torch keeps what lies between them."""


def available_bytes() -> int | None:
    """Bytes that could be taken without swapping, by the machine and by the limit of its container; None where the
    system does not say."""
    limits = []
    with suppress(OSError, ValueError, StopIteration):
        line = next(each for each in _MEMINFO.read_text().splitlines() if each.startswith("MemAvailable:"))
        limits.append(int(line.split()[1]) << 10)
    with suppress(OSError, ValueError):  # "max" is no number: no limit
        limits.append(int(_LIMIT.read_text()) - int(_USED.read_text()))
    return min(limits) if limits else None


def default_limit() -> int:
    """What a case may need unless somebody says otherwise: half of what is available now, 2 GiB at least."""
    return max(_LEAST_LIMIT, (available_bytes() or 0) // _SHARE)


def why_too_large(case: TestCase, most: int | None) -> str | None:
    """Why the case is left out, None if it fits."""
    if most is None:
        return None
    specs = tuple(argument.spec for argument in case.inputs)
    elements = elements_at_most(case.attributes["call"], specs)
    if elements is not None and _with_outputs(case, elements * _MOST_BYTES_OF_OUTPUTS) <= most:
        return None
    if elements is not None and _with_outputs(case, 0) > most:
        widest = max(spec.dtype.itemsize_bytes for spec in specs)
        needed = _with_outputs(case, elements * (2 * widest + _wide_bytes(case)))
    else:
        needed = bytes_needed(case)
    if needed <= most:
        return None
    return f"too large: it needs about {_shown(needed)} of memory, but --max-bytes is {_shown(most)}"


_MOST_BYTES_OF_OUTPUTS = 3 * (2 * 16 + 3 * _WIDE_BYTES)
"""Of an element in as many outputs of the widest dtype, with error terms, as a call has whose outputs are bounded.

Torch is asked for their shapes only where that decides: it takes longer than most calls, and a second at first.
"""


def bytes_needed(case: TestCase) -> int:
    """An estimate: copies of the inputs, the reference in float64 with its error terms, and all outputs."""
    specs = tuple(argument.spec for argument in case.inputs)
    return _with_outputs(case, _bytes_of_outputs(case.attributes["call"], specs, _wide_bytes(case)))


def _wide_bytes(case: TestCase) -> int:
    rule = case.descriptor.rule
    is_moved = rule is not None and rule.kind in (RuleClass.MOVEMENT, RuleClass.EXACT)
    return 0 if is_moved else _WIDE_BYTES * (3 if case.descriptor.terms is not None else 1)


def _with_outputs(case: TestCase, outputs: int) -> int:
    wide = _wide_bytes(case)
    specs = [argument.spec for argument in case.inputs]
    given = sum(spec.storage_elements * (_COPIES * spec.dtype.itemsize_bytes + wide) for spec in specs)
    forward = given + outputs
    return forward * _WITH_GRADIENTS if case.attributes.get("grad") else forward


@lru_cache(maxsize=4096)
def _bytes_of_outputs(text: str, specs: tuple[TensorSpec, ...], wide: int) -> int:
    """Of what the call yields, twice and in float64; 0 where only the values say how much that is."""
    tensors = [torch.empty(spec.shape, dtype=TORCH_DTYPES[spec.dtype.name], device=_META) for spec in specs]
    try:
        leaves = torch_call(text).on(tensors, _META)()
    except REFUSALS:
        return 0
    outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return sum(prod(leaf.shape) * (2 * leaf.element_size() + wide) for leaf in outputs)


def _shown(count: int) -> str:
    if count < 2**18:
        return f"{count / 2**10:.1f} KiB" if count >= 2**10 else f"{count} bytes"
    return f"{count / 2**30:.1f} GiB" if count >= 2**28 else f"{count / 2**20:.1f} MiB"


# How many elements the outputs of a call have at most, from its name and shapes alone, where that is plain to see.


def elements_at_most(text: str, specs: Sequence[TensorSpec]) -> int | None:
    """The most that any one output of the call may have; None where it is not known."""
    call = torch_call(text).call
    match facts_of(call.function).size:
        case "given":
            return sum(spec.elements for spec in specs)
        case "attention":
            # One row as long as a value for every query, unless keys or values are broadcast to more batches.
            if len(call.args) < 3 or not all(isinstance(each, TensorRef) for each in call.args[:3]):
                return None
            query, key, value = (specs[each.index].shape for each in call.args[:3] if isinstance(each, TensorRef))
            if not len(query) == len(key) == len(value) >= 2 or not query[-1]:
                return None
            if any(one > most for shape in (key, value) for one, most in zip(shape[:-2], query[:-2], strict=True)):
                return None
            return int(np.prod(query, dtype=object)) // query[-1] * value[-1]
        case "product" | "rows" as way:
            # One element for every row of the one operand and column of the other, as if each batch met each other one.
            if len(call.args) < 2 or not all(isinstance(each, TensorRef) for each in call.args[:2]):
                return None
            first, second = (specs[each.index] for each in call.args[:2] if isinstance(each, TensorRef))
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
    """Whether torch says of the operator that it yields what its operands are broadcast to, or less."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    overloads = [getattr(packet, each) for each in packet.overloads()]
    return any({torch.Tag.pointwise, torch.Tag.reduction} & set(each.tags) for each in overloads)
