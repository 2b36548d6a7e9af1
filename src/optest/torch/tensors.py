"""Convert NumPy arrays to torch tensors and back, with the same bits and strides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from optest.numerics import Array, bits, dtype_of, numpy_dtype, private_copy
from optest.spec import DType, dtype_names
from optest.spec import dtype as dtype_called

# torch has these names, but neither storage nor operators for them.
_NOT_IN_TORCH = {"int4", "uint4"}
TORCH_DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in dtype_names() if name not in _NOT_IN_TORCH
}
DTYPE_NAMES = {kind: name for name, kind in TORCH_DTYPES.items()}
_NOT_IN_NUMPY = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether the tensor is of no subclass, so that its elements are those in its memory."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


class Inexpressible(ValueError):
    """Error for a tensor that torch cannot hold, because of a 4-bit dtype or a negative stride."""


def torch_dtype(kind: DType) -> torch.dtype:
    """Return the torch dtype of an element type; raise Inexpressible if torch has no such tensors."""
    if kind.name in _NOT_IN_TORCH:
        raise Inexpressible(f"torch has no tensors of {kind}")
    return TORCH_DTYPES[kind.name]


def require_expressible(array: Array) -> torch.dtype:
    """Return the torch dtype of an array; raise Inexpressible if torch cannot hold its dtype or strides."""
    if min(array.strides, default=0) < 0:
        raise Inexpressible("torch has no negative strides")
    return torch_dtype(dtype_of(array.dtype))


def is_inexact(tensor: torch.Tensor) -> bool:
    """Return whether the dtype is floating or complex: results are rounded, and gradients exist."""
    return bool(tensor.is_floating_point() or tensor.is_complex())


def has_memory(leaf: Any) -> bool:
    """Return whether ``leaf`` is a non-empty strided tensor."""
    return isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and bool(leaf.numel())


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_of(item)


def to_torch(array: Array, device: torch.device, *, offset: int = 0) -> torch.Tensor:
    """Return ``array`` as a tensor with the same strides.

    On the CPU it shares the array's memory, unless that is read-only. On another device it has a new storage, in which
    gaps and overlap stay, and ``offset`` elements are before the first one, which decides its alignment.

    Raises:
        Inexpressible: if torch cannot hold the array's dtype or strides.
    """
    kind = require_expressible(array)
    writable = array if array.flags.writeable else private_copy(array)
    if DTYPE_NAMES[kind] in _NOT_IN_NUMPY:
        tensor = torch.from_numpy(bits(writable)).view(kind)
    else:
        tensor = torch.from_numpy(writable)
    if device.type == "cpu":
        return tensor
    if tensor.is_contiguous() and not offset:
        return tensor.to(device)
    return _in_new_storage(tensor, device, offset)


def _in_new_storage(tensor: torch.Tensor, device: torch.device, offset: int) -> torch.Tensor:
    """Return a copy on the device with the same strides; ``Tensor.to`` would make it dense."""
    storage = torch.zeros(offset + span_of(tensor), dtype=tensor.dtype, device=device)
    storage[offset:] = memory_of(tensor).to(device)
    return storage.as_strided(tensor.shape, tensor.stride(), offset)


def to_read(array: Array) -> torch.Tensor:
    """Return ``array`` as a CPU tensor in the same memory, to be only read; Inexpressible if torch cannot hold it."""
    if array.flags.writeable or not array.size or min(array.strides, default=0) < 0:
        return to_torch(array, _CPU)
    kind = require_expressible(array)
    # torch has no read-only tensors and copies read-only arrays, which would lose gaps, overlap and strides of 0.
    is_cast = DTYPE_NAMES[kind] in _NOT_IN_NUMPY
    tensor = torch.from_numpy(np.asarray(_Memory(bits(array) if is_cast else array)))
    return tensor.view(kind) if is_cast else tensor


_CPU = torch.device("cpu")


class _Memory:
    """Array interface that declares the memory of a read-only array writable."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, owner: Array) -> None:
        interface = dict(owner.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        # Keeps the memory alive.
        self._owner = owner


def from_torch(tensor: torch.Tensor) -> Array:
    """Return a tensor of any device as a NumPy array of the same dtype; raise KeyError for one unknown to optest."""
    name = DTYPE_NAMES[tensor.dtype]
    # Conjugation and negation are lazy in torch: the memory holds the values before them.
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if name not in _NOT_IN_NUMPY:
        array: Array = plain.numpy()
        return array
    # NumPy has no such dtypes, so the bits are converted as integers of the same size.
    carrier = torch.uint8 if plain.element_size() == 1 else torch.int16
    as_bits: Array = plain.contiguous().view(carrier).numpy()
    return as_bits.view(numpy_dtype(dtype_called(name)))


def as_array(leaf: Any) -> Array:
    """Return an output of a torch call as an array: a tensor of any device or layout, a number, or a text's bytes.

    Quantised tensors are dequantised, and sparse ones become dense.

    Raises:
        KeyError: for a tensor of a dtype unknown to optest.
    """
    if isinstance(leaf, torch.Tensor):
        dense = leaf.to_dense() if leaf.layout is not torch.strided else leaf
        return from_torch(dense.dequantize() if dense.is_quantized else dense)
    if isinstance(leaf, (bool, float, complex)):
        return np.asarray(leaf)
    if isinstance(leaf, int):
        return np.asarray(leaf, dtype=np.int64 if -(2**63) <= leaf < 2**63 else np.float64)
    return np.frombuffer(str(leaf).encode(), dtype=np.uint8)


_INDICES = {
    torch.sparse_coo: ("_indices",),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), ("crow_indices", "col_indices")),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), ("ccol_indices", "row_indices")),
}


