"""Values of test tensors, drawn from a seed or provided, then scaled and shifted; and the memory that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optest.errors import UnknownName, UsageError
from optest.generators import RandomTensorGenerator
from optest.infiniop.datatypes import COMPONENTS, InfiniDtype, element_of, from_codes, to_codes, to_torch_dtype
from optest.infiniop.torch_bridge import is_torch, loaded_torch, to_array, to_tensor
from optest.memory.buffers import Buffer
from optest.numerics import Array, are_same_memory, is_known, numpy_dtype, round_to, view, widen
from optest.spec import Argument, DType, Fill, OperatorDescriptor, TensorSpec, TestCase, format_shape
from optest.spec import dtype as dtype_called

_FILLS = {"random": "uniform", "float8_e4m3fn": "uniform", "normal": "randn"}
_FILLS |= {mode: mode for mode in ("zeros", "ones", "randint", "special", "integer-exact")}
# Modes whose values come from the caller.
GIVEN_MODES = ("manual", "binary")
MODES = (*_FILLS, "empty", *GIVEN_MODES)

_DESCRIPTOR = OperatorDescriptor(name="infiniop-tensor", signature="tensor -> out")


def tensor_values(mode: str, dt: InfiniDtype, spec: TensorSpec, values: Any, **drawn: Any) -> Array | None:
    """Return a tensor's elements as stored, None for mode ``empty``; raise UnknownName, UsageError or Fault."""
    if mode not in MODES:
        raise UnknownName("mode", mode, MODES)
    if mode == "empty":
        return None
    if mode in GIVEN_MODES:
        if values is None:
            raise UsageError(f"mode is {mode}, which needs values; pass set_tensor")
        return codes_of(values, dt, spec.shape)
    if values is not None:
        raise UsageError(f"mode is {mode}, expected manual or binary for the values of set_tensor")
    return view(_draw_elements(mode, dt, spec.storage_elements, **drawn), spec)


def _draw_elements(
    mode: str, dt: InfiniDtype, count: int, *, seed: int, path: str, low: int | None = None, high: int | None = None
) -> Array:
    """Return ``count`` stored elements, one-dimensional, the same on every machine for the same arguments.

    ``random`` is uniform in [0, 1) for floats and covers all magnitudes of integers; ``randint`` is from ``low`` to
    ``high``, exclusive. Raise UsageError or Fault for a mode or range that the type does not support.
    """
    if mode == "float8_e4m3fn" and dt is not InfiniDtype.F8:
        return _draw_float8_values(dt, count, seed, path)
    component = COMPONENTS.get(dt)
    if component is not None:
        parts = _generate(_fill_of_mode(mode, dtype_called(component), low, high), component, 2 * count, seed, path)
        codes: Array = parts.view(numpy_dtype(element_of(dt)))
        return codes
    element = element_of(dt)
    return _generate(_fill_of_mode(mode, element, low, high), element.name, count, seed, path)


def _fill_of_mode(mode: str, element: DType, low: int | None, high: int | None) -> Fill:
    """Return the generator's fill for a mode; integers are drawn with ``low`` and ``high`` if one is given."""
    is_integer_draw = mode == "randint" or (mode == "random" and not element.is_inexact)
    if is_integer_draw and (low is not None or high is not None):
        if high is None:
            high = element.max_int + 1 if element.is_integer else 1 << element.precision
        return Fill(kind="randint", parameters={"low": low or 0, "high": high})
    if mode == "random" and not element.is_inexact:
        return Fill(kind="randn")
    if _FILLS[mode] == "uniform":
        return Fill(kind="uniform", parameters={"low": 0.0, "high": 1.0})
    return Fill(kind=_FILLS[mode])


def _generate(fill: Fill, name: str, count: int, seed: int, path: str) -> Array:
    spec = TensorSpec(dtype=dtype_called(name), shape=(count,))
    argument = Argument(name="tensor", path=path, spec=spec, fill=fill)
    case = TestCase(descriptor=_DESCRIPTOR, inputs=(argument,), seed=seed)
    (values,), _ = RandomTensorGenerator().generate(case)
    return values


def _draw_float8_values(dt: InfiniDtype, count: int, seed: int, path: str) -> Array:
    """Return values that float8_e4m3fn holds: its bits in bytes, whole numbers in integers, else its numbers."""
    element = element_of(dt)
    if dt is InfiniDtype.BOOL:
        return _draw_elements("random", dt, count, seed=seed, path=path)
    if dt in (InfiniDtype.BYTE, InfiniDtype.U8, InfiniDtype.I8):
        bits: Array = _draw_elements("random", InfiniDtype.F8, count, seed=seed, path=path).view(numpy_dtype(element))
        return bits
    if element.is_integer and dt not in COMPONENTS:
        # float8_e4m3fn holds whole numbers up to 16 exactly.
        return _draw_elements("randint", dt, count, seed=seed, path=path, low=max(-16, element.min_int), high=17)
    is_real = element.is_float
    numbers = widen(_draw_elements("random", InfiniDtype.F8, count if is_real else 2 * count, seed=seed, path=path))
    return _encode(numbers if is_real else numbers.astype(np.float64).view(np.complex128), dt)


def scaled(codes: Array, dt: InfiniDtype, scale: Any, bias: Any) -> Array:
    """Return ``value * scale + bias``, rounded once; raise UsageError if an integer type cannot hold a result."""
    if scale is None and bias is None:
        return codes
    factor, offset = 1 if scale is None else scale, 0 if bias is None else bias
    if element_of(dt).is_inexact or dt in COMPONENTS:
        return _encode(widen(from_codes(codes, dt)) * factor + offset, dt)
    # Python integers do not overflow.
    exact = codes.astype(object) * _as_exact_integer(factor) + _as_exact_integer(offset)
    return _encode(np.asarray(exact), dt)


