"""The JAX calls of the movement and the indexing family."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import jax.numpy as jnp
from jax import lax

from optest.jax.operators.calls import Attributes, Gap, JaxCall, Specs, Tensors, first_gap, lacks, of_rank, takes_no
from optest.operators.shapes import normalize_dim, stated_slices
from optest.spec import Kind


def _split(tensors: Tensors, attributes: Attributes) -> Any:
    """JAX takes where the parts begin; the catalogue their sizes, or that of all but the last."""
    (source,), dim, sizes = tensors, attributes.get("dim", 0), attributes["split_size_or_sections"]
    length = source.shape[dim]
    if isinstance(sizes, int) and (sizes > 0 or sizes == length == 0):
        sizes = [min(sizes, length - begin) for begin in range(0, length, sizes or 1)] or [0]
    if isinstance(sizes, int) or sum(sizes) != length:
        raise ValueError(f"the sizes {sizes} are not those of {length} elements")
    return jnp.split(source, list(accumulate(sizes))[:-1], axis=dim)


def _slice(tensors: Tensors, attributes: Attributes) -> Any:
    (source,) = tensors
    places: list[Any] = [slice(None)] * source.ndim
    for dim, *bound in stated_slices(attributes):
        places[dim] = slice(*bound)
    return source[tuple(places)]


_PAD_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _widths(rank: int, flat: Sequence[int]) -> list[tuple[int, int]]:
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


def _other_pad(specs: Specs, attributes: Attributes) -> str | None:
    (source,), mode = specs, attributes.get("mode", "constant")
    if source is None or mode == "constant" or len(attributes["pad"]) % 2:
        return None
    for size, widths in zip(source.shape, _widths(source.rank, attributes["pad"]), strict=False):
        if min(widths) < 0:
            return "jnp.pad cuts nothing where it does not pad with a constant"
        if mode != "replicate" and max(widths) > size - (mode == "reflect"):
            return f"jnp.pad takes {_PAD_MODES[mode]} of more than the input, and refuses nothing"
    return None


def _other_shifts(_: Specs, attributes: Attributes) -> str | None:
    shifts, dims = attributes["shifts"], attributes.get("dims") or (None,)
    return None if len(shifts) == len(dims) else "jnp.roll broadcasts shifts and axes, and refuses nothing"


def _pad(tensors: Tensors, attributes: Attributes) -> Any:
    """The catalogue begins with the last dimension. ``lax.pad`` also cuts, where a width is negative."""
    (source,), widths = tensors, _widths(tensors[0].ndim, attributes["pad"])
    mode = attributes.get("mode", "constant")
    if mode != "constant":
        return jnp.pad(source, widths, mode=_PAD_MODES[mode])
    value = attributes.get("value", 0.0)
    value = jnp.asarray(value if jnp.issubdtype(source.dtype, jnp.inexact) else int(value), source.dtype)
    return lax.pad(source, value, [(before, behind, 0) for before, behind in widths])


def _other_rank(specs: Specs, _: Attributes) -> str | None:
    ranks = {each.rank for each in specs if each is not None}
    return "jnp.concatenate takes arrays of one rank, empty ones too" if len(ranks) > 1 else None


# Indexing.


def _take(axis: int | None, *gaps: Gap) -> JaxCall:
    def call(tensors: Tensors, attributes: Attributes) -> Any:
        return jnp.take(tensors[0], tensors[1], axis=attributes.get("dim", axis))

    return JaxCall(call, first_gap(*gaps))


def _scalar_index(specs: Specs, _: Attributes) -> str | None:
    is_scalar = specs[1] is not None and not specs[1].rank
    return "jnp.take drops the dimension for a 0-d index, the operator keeps it" if is_scalar else None


def _beside_dim(specs: Specs, attributes: Attributes) -> list[tuple[int, int]]:
    """The sizes of input and index in every dimension that is not indexed; none for a call that has to be refused."""
    source, index, dim = *specs[:2], attributes["dim"]
    if source is None or index is None or source.rank != index.rank or not -source.rank <= dim < source.rank:
        return []
    sizes = enumerate(zip(source.shape, index.shape, strict=True))
    return [pair for place, pair in sizes if place != dim % source.rank]


def _shorter_index(specs: Specs, attributes: Attributes) -> str | None:
    differs = any(size != length for length, size in _beside_dim(specs, attributes))
    return "jnp.take_along_axis takes an index that is as long as input beside dim" if differs else None


def _beyond_input(specs: Specs, attributes: Attributes) -> str | None:
    is_beyond = any(size > length for length, size in _beside_dim(specs, attributes))
    return "JAX drops what an index puts beyond input, and refuses nothing" if is_beyond else None


_NO_BOOL = takes_no("Array.at[…].add", Kind.BOOL)


def _scatter(method: str, *gaps: Gap) -> JaxCall:
    def call(tensors: Tensors, attributes: Attributes) -> Any:
        source, index, written = tensors
        part = written[tuple(slice(size) for size in index.shape)]
        # The place of every element of index, where it has the place in dim and its own place in the others.
        axes = [lax.broadcasted_iota(index.dtype, index.shape, axis) for axis in range(index.ndim)]
        axes[attributes["dim"]] = index
        return getattr(source.at[tuple(axes)], method)(part)

    return JaxCall(call, first_gap(*gaps))


def _along_index(method: str, *gaps: Gap) -> JaxCall:
    def call(tensors: Tensors, attributes: Attributes) -> Any:
        source, index, written = tensors
        places = (slice(None),) * normalize_dim(attributes["dim"], source.ndim) + (index,)
        return getattr(source.at[places], method)(written)

    return JaxCall(call, first_gap(*gaps))


def _topk(tensors: Tensors, attributes: Attributes) -> Any:
    """Indices of ``lax.top_k`` are int32, those of the catalogue int64."""
    dim = attributes.get("dim", -1)
    values, indices = lax.top_k(jnp.moveaxis(tensors[0], dim, -1), attributes["k"])
    return jnp.moveaxis(values, -1, dim), jnp.moveaxis(indices, -1, dim).astype(jnp.int64)


def _sort(tensors: Tensors, attributes: Attributes) -> Any:
    (source,) = tensors
    how = {"axis": attributes.get("dim", -1), "stable": True, "descending": attributes.get("descending", False)}
    return jnp.sort(source, **how), jnp.argsort(source, **how)


CALLS: dict[str, JaxCall] = {
    "transpose": JaxCall(lambda tensors, attributes: jnp.swapaxes(tensors[0], attributes["dim0"], attributes["dim1"])),
    "permute": JaxCall(lambda tensors, attributes: jnp.transpose(tensors[0], attributes["dims"])),
    "reshape": JaxCall(lambda tensors, attributes: jnp.reshape(tensors[0], attributes["shape"])),
    "broadcast_to": JaxCall(
        lambda tensors, attributes: jnp.broadcast_to(tensors[0], attributes["size"]),
        lambda _, attributes: "jnp.broadcast_to has no -1 for a size that stays" if -1 in attributes["size"] else None,
    ),
    "tile": JaxCall(lambda tensors, attributes: jnp.tile(tensors[0], attributes["dims"])),
    "flip": JaxCall(lambda tensors, attributes: jnp.flip(tensors[0], attributes["dims"])),
    "roll": JaxCall(
        lambda tensors, attributes: jnp.roll(tensors[0], attributes["shifts"], attributes.get("dims") or None),
        _other_shifts,
    ),
    "tril": JaxCall(lambda tensors, attributes: jnp.tril(tensors[0], attributes.get("diagonal", 0))),
    "triu": JaxCall(lambda tensors, attributes: jnp.triu(tensors[0], attributes.get("diagonal", 0))),
    "concat": JaxCall(
        lambda tensors, attributes: jnp.concatenate(list(tensors), axis=attributes.get("dim", 0)), _other_rank
    ),
    "split": JaxCall(_split),
    "slice": JaxCall(_slice),
    "pad": JaxCall(_pad, _other_pad),
    "clone": JaxCall(lambda tensors, _: jnp.copy(tensors[0])),
    "zeros_like": JaxCall(lambda tensors, _: jnp.zeros_like(tensors[0])),
    "ones_like": JaxCall(lambda tensors, _: jnp.ones_like(tensors[0])),
    "gather": JaxCall(
        lambda tensors, attributes: jnp.take_along_axis(tensors[0], tensors[1], axis=attributes["dim"]),
        _shorter_index,
    ),
    "index_select": _take(None, _scalar_index),
    "take": _take(None),
    "embedding": _take(0, lacks("jnp.take", padding_idx=None), of_rank("jnp.take", 0, "weight", 2)),
    "scatter": _scatter("set", _beyond_input),
    "scatter_add": _scatter("add", _NO_BOOL, _beyond_input),
    "index_copy": _along_index("set"),
    "index_add": _along_index("add", lacks("Array.at[…].add", alpha=1.0), _NO_BOOL),
    "topk": JaxCall(_topk, lacks("lax.top_k", largest=True)),
    "sort": JaxCall(_sort),
}
