"""``preset``: strides of views that are not contiguous; the stated shape is that of the resulting view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from optest.errors import nearest
from optest.plan.values import Misfit, shown
from optest.spec import contiguous_strides

__all__ = ["PRESETS", "strides_of_preset"]

_ARGS = ("preset_args",)


def strides_of_preset(name: str, given: Mapping[str, Any], shape: Sequence[int]) -> list[int]:
    """The strides in elements of a view of ``shape``, as torch has them.

    Raises:
        Misfit: for a preset that does not exist, does not fit, or would leave the tensor contiguous.
    """
    preset = PRESETS.get(name)
    if preset is None:
        near = nearest(name, PRESETS)
        hint = f"did you mean {near}?" if near else ""
        raise Misfit(f"preset is {name!r}, but should be one of {', '.join(PRESETS)}", path=("preset",), hint=hint)
    try:
        strides = preset.strides(given, shape)
        if strange := [each for each in given if each not in preset.takes]:
            message = f"preset_args has {strange[0]!r}, but {name} takes {' and '.join(preset.takes)}"
            raise Misfit(message, path=(*_ARGS, strange[0]))
    except Misfit as misfit:
        misfit.hint = preset.example
        raise
    if _is_contiguous(shape, strides):
        message = f"{name} leaves a tensor of shape {list(shape)} contiguous, but should make it non-contiguous"
        raise Misfit(message, path=_ARGS if given else ("preset",), hint="name other dimensions, or drop the preset")
    return strides


def _noncontig_slice(given: Mapping[str, Any], shape: Sequence[int]) -> list[int]:
    """Every ``step``-th element of dimension ``dim``."""
    dim, step = _dimension(given, "dim", shape, -1), _integer(given, "step", 2)
    if not 1 <= step < 2**31:
        raise Misfit(f"step is {step}, but should be 1 or more", path=(*_ARGS, "step"))
    base = [size * step if index == dim else size for index, size in enumerate(shape)]
    strides = list(contiguous_strides(tuple(base)))
    strides[dim] *= step
    return strides


def _transpose_view(given: Mapping[str, Any], shape: Sequence[int]) -> list[int]:
    """Dense with ``dim0`` and ``dim1`` the other way round."""
    one, other = _dimension(given, "dim0", shape, 0), _dimension(given, "dim1", shape, 1)
    base = list(shape)
    base[one], base[other] = base[other], base[one]
    strides = list(contiguous_strides(tuple(base)))
    strides[one], strides[other] = strides[other], strides[one]
    return strides


def _expand_view(given: Mapping[str, Any], shape: Sequence[int]) -> list[int]:
    """A tensor of ``base_shape`` whose sizes of 1 are repeated."""
    base = given.get("base_shape", [1, *shape[1:]] if shape else [])
    if not isinstance(base, list) or len(base) > len(shape):
        message = f"base_shape is {shown(base)}, but should be a list of at most {len(shape)} sizes"
        raise Misfit(message, path=(*_ARGS, "base_shape"))
    missing = len(shape) - len(base)
    if any(
        type(size) is not int or size not in (1, wanted) for size, wanted in zip(base, shape[missing:], strict=True)
    ):
        raise Misfit(f"base_shape {shown(base)} cannot be expanded to {list(shape)}", path=(*_ARGS, "base_shape"))
    dense = contiguous_strides(tuple(base))
    strides: list[int] = []
    for index in reversed(range(len(shape))):
        own, size = index - missing, shape[index]
        if own >= 0:
            stride = dense[own] if base[own] == size else 0
        else:
            stride = (shape[index + 1] * strides[-1] if strides else 1) if size == 1 else 0
        strides.append(stride)
    return strides[::-1]


class Preset(NamedTuple):
    """A preset: its strides from its arguments, which these are, and how they may look."""

    strides: Callable[[Mapping[str, Any], Sequence[int]], list[int]]
    takes: tuple[str, ...]
    example: str


PRESETS: Mapping[str, Preset] = {
    "noncontig_slice": Preset(_noncontig_slice, ("dim", "step"), "preset_args: {dim: -1, step: 2}"),
    "transpose_view": Preset(_transpose_view, ("dim0", "dim1"), "preset_args: {dim0: 0, dim1: 1}"),
    "expand_view": Preset(_expand_view, ("base_shape",), "preset_args: {base_shape: [1, 3]}"),
}


def _integer(given: Mapping[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Misfit(f"{name} is {shown(value)}, but should be an integer", path=(*_ARGS, name))
    return value


def _dimension(given: Mapping[str, Any], name: str, shape: Sequence[int], default: int) -> int:
    is_stated = name in given
    value, rank = _integer(given, name, default), len(shape)
    if not -rank <= value < rank:
        path = (*_ARGS, name) if is_stated else ("preset",)
        raise Misfit(f"{name} is {value}, but the tensor has {rank} dimensions", path=path)
    return value % rank


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """As torch has it: strides where the size is 1 do not matter, and a tensor without elements is contiguous."""
    if 0 in shape:
        return True
    dense = contiguous_strides(tuple(shape))
    return all(size == 1 or got == want for size, got, want in zip(shape, strides, dense, strict=True))