def _as_exact_integer(number: Any) -> Any:
    """Return an int if `number` is whole, so that no product is rounded."""
    return int(number) if float(number).is_integer() else number


def _encode(values: Array, dt: InfiniDtype) -> Array:
    """Return numbers as stored elements, rounded once; raise UsageError if an integer type cannot hold one."""
    try:
        return to_codes(values, dt) if dt in COMPONENTS else round_to(values, element_of(dt))
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None


def codes_of(values: Any, dt: InfiniDtype, shape: tuple[int, ...]) -> Array:
    """Return the caller's values as stored elements in ``shape``; sizes of 1 are broadcast.

    Values of another dtype are converted: a torch tensor as torch does, which truncates fractions for integers, others
    rounded once. Raise UsageError for another shape and for numbers that an integer type cannot hold.
    """
    if is_torch(values) and dt not in COMPONENTS:
        values = values.to(to_torch_dtype(dt))
    array = as_numpy(values) if hasattr(values, "__dlpack__") else np.asarray(values)
    codes = array if array.dtype == numpy_dtype(element_of(dt)) else _encode(array, dt)
    try:
        return np.broadcast_to(codes, shape)
    except ValueError:
        raise UsageError(f"values have the shape {format_shape(array.shape)}, expected {format_shape(shape)}") from None


def as_numpy(source: Any) -> Array:
    """Return the array behind ``__dlpack__``; raise UsageError for a device's memory or a dtype that NumPy lacks."""
    if isinstance(source, np.ndarray):
        return source
    if is_torch(source):
        return to_array(source)
    try:
        return np.from_dlpack(source)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"the tensor cannot be imported by DLPack: {error}") from None


def strides_of(array: Array) -> tuple[int, ...]:
    """Return the strides in elements; raise UsageError for an unknown dtype, or strides that split elements."""
    if not is_known(array.dtype):
        raise UsageError(f"array is {array.dtype}, expected a dtype of infinicore.h")
    size = array.itemsize
    if any(stride % size for stride in array.strides):
        raise UsageError(f"strides are {array.strides} bytes, expected multiples of {size}, the element's size")
    return tuple(stride // size for stride in array.strides)


def read_elements(path: Path, spec: TensorSpec) -> Array:
    """Return the raw elements of a file; raise UsageError if it cannot be read or has another size."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"file {path} cannot be read: {error.strerror}") from None
    expected = spec.storage_elements * spec.dtype.itemsize_bytes
    if len(content) != expected:
        raise UsageError(f"file {path} has {len(content)} bytes, expected {expected} for {spec}")
    # bytearray, since bytes are read-only.
    elements: Array = np.frombuffer(bytearray(content), np.uint8).view(numpy_dtype(spec.dtype))
    return elements


class TensorMemory:
    """A guarded buffer; for a torch device also the image of its bytes there, with guard zones and gaps."""

    def __init__(self, buffer: Buffer, device: str | None = None) -> None:
        """Store the arguments; ``device`` is torch's name, None for the processor, which needs no torch."""
        self.buffer = buffer
        self.address = buffer.address
        self._bytes: Any = None
        if device is not None:
            region = buffer.region
            self._bytes = loaded_torch().from_numpy(region.memory.copy()).to(device)
            self.address += self._bytes.data_ptr() - region.address  # the same position in the image

    @property
    def is_on_device(self) -> bool:
        return self._bytes is not None

    def fetch(self) -> Buffer:
        """Return the buffer with the bytes that the device has now."""
        if self.is_on_device:
            np.copyto(self.buffer.region.memory, self._bytes.cpu().numpy())
        return self.buffer

    def put(self, values: Array) -> Array:
        """Write the values and return the stored elements; raise UsageError if elements that share memory differ."""
        self.buffer.put(values)
        stored = np.array(self.buffer.array, order="C")
        if not are_same_memory(stored, np.ascontiguousarray(values)):
            strides = list(self.buffer.spec.strides or ())
            raise UsageError(f"values differ between elements that share memory (strides {strides})")
        if self.is_on_device:
            self._bytes.copy_(loaded_torch().from_numpy(self.buffer.region.memory))
        return stored

    def tensor(self) -> Any:
        """Return a torch tensor in this memory; a copy for negative strides, which torch lacks."""
        if not self.is_on_device:
            return to_tensor(self.buffer.array)
        spec, region = self.buffer.spec, self.buffer.region
        strides = spec.strides or ()
        if any(stride < 0 for stride in strides):
            return to_tensor(self.fetch().array).to(self._bytes.device)
        # of one element: only the dtype is needed
        dtype = to_tensor(self.buffer.array[(slice(0, 1),) * spec.rank]).dtype
        storage = self._bytes[region.start : region.end].view(dtype)
        return storage.as_strided(spec.shape, strides, storage.storage_offset() + spec.offset)


def layout_of(dtype: DType, shape: Sequence[int], strides: Sequence[int], offset: int | None = None) -> TensorSpec:
    """Return the spec of a layout, else raise UsageError; the default offset is the smallest possible one."""
    reaches = ((size - 1) * stride for size, stride in zip(shape, strides, strict=False))
    lowest = 0 if 0 in shape else -sum(min(0, reach) for reach in reaches)
    first = lowest if offset is None else offset
    try:
        return TensorSpec(dtype=dtype, shape=tuple(shape), strides=tuple(strides), offset=first)
    except ValueError as error:
        raise UsageError(str(error)) from None
