"""NumPy arrays as torch tensors and back, bit for bit and stride for stride."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from optest.numerics import Array, bits, dtype_of, numpy_dtype, private_copy
from optest.spec import DType, dtype_names
from optest.spec import dtype as dtype_called

_NOT_IN_TORCH = {"int4", "uint4"}  # torch has the names, but no storage and no operators for them
TORCH_DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in dtype_names() if name not in _NOT_IN_TORCH
}
"""The element types that torch has, by our name."""

DTYPE_NAMES = {theirs: name for name, theirs in TORCH_DTYPES.items()}
"""Our name for an element type of torch's."""

_NOT_IN_NUMPY = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether no subclass answers for the tensor: its elements are those of its memory."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


class Inexpressible(ValueError):
    """A tensor that torch cannot hold: a 4-bit type, a negative stride."""


def torch_dtype(kind: DType) -> torch.dtype:
    """The torch dtype of an element type.

    Raises:
        Inexpressible: for a type that torch has no tensors of.
    """
    if kind.name in _NOT_IN_TORCH:
        raise Inexpressible(f"torch has no tensors of {kind}")
    return TORCH_DTYPES[kind.name]


def require_expressible(array: Array) -> torch.dtype:
    """The torch dtype of an array.

    Raises:
        Inexpressible: for what torch has no tensor for.
    """
    if min(array.strides, default=0) < 0:
        raise Inexpressible("torch has no negative strides")
    return torch_dtype(dtype_of(array.dtype))


def is_inexact(tensor: torch.Tensor) -> bool:
    """Whether its elements are floating or complex: what is rounded, and may have a gradient."""
    return bool(tensor.is_floating_point() or tensor.is_complex())


def has_memory(leaf: Any) -> bool:
    """Whether it is a tensor of elements that lie in memory by strides."""
    return isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and bool(leaf.numel())


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in lists, tuples and dicts, however they nest."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from tensors_of(each)


def to_torch(array: Array, device: torch.device, *, offset: int = 0) -> torch.Tensor:
    """Return ``array`` as a tensor with the same strides.

    On the CPU it shares the array's memory. Elsewhere its storage is made on the device: gaps and overlap
    stay, and ``offset`` elements lie before the first one, which decides how it is aligned.

    Raises:
        Inexpressible: for what torch has no tensor for.
    """
    require_expressible(array)
    tensor = _on_cpu(array, dtype_of(array.dtype))
    if device.type == "cpu":
        return tensor
    if tensor.is_contiguous() and not offset:
        return tensor.to(device)
    return _rebuilt(tensor, device, offset)


def _on_cpu(array: Array, kind: DType) -> torch.Tensor:
    readable = array if array.flags.writeable else private_copy(array)
    if kind.name not in _NOT_IN_NUMPY:
        return torch.from_numpy(readable)
    return torch.from_numpy(bits(readable)).view(TORCH_DTYPES[kind.name])


def to_read(array: Array) -> torch.Tensor:
    """Return ``array`` as a tensor of the CPU that nobody writes to.

    It shares the memory of the array even where that is read-only, which torch knows nothing of, and so has its
    strides: gaps, stride 0 and overlap decide what a view is.

    Raises:
        Inexpressible: for what torch has no tensor for.
    """
    if array.flags.writeable or not array.size or min(array.strides, default=0) < 0:
        return to_torch(array, _CPU)
    kind = dtype_of(array.dtype)
    torch_dtype(kind)
    plain = bits(array) if kind.name in _NOT_IN_NUMPY else array
    tensor = torch.from_numpy(np.asarray(_Memory(plain)))
    return tensor.view(TORCH_DTYPES[kind.name]) if kind.name in _NOT_IN_NUMPY else tensor


_CPU = torch.device("cpu")


class _Memory:
    """The memory of an array as one that may be written to, for a tensor that is only read."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, owner: Array) -> None:
        described = dict(owner.__array_interface__)
        described["data"] = (described["data"][0], False)
        self.__array_interface__ = described
        self._owner = owner


def _rebuilt(tensor: torch.Tensor, device: torch.device, offset: int) -> torch.Tensor:
    """The same view on a storage of its own: ``Tensor.to`` would make it dense."""
    length = span_of(tensor)
    storage = torch.zeros(offset + length, dtype=tensor.dtype, device=device)
    storage[offset:] = tensor.as_strided((length,), (1,)).to(device)
    return storage.as_strided(tensor.shape, tensor.stride(), offset)


def from_torch(tensor: torch.Tensor) -> Array:
    """Return a tensor of any device as a NumPy array in the same element type.

    Raises:
        KeyError: for an element type that optest does not know.
    """
    name = DTYPE_NAMES[tensor.dtype]
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if name not in _NOT_IN_NUMPY:
        found: Array = plain.numpy()
        return found
    carrier = torch.uint8 if plain.element_size() == 1 else torch.int16
    as_bits: Array = plain.contiguous().view(carrier).numpy()
    return as_bits.view(numpy_dtype(dtype_called(name)))


# What a call yields as arrays: tensors, and whatever else a function of torch may return.


def as_array(leaf: Any) -> Array:
    """A tensor of any device or layout, a bool, a number or a word as an array; words as their bytes.

    Raises:
        KeyError: for a tensor of a dtype that optest does not know.
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
    """Return the attributes of a tensor of any layout, by the option of ``torch.testing.assert_close`` that checks
    them, and the dense tensors that hold its values and their indices.

    Shape and dtype are None for a strided tensor in memory, whose part has them; the stride is for any other layout. A
    quantised tensor is dequantised. A dtype that optest does not know becomes one that holds the same values, or bits.
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


# A case's inputs as tensors of the reference's own, in their dtypes or in float64.

WIDE = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64), torch.complex128),
}
"""What the reference computes in, by the dtype of the case."""


def on_cpu(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Tensors with the same strides in memory of their own, so that a call may change them."""
    return [copied(to_read(array)) for array in inputs]


def widened(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """The inputs in float64 or complex128 with the same strides; other dtypes stay as they are."""
    return [wide(to_read(array)) for array in inputs]


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """One tensor as :func:`widened` has it, in memory of its own."""
    kind = WIDE.get(tensor.dtype)
    if kind is None:
        return copied(tensor)
    return memory_of(tensor).to(kind).as_strided(tensor.shape, tensor.stride())


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with the same strides in memory of its own."""
    return memory_of(tensor).clone().as_strided(tensor.shape, tensor.stride())


def span_of(tensor: torch.Tensor) -> int:
    """How many elements lie from the first one to the last one in memory, gaps too."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return 1 + reach if tensor.numel() else 0


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """All that lies from the first element to the last one, as one row."""
    return tensor.as_strided((span_of(tensor),), (1,))