def attributes_and_parts(tensor: torch.Tensor) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return a tensor's attributes and the dense tensors that hold its values and indices, by name.

    The names of attributes are those of the options of ``torch.testing.assert_close``. Shape and dtype are None for a
    plain strided tensor, the stride for any other layout. A quantised tensor is dequantised; a dtype unknown to optest
    becomes one that holds the same values, or bits. A ``meta`` tensor has no parts.
    """
    is_meta, is_strided = tensor.device.type == "meta", tensor.layout is torch.strided
    is_plain = is_strided and not tensor.is_quantized and not is_meta
    attributes = {
        "shape": None if is_plain else list(tensor.shape),
        "quantisation": str(tensor.qscheme()) if tensor.is_quantized else "none",
        "check_layout": tensor.layout,
        "check_stride": tensor.stride() if is_strided else None,
        "check_device": str(tensor.device),
        "check_dtype": None if is_plain else tensor.dtype,
        "kind": str(tensor.dtype).removeprefix("torch."),
    }
    if is_meta:
        return attributes, {}
    parts = {f".{name.strip('_')}": getattr(tensor, name)().long() for name in _INDICES.get(tensor.layout, ())}
    values = tensor._values() if tensor.is_sparse else tensor.values() if parts else tensor
    if values.is_quantized:
        values = values.dequantize()
    elif values.is_complex() and values.dtype not in DTYPE_NAMES:
        values = values.to(torch.complex64)
    elif values.dtype not in DTYPE_NAMES:
        has_values = values.is_floating_point() and not str(values.dtype).endswith("x2")
        values = values.float() if has_values else values.view(torch.uint8)
    return attributes, {**parts, ".values" if parts else "": values}


# Dtype in which the reference computes, by the dtype of the case.
WIDE = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64), torch.complex128),
}


def cpu_copies(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Return copies of the arrays as CPU tensors with the same strides, which a call may change."""
    return [strided_copy(to_read(array)) for array in inputs]


def wide_copies(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Return the arrays as CPU tensors: floats in float64 or complex128, other dtypes unchanged; same strides."""
    return [wide_copy(to_read(array)) for array in inputs]


def wide_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in float64 or complex128, of an integer tensor in its dtype; with the same strides."""
    kind = WIDE.get(tensor.dtype)
    if kind is None:
        return strided_copy(tensor)
    return memory_of(tensor).to(kind).as_strided(tensor.shape, tensor.stride())


def strided_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same values and strides, gaps and overlap included."""
    return memory_of(tensor).clone().as_strided(tensor.shape, tensor.stride())


def span_of(tensor: torch.Tensor) -> int:
    """Return the number of elements in memory from the first one to the last one, gaps included."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return 1 + reach if tensor.numel() else 0


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a 1-d view of the memory from the first element to the last one, gaps included."""
    return tensor.as_strided((span_of(tensor),), (1,))
