"""JAX calls of data movement and indexing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import jax.numpy as jnp
from jax import lax

from optest.jax.operators.calls import (
    CALLS,
    Attributes,
    Gap,
    JaxCall,
    Specs,
    Tensors,
    computes,
    first_gap,
    lacks,
    of_rank,
    takes_no,
    unsupported_if,
)
from optest.operators.shapes import normalize_dim, slices_of
from optest.spec import Kind


@computes("split")
def _jax_split(tensors: Tensors, attributes: Attributes) -> Any:
    """Split along ``dim``; the attribute has the sizes of the parts, or one size of all parts except the last."""
    (source,), dim, sizes = tensors, attributes.get("dim", 0), attributes["split_size_or_sections"]
    length = source.shape[dim]
    if isinstance(sizes, int) and (sizes > 0 or sizes == length == 0):
        sizes = [min(sizes, length - begin) for begin in range(0, length, sizes or 1)] or [0]
    if isinstance(sizes, int) or sum(sizes) != length:
        raise ValueError(f"split sizes are {sizes}, expected a sum of {length}")
    return jnp.split(source, list(accumulate(sizes))[:-1], axis=dim)


@computes("slice")
def _jax_slice(tensors: Tensors, attributes: Attributes) -> Any:
    (source,) = tensors
    index: list[Any] = [slice(None)] * source.ndim
    for dim, *bound in slices_of(attributes):
        index[dim] = slice(*bound)
    return source[tuple(index)]


_PAD_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _widths(rank: int, flat: Sequence[int]) -> list[tuple[int, int]]:
    """Return (before, after) padding by dimension; ``flat`` begins with the last dimension, as in torch."""
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


def _other_pad(specs: Specs, attributes: Attributes) -> str | None:
    (source,), mode = specs, attributes.get("mode", "constant")
    if source is None or mode == "constant" or len(attributes["pad"]) % 2:
        return None
    for size, widths in zip(source.shape, _widths(source.rank, attributes["pad"]), strict=False):
        if min(widths) < 0:
            return "jnp.pad accepts negative widths in constant mode only"
        if mode != "replicate" and max(widths) > size - (mode == "reflect"):
            return f"jnp.pad accepts {_PAD_MODES[mode]} padding wider than the input, the operator does not"
    return None


@computes("pad", _other_pad)
def _jax_pad(tensors: Tensors, attributes: Attributes) -> Any:
    (source,), widths = tensors, _widths(tensors[0].ndim, attributes["pad"])
    mode = attributes.get("mode", "constant")
    if mode != "constant":
        return jnp.pad(source, widths, mode=_PAD_MODES[mode])
    value = attributes.get("value", 0.0)
    value = jnp.asarray(value if jnp.issubdtype(source.dtype, jnp.inexact) else int(value), source.dtype)
    # lax.pad, unlike jnp.pad, also cuts: for negative widths.
    return lax.pad(source, value, [(before, behind, 0) for before, behind in widths])


# Indexing.


def _jax_take(axis: int | None, *gaps: Gap) -> JaxCall:
    def call(tensors: Tensors, attributes: Attributes) -> Any:
        return jnp.take(tensors[0], tensors[1], axis=attributes.get("dim", axis))

    return JaxCall(call, first_gap(*gaps))


def _unindexed_sizes(specs: Specs, attributes: Attributes) -> list[tuple[int, int]]:
    """Return the sizes of input and index in each dimension except ``dim``; nothing for an invalid call."""
    source, index, dim = *specs[:2], attributes["dim"]
    if source is None or index is None or source.rank != index.rank or not -source.rank <= dim < source.rank:
        return []
    sizes = enumerate(zip(source.shape, index.shape, strict=True))
    return [pair for axis, pair in sizes if axis != dim % source.rank]


_BEYOND_INPUT = unsupported_if(
    "JAX drops updates beyond the input, the operator refuses them",
    lambda specs, attributes: any(size > length for length, size in _unindexed_sizes(specs, attributes)),
)
_NO_BOOL = takes_no("Array.at[…].add", Kind.BOOL)


def _jax_scatter(method: str, *gaps: Gap) -> JaxCall:
    def call(tensors: Tensors, attributes: Attributes) -> Any:
        source, index, written = tensors
        part = written[tuple(slice(size) for size in index.shape)]
        # Coordinates of each update: the index in dim, its own position in the other dimensions.
        axes = [lax.broadcasted_iota(index.dtype, index.shape, axis) for axis in range(index.ndim)]
        axes[attributes["dim"]] = index
        return getattr(source.at[tuple(axes)], method)(part)

    return JaxCall(call, first_gap(*gaps))


def _along_index(method: str, *gaps: Gap) -> JaxCall:
    def call(tensors: Tensors, attributes: Attributes) -> Any:
        source, index, written = tensors
        key = (slice(None),) * normalize_dim(attributes["dim"], source.ndim) + (index,)
        return getattr(source.at[key], method)(written)

    return JaxCall(call, first_gap(*gaps))


@computes("topk", lacks("lax.top_k", largest=True))
def _jax_topk(tensors: Tensors, attributes: Attributes) -> Any:
    dim = attributes.get("dim", -1)
    values, indices = lax.top_k(jnp.moveaxis(tensors[0], dim, -1), attributes["k"])
    # lax.top_k returns int32 indices, the operator int64.
    return jnp.moveaxis(values, -1, dim), jnp.moveaxis(indices, -1, dim).astype(jnp.int64)


@computes("sort")
def _jax_sort(tensors: Tensors, attributes: Attributes) -> Any:
    (source,) = tensors
    options = {"axis": attributes.get("dim", -1), "stable": True, "descending": attributes.get("descending", False)}
    return jnp.sort(source, **options), jnp.argsort(source, **options)


CALLS.update(
    {
        "transpose": JaxCall(
            lambda tensors, attributes: jnp.swapaxes(tensors[0], attributes["dim0"], attributes["dim1"])
        ),
        "permute": JaxCall(lambda tensors, attributes: jnp.transpose(tensors[0], attributes["dims"])),
        "reshape": JaxCall(lambda tensors, attributes: jnp.reshape(tensors[0], attributes["shape"])),
        "broadcast_to": JaxCall(
            lambda tensors, attributes: jnp.broadcast_to(tensors[0], attributes["size"]),
            unsupported_if(
                "jnp.broadcast_to has no -1 for a size that stays", lambda _, attributes: -1 in attributes["size"]
            ),
        ),
        "tile": JaxCall(lambda tensors, attributes: jnp.tile(tensors[0], attributes["dims"])),
        "flip": JaxCall(lambda tensors, attributes: jnp.flip(tensors[0], attributes["dims"])),
        "roll": JaxCall(
            lambda tensors, attributes: jnp.roll(tensors[0], attributes["shifts"], attributes.get("dims") or None),
            unsupported_if(
                "jnp.roll broadcasts shifts and axes, the operator does not",
                lambda _, attributes: len(attributes["shifts"]) != len(attributes.get("dims") or (None,)),
            ),
        ),
        "tril": JaxCall(lambda tensors, attributes: jnp.tril(tensors[0], attributes.get("diagonal", 0))),
        "triu": JaxCall(lambda tensors, attributes: jnp.triu(tensors[0], attributes.get("diagonal", 0))),
        "concat": JaxCall(
            lambda tensors, attributes: jnp.concatenate(list(tensors), axis=attributes.get("dim", 0)),
            unsupported_if(
                "jnp.concatenate needs arrays of equal rank, also of empty ones",
                lambda specs, _: len({spec.rank for spec in specs if spec is not None}) > 1,
            ),
        ),
        "clone": JaxCall(lambda tensors, _: jnp.copy(tensors[0])),
        "zeros_like": JaxCall(lambda tensors, _: jnp.zeros_like(tensors[0])),
        "ones_like": JaxCall(lambda tensors, _: jnp.ones_like(tensors[0])),
        "gather": JaxCall(
            lambda tensors, attributes: jnp.take_along_axis(tensors[0], tensors[1], axis=attributes["dim"]),
            unsupported_if(
                "jnp.take_along_axis needs an index of the input's sizes in all dimensions except dim",
                lambda specs, attributes: any(size != length for length, size in _unindexed_sizes(specs, attributes)),
            ),
        ),
        "index_select": _jax_take(
            None,
            unsupported_if(
                "jnp.take drops the dimension for a 0-d index, the operator keeps it",
                lambda specs, _: specs[1] is not None and not specs[1].rank,
            ),
        ),
        "take": _jax_take(None),
        "embedding": _jax_take(0, lacks("jnp.take", padding_idx=None), of_rank("jnp.take", 0, "weight", 2)),
        "scatter": _jax_scatter("set", _BEYOND_INPUT),
        "scatter_add": _jax_scatter("add", _NO_BOOL, _BEYOND_INPUT),
        "index_copy": _along_index("set"),
        "index_add": _along_index("add", lacks("Array.at[…].add", alpha=1.0), _NO_BOOL),
    }
)
