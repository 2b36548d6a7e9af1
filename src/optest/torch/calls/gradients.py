"""A call of torch differentiated: its results, the gradient of every floating input, and what comes from above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np
import torch

from optest.torch.calls.call import TorchCall

__all__ = [
    "Differentiated",
    "Draw",
    "Upstream",
    "differentiated",
    "gradient_names",
    "roundings",
    "upstream_of",
]

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

    ``make`` has to copy what the call changes (:meth:`TorchCall.changeable`), since torch changes no leaf in place; in
    a model, too, it is an intermediate result that is changed.
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


def _is_floating(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


# The gradients that a case's outputs get from above: numbers that follow from the call and its inputs alone.
#
# The reference and the device under test have to get the same ones without asking each other. Every number has few
# digits, so that it is the same one in each dtype that a gradient may have.

_WORD = np.uint64
_INCREMENT, _FIRST, _SECOND = 0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB
"""Of SplitMix64 (Steele, Lea, Flood 2014) with the finaliser "variant 13" of Stafford."""

_SHOWN_BYTES = 256
_SIXTY_FOURTHS = 64.0
_SIZES = 1 << 20
_BLOCK = 1 << 14


@dataclass(frozen=True, slots=True)
class Upstream:
    """Gradients by the number of an output: whole numbers from 1 to 8, or 64ths from 1/4 to 2, of either sign."""

    key: bytes
    is_whole: bool

    def __call__(self, number: int, output: torch.Tensor) -> torch.Tensor:
        """The gradient of output ``number``, on its device and in its dtype."""
        parts = [self._reals(number, part, output.shape) for part in range(1 + output.is_complex())]
        values = torch.complex(*parts) if output.is_complex() else parts[0]
        return values.to(device=output.device, dtype=output.dtype)

    def _reals(self, number: int, part: int, shape: Sequence[int]) -> torch.Tensor:
        seed = int.from_bytes(blake2b(b"%s/%d/%d" % (self.key, number, part), digest_size=8).digest(), "little")
        words = _mixed(seed, prod(shape))
        sign = np.where(words >> _WORD(63), 1.0, -1.0)
        if self.is_whole:
            size = 1.0 + (words & _WORD(7)).astype(np.float64)
        else:
            size = (16.0 + (words % _WORD(113)).astype(np.float64)) / _SIXTY_FOURTHS
        return torch.from_numpy((sign * size).reshape(tuple(shape)))


def upstream_of(text: str, inputs: Sequence[Any], *, is_whole: bool) -> Upstream:
    """The gradients for one call on inputs that have not been changed yet."""
    digest = blake2b(text.encode(), digest_size=16)
    for array in inputs:
        digest.update(f"{array.dtype}{array.shape}".encode())
        some = np.ascontiguousarray(array[tuple(slice(0, 2) for _ in array.shape)])
        digest.update(some.tobytes()[:_SHOWN_BYTES])
    return Upstream(digest.digest(), is_whole)


def roundings(name: str, shape: Sequence[int]) -> torch.Tensor:
    """Numbers from 1/2 to 3/2 of either sign in float64, by a name. Of differing sizes no two cancel."""
    seed = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
    count = prod(shape)
    drawn = np.empty(count)
    for start in range(0, count, _BLOCK):  # what fits a cache is drawn several times faster
        words = _mixed(seed, min(_BLOCK, count - start), start)
        size = 0.5 + (words & _WORD(_SIZES - 1)).astype(np.float64) / _SIZES
        drawn[start : start + _BLOCK] = np.where(words >> _WORD(63), size, -size)
    return torch.from_numpy(drawn.reshape(tuple(shape)))


def _mixed(seed: int, count: int, start: int = 0) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Word ``start + i`` is a function of the seed and its number; all arithmetic is modulo 2**64."""
    with np.errstate(over="ignore"):
        words = np.arange(start + 1, start + count + 1, dtype=_WORD) * _WORD(_INCREMENT) + _WORD(seed)
        words = (words ^ (words >> _WORD(30))) * _WORD(_FIRST)
        words = (words ^ (words >> _WORD(27))) * _WORD(_SECOND)
        mixed: np.ndarray[Any, np.dtype[np.uint64]] = words ^ (words >> _WORD(31))
    return mixed
