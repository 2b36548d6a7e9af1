"""The call of a case, made once on the CPU: whether torch takes it, and what has to be said of its outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from optest.backends.torch_calls.binding import CannotBind, bound
from optest.backends.torch_calls.calling import torch_call
from optest.backends.torch_calls.descriptors import CatalogueAlternatives, CatalogueTerms
from optest.compare.assert_close import close_tolerance
from optest.generators.opinfo import array_of
from optest.operators import operators
from optest.spec import DType, RuleClass, UnfitArguments, dtype, dtype_names

__all__ = ["Refused", "copied", "facts_of_outputs"]

_REFUSALS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What torch refuses arguments with."""


class Refused(ValueError):
    """Torch on the CPU does not take the call; the message is what it says."""


def facts_of_outputs(text: str, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """The keys of an entry about the outputs of the call: that one has no elements, that no rule judges them.

    Raises:
        Refused: if torch on the CPU raises.
    """
    call = torch_call(text)
    try:
        with torch.no_grad():
            leaves = call.on([copied(tensor) for tensor in tensors], torch.device("cpu"))()
    except _REFUSALS as error:
        first = str(error).strip().partition("\n")[0]
        raise Refused(f"{type(error).__name__}: {first[:200]}") from None
    if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return {}
    outputs = {f"output{index}": leaf for index, leaf in enumerate(leaves)}
    facts: dict[str, Any] = {}
    if not all(leaf.numel() for leaf in leaves):
        facts["shapes"] = {name: list(leaf.shape) for name, leaf in outputs.items()}
        facts["dtypes"] = {name: _dtype(leaf).name for name, leaf in outputs.items()}
    if leaves and not _is_judged(call.call.function, text, tensors, leaves):
        facts["tolerance"] = _close({name: _dtype(leaf) for name, leaf in outputs.items()})
    return facts


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in memory of its own with the same strides, overlap included: some calls change what they are given."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    storage = tensor.detach().as_strided((span if tensor.numel() else 0,), (1,), tensor.storage_offset()).clone()
    return storage.as_strided(tensor.shape, tensor.stride())


def _dtype(tensor: torch.Tensor) -> DType:
    """The dtype of an output.

    Raises:
        Refused: for one that optest does not know.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in dtype_names():
        raise Refused(f"an output is {name}, which optest does not know")
    return dtype(name)


def _close(outputs: Mapping[str, DType]) -> dict[str, Any]:
    """What torch.testing allows for each output, where nothing is said of the rest."""
    allowed = {name: close_tolerance(kind) or (0.0, 0.0) for name, kind in outputs.items()}
    stated = {name: {"rtol": rtol, "atol": atol} for name, (rtol, atol) in allowed.items()}
    first, *_ = stated.values()
    return {**first, **{name: each for name, each in stated.items() if each != first}}


def _is_judged(function: str, text: str, tensors: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> bool:
    """Whether the rule of the catalogue's operator of that name, if there is one, has a word for all that is said.

    Its ceilings for functions are those of real numbers.
    """
    descriptor = operators.get(function)
    known = descriptor.terms if isinstance(descriptor.terms, CatalogueTerms) else descriptor.alternatives
    is_of_reals = descriptor.rule is not None and descriptor.rule.kind in (RuleClass.ULP, RuleClass.COMPOSED)
    if is_of_reals and any(each.is_complex() for each in (*tensors, *leaves)):
        return False
    if not isinstance(known, (CatalogueTerms, CatalogueAlternatives)):
        return True
    inputs = [array_of(tensor) for tensor in tensors]
    try:
        bound(known.operator, text, inputs)
        if isinstance(known, CatalogueTerms):
            known(inputs, {"call": text})
    except (CannotBind, UnfitArguments):
        return False
    return True
