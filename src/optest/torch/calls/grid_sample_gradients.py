"""The gradients of a picture that is sampled at positions, in the steps in which an arithmetic makes them.

A position from -1 to 1 becomes one of elements by a sum with 1, a product and a difference, whose roundings are no
multiples of what the gradient is in the end: those of a weight, of a difference between neighbours. Torch takes the
sampling apart, but not its gradients. The formulas are those that torch documents for ``grid_sample``; cubic
convolution is that of Keys (1981) with a = -3/4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul

import torch
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["gradients_of_sampling"]

_LINEAR, _NEAREST = 0, 1
_BORDER, _REFLECTION = 1, 2
_KEYS = -0.75


@dataclass(frozen=True, slots=True)
class _Taps:
    """The neighbours along one axis, first dimension, of every position: which, whether they exist, their weights, and
    how those change where the position does, in the picture's own elements."""

    place: torch.Tensor
    exists: torch.Tensor
    weight: torch.Tensor
    slope: torch.Tensor

    def along(self, axis: int, axes: int) -> _Taps:
        """The same with a first dimension for each axis."""
        shape = [1] * axis + [-1] + [1] * (axes - axis - 1)
        return _Taps(
            *(each.reshape(*shape, *each.shape[1:]) for each in (self.place, self.exists, self.weight, self.slope))
        )


