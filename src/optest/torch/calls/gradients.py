"""A call of torch differentiated: its results, and the gradient of every floating input that it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from optest.torch.calls.calling import TorchCall

__all__ = ["Differentiated", "Draw", "changeable", "differentiated", "gradient_names"]

Make = Callable[..., list[Any]]
Draw = Callable[[int, torch.Tensor], torch.Tensor]
"""The gradient from above of the output of this number, like that output."""


@dataclass(frozen=True, slots=True)
class Differentiated:
    """What a call yields, and by input number the gradient; None where no output depends on the input."""

    leaves: list[Any]
    gradients: dict[int, torch.Tensor | None]

    def has_gradient(self) -> list[bool]:
        return [each is not None for each in self.gradients.values()]

    def dense(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Every gradient, zeros where there is none, so that each has its place."""
        return [
            torch.zeros_like(tensors[index]) if each is None else _with_memory(each)
            for index, each in self.gradients.items()
        ]


def _with_memory(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient whose elements can be read: torch's own zeros, as of ``sgn``, have none."""
    if gradient.is_sparse:
        return gradient.to_dense()
    return gradient.clone() if gradient._is_zerotensor() else gradient


def gradient_names(found: Differentiated) -> list[str]:
    """The names of the outputs that stand behind the call's own."""
    return ["grad.exists", *(f"grad.input{index}" for index in found.gradients)]


def differentiated(call: TorchCall, make: Make, tensors: Sequence[torch.Tensor], upstream: Draw) -> Differentiated:
    """Make the call on the tensors and go back from all its floating outputs; ``make`` may be compiled.

    Where no output depends on a floating input in a way that torch differentiates, there is no gradient of any.

    ``make`` has to copy what the call changes (:func:`changeable`), since torch changes no leaf in place; in a model,
    too, it is an intermediate result that is changed.
    """
    wanted = [index for index in sorted(set(call.call.tensors())) if _is_floating(tensors[index])]
    given = [each.detach() for each in tensors]
    differentiable = [index for index in wanted if index not in call.constant]
    for index in differentiable:
        given[index].requires_grad_()
    with torch.enable_grad():
        leaves = make(*given)
        sources = [
            (number, leaf)
            for number, leaf in enumerate(leaves)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad and _is_floating(leaf)
        ]
        found = (
            ()
            if not sources
            else torch.autograd.grad(
                [leaf for _, leaf in sources],
                [given[index] for index in differentiable],
                [upstream(number, leaf.detach()) for number, leaf in sources],
                allow_unused=True,
            )
        )
    plain = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    gradients: dict[int, torch.Tensor | None] = dict.fromkeys(wanted)
    gradients.update(zip(differentiable, found, strict=bool(sources)))
    return Differentiated(plain, gradients)


def changeable(call: TorchCall, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors, copies of those that the call changes."""
    return [_of_its_own(each) if index in call.changes else each for index, each in enumerate(tensors)]


def _of_its_own(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in memory of its own with the same strides, which a call may change and torch can differentiate."""
    if tensor.is_contiguous():
        return tensor.clone()
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    storage = tensor.as_strided((span if tensor.numel() else 0,), (1,)).clone()
    return storage.as_strided(tensor.shape, tensor.stride(), 0)


def _is_floating(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())