def gradients_of_sampling(
    above: torch.Tensor,
    picture: torch.Tensor,
    grid: torch.Tensor,
    interpolation: int,
    padding: int,
    align_corners: bool,
    wanted: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """What ``aten::grid_sampler_2d_backward`` and that of three dimensions yield, out of sums and products.

    ``above`` has the shape (N, C, positions …), ``picture`` (N, C, sizes …) and ``grid`` (N, positions …, axes), the
    last axis of the picture first.
    """
    sizes = picture.shape[2:]
    steps = [size * 0.5 - 0.5 if align_corners else size * 0.5 for size in sizes]
    places = [grid[..., axis].flatten(1) for axis in reversed(range(len(sizes)))]
    axes = [
        _taps(place, size, step, interpolation, padding, align_corners).along(axis, len(sizes))
        for axis, (place, size, step) in enumerate(zip(places, sizes, steps, strict=True))
    ]
    exists = reduce(torch.logical_and, (taps.exists for taps in axes))
    index = torch.zeros_like(exists, dtype=torch.int64)
    for taps, size in zip(axes, sizes, strict=True):
        index = index * size + taps.place.to(torch.int64)
    index, exists = (_listed(each, len(sizes)) for each in (torch.where(exists, index, 0), exists))
    given, elements = above.flatten(2), picture.flatten(2)
    return (
        _of_picture(given, axes, index, exists, elements).view(picture.shape) if wanted[0] else None,
        _of_grid(given, axes, index, exists, elements, steps).view(grid.shape) if wanted[1] else None,
    )


def _of_picture(
    given: torch.Tensor, axes: Sequence[_Taps], index: torch.Tensor, exists: torch.Tensor, elements: torch.Tensor
) -> torch.Tensor:
    """Every element adds up what it was taken for: above times weight, neighbour after neighbour."""
    weight = torch.where(exists, _listed(reduce(mul, (taps.weight for taps in axes)), len(axes)), 0.0)
    with _disable_current_modes():  # above is off by a rounding already, each part of an element by another one
        parts = (weight[:, :, None] * given).permute(1, 2, 0, 3).flatten(2)
        places = index[:, :, None].expand(-1, *given.shape).permute(1, 2, 0, 3).flatten(2)
    return torch.zeros_like(elements).scatter_add(2, places, parts)


def _of_grid(
    given: torch.Tensor,
    axes: Sequence[_Taps],
    index: torch.Tensor,
    exists: torch.Tensor,
    elements: torch.Tensor,
    steps: Sequence[float],
) -> torch.Tensor:
    """Every position adds up its neighbours: what each yields over all channels, times how its weight changes."""
    found = elements.transpose(1, 2)[torch.arange(len(elements))[:, None], index]
    yielded = (found.permute(1, 2, 0, 3) @ given.transpose(1, 2)[..., None]).squeeze(-1).permute(2, 0, 1)
    both = torch.where(exists, yielded, 0.0).unflatten(0, [taps.place.shape[axis] for axis, taps in enumerate(axes)])
    changes = []
    for axis, step in enumerate(steps):
        change = both
        for other, taps in enumerate(axes):  # one axis after the other is added up
            change = (change * (taps.slope if axis == other else taps.weight).flatten(0, other)).sum(0)
        changes.append(change * step)
    return torch.stack(changes[::-1], -1)


def _listed(values: torch.Tensor, axes: int) -> torch.Tensor:
    """What stands for every neighbour along every axis as one list of neighbours: (taps, N, positions)."""
    return values.flatten(0, axes - 1)


def _taps(place: torch.Tensor, size: int, step: float, interpolation: int, padding: int, align_corners: bool) -> _Taps:
    """The neighbours along one axis of a size: one, two or four."""
    position = (place + 1.0) * step
    if not align_corners:
        position = position - 0.5
    if interpolation not in (_LINEAR, _NEAREST):
        return _cubic(position, size, padding, align_corners)
    position, direction = _padded(position, size, padding, align_corners)
    if interpolation == _NEAREST:
        return _existing([position.round()], size, [torch.ones_like(position)], [torch.zeros_like(position)])
    low = position.floor()
    return _existing([low, low + 1.0], size, [low + 1.0 - position, position - low], [-direction, direction])


def _cubic(position: torch.Tensor, size: int, padding: int, align_corners: bool) -> _Taps:
    low = position.floor()
    near = position - low
    far = 1.0 - near
    before, behind = near + 1.0, far + 1.0
    weights = [_beyond_one(before), _within_one(near), _within_one(far), _beyond_one(behind)]
    slopes = [_slope_beyond_one(before), _slope_within_one(near), -_slope_within_one(far), -_slope_beyond_one(behind)]
    places = [_padded(low + offset, size, padding, align_corners)[0] for offset in (-1.0, 0.0, 1.0, 2.0)]
    return _existing(places, size, weights, slopes)


def _within_one(x: torch.Tensor) -> torch.Tensor:
    return ((_KEYS + 2.0) * x - (_KEYS + 3.0)) * x * x + 1.0


def _beyond_one(x: torch.Tensor) -> torch.Tensor:
    return ((_KEYS * x - 5.0 * _KEYS) * x + 8.0 * _KEYS) * x - 4.0 * _KEYS


def _slope_within_one(x: torch.Tensor) -> torch.Tensor:
    return (3.0 * (_KEYS + 2.0) * x - 2.0 * (_KEYS + 3.0)) * x


def _slope_beyond_one(x: torch.Tensor) -> torch.Tensor:
    return (3.0 * _KEYS * x - 10.0 * _KEYS) * x + 8.0 * _KEYS


def _existing(places: list[torch.Tensor], size: int, weights: list[torch.Tensor], slopes: list[torch.Tensor]) -> _Taps:
    place = torch.stack(places)
    exists = torch.logical_and(place >= 0.0, place < size)
    return _Taps(torch.where(exists, place, 0.0), exists, torch.stack(weights), torch.stack(slopes))


def _padded(position: torch.Tensor, size: int, padding: int, align_corners: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Where a position is looked for, and how that moves where the position does: 1, -1 or 0."""
    direction = torch.ones_like(position)
    if padding == _REFLECTION:
        position, direction = _reflected(position, size, align_corners)
    if padding not in (_BORDER, _REFLECTION):
        return position, direction
    inside = torch.logical_and(position > 0.0, position < size - 1.0)
    return position.clamp(0.0, size - 1.0), torch.where(inside, direction, 0.0)


def _reflected(position: torch.Tensor, size: int, align_corners: bool) -> tuple[torch.Tensor, torch.Tensor]:
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if not span:
        return torch.zeros_like(position), torch.zeros_like(position)
    distance = position - low
    direction = torch.where(distance < 0.0, -1.0, 1.0)
    distance = distance.abs()
    turns = (distance / span).floor()
    rest = distance - turns * span
    is_back = turns.remainder(2.0) == 1.0
    return torch.where(is_back, span - rest, rest) + low, torch.where(is_back, -direction, direction)
