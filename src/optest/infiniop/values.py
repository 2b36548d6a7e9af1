"""What stands in a test tensor, drawn by optest's generators from a seed or given, scaled and shifted once; and where
it lies: guarded memory of this machine, or its image on a torch device."""

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
_FILLS |= {each: each for each in ("zeros", "ones", "randint", "special", "integer-exact")}
GIVEN_MODES = ("manual", "binary")
"""Modes whose values come from outside."""
MODES = (*_FILLS, "empty", *GIVEN_MODES)

_DESCRIPTOR = OperatorDescriptor(name="infiniop-tensor", signature="tensor -> out")


def tensor_values(mode: str, dt: InfiniDtype, spec: TensorSpec, given: Any, **drawn: Any) -> Array | None:
    """The elements in the tensor's shape, as they lie in memory; those that share memory share their value. None for
    mode ``empty``; ``drawn`` is what :func:`_drawn` takes.

    Raises:
        UnknownName: for a mode that does not exist.
        UsageError, Fault: for given values and a mode that takes none, or the reverse; for what the type does not hold.
    """
    if mode not in MODES:
        raise UnknownName("mode", mode, MODES)
    if mode == "empty":
        return None
    if mode in GIVEN_MODES:
        if given is None:
            raise UsageError(f"mode is {mode}, but set_tensor has no values")
        return codes_of(given, dt, spec.shape)
    if given is not None:
        raise UsageError(f"set_tensor has values, but mode is {mode}; it should be manual or binary")
    return view(_drawn(mode, dt, spec.storage_elements, **drawn), spec)


def _drawn(
    mode: str, dt: InfiniDtype, count: int, *, seed: int, path: str, low: int | None = None, high: int | None = None
) -> Array:
    """``count`` elements as they lie in memory, one-dimensional; the same for the same arguments on every machine.

    ``random`` is uniform in [0, 1) for floats and spreads the magnitudes of integers over all bits; ``randint`` has
    ``low`` up to, but without, ``high``.

    Raises:
        UsageError, Fault: for a mode or a range that the type does not have.
    """
    if mode == "float8_e4m3fn" and dt is not InfiniDtype.F8:
        return _on_the_float8_grid(dt, count, seed, path)
    component = COMPONENTS.get(dt)
    if component is not None:
        parts = _generated(_fill(mode, dtype_called(component), low, high), component, 2 * count, seed, path)
        codes: Array = parts.view(numpy_dtype(element_of(dt)))
        return codes
    element = element_of(dt)
    return _generated(_fill(mode, element, low, high), element.name, count, seed, path)


def _fill(mode: str, element: DType, low: int | None, high: int | None) -> Fill:
    is_whole = mode == "randint" or (mode == "random" and not element.is_inexact)
    if is_whole and (low is not None or high is not None):
        first = 0 if low is None else low
        last = _beyond(element) if high is None else high
        return Fill(kind="randint", parameters={"low": first, "high": last})
    if mode == "random" and not element.is_inexact:
        return Fill(kind="randn")
    if _FILLS[mode] == "uniform":
        return Fill(kind="uniform", parameters={"low": 0.0, "high": 1.0})
    return Fill(kind=_FILLS[mode])


def _beyond(element: DType) -> int:
    return element.max_int + 1 if element.is_integer else 1 << element.precision


def _generated(fill: Fill, name: str, count: int, seed: int, path: str) -> Array:
    spec = TensorSpec(dtype=dtype_called(name), shape=(count,))
    argument = Argument(name="tensor", path=path, spec=spec, fill=fill)
    case = TestCase(descriptor=_DESCRIPTOR, inputs=(argument,), seed=seed)
    (values,), _ = RandomTensorGenerator().generate(case)
    return values


def _on_the_float8_grid(dt: InfiniDtype, count: int, seed: int, path: str) -> Array:
    """Values of F8 in another type: in bytes their bits, in integers whole ones that it holds, else the numbers."""
    element = element_of(dt)
    if dt is InfiniDtype.BOOL:
        return _drawn("random", dt, count, seed=seed, path=path)
    if dt in (InfiniDtype.BYTE, InfiniDtype.U8, InfiniDtype.I8):
        bits: Array = _drawn("random", InfiniDtype.F8, count, seed=seed, path=path).view(numpy_dtype(element))
        return bits
    if element.is_integer and dt not in COMPONENTS:
        return _drawn("randint", dt, count, seed=seed, path=path, low=max(-16, element.min_int), high=17)
    is_real = element.is_float
    numbers = widen(_drawn("random", InfiniDtype.F8, count if is_real else 2 * count, seed=seed, path=path))
    return _encoded(numbers if is_real else numbers.astype(np.float64).view(np.complex128), dt)


def scaled(codes: Array, dt: InfiniDtype, scale: Any, bias: Any) -> Array:
    """``value * scale + bias``, computed in float64 or in whole numbers, and rounded once.

    Raises:
        UsageError: for a result that an integer type, or bool, does not hold.
    """
    if scale is None and bias is None:
        return codes
    factor, summand = 1 if scale is None else scale, 0 if bias is None else bias
    if element_of(dt).is_inexact or dt in COMPONENTS:
        return _encoded(widen(from_codes(codes, dt)) * factor + summand, dt)
    exact = codes.astype(object) * _whole(factor) + _whole(summand)
    return _encoded(np.asarray(exact), dt)


def _whole(number: Any) -> Any:
    """An integer where it is one, which no product rounds."""
    return int(number) if float(number).is_integer() else number


def _encoded(values: Array, dt: InfiniDtype) -> Array:
    """Numbers as elements, rounded once.

    Raises:
        UsageError: for numbers that an integer type, or bool, does not hold.
    """
    try:
        return to_codes(values, dt) if dt in COMPONENTS else round_to(values, element_of(dt))
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None


# Values from outside: torch, NumPy, DLPack, lists, files; their dtype, shape and strides are held to.


def codes_of(given: Any, dt: InfiniDtype, shape: tuple[int, ...]) -> Array:
    """Given values as they lie in memory, in ``shape``; sizes of 1 repeat. Values of another dtype are converted:
    a torch tensor as torch does, which cuts off fractions of integers, everything else rounded once.

    Raises:
        UsageError: for a shape that does not fit; for numbers that an integer type does not hold.
    """
    if is_torch(given) and dt not in COMPONENTS:
        given = given.to(to_torch_dtype(dt))
    array = gathered(given) if hasattr(given, "__dlpack__") else np.asarray(given)
    codes = array if array.dtype == numpy_dtype(element_of(dt)) else _encoded(array, dt)
    try:
        return np.broadcast_to(codes, shape)
    except ValueError:
        raise UsageError(f"values have the shape {format_shape(array.shape)}, expected {format_shape(shape)}") from None


def gathered(source: Any) -> Array:
    """The array behind ``__dlpack__``, in this machine's memory; an array is its own.

    Raises:
        UsageError: for memory that is elsewhere, or a dtype that NumPy cannot take over.
    """
    if isinstance(source, np.ndarray):
        return source
    if is_torch(source):
        return to_array(source)
    try:
        return np.from_dlpack(source)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"the tensor cannot be taken over by DLPack: {error}") from None


def strides_of(array: Array) -> tuple[int, ...]:
    """The strides in elements.

    Raises:
        UsageError: for strides that are no multiple of the element, or a dtype that optest does not know.
    """
    if not is_known(array.dtype):
        raise UsageError(f"array is {array.dtype}, which is no dtype of infinicore.h")
    size = array.itemsize
    if any(stride % size for stride in array.strides):
        raise UsageError(f"strides are {array.strides} bytes, expected multiples of {size}, the element's size")
    return tuple(stride // size for stride in array.strides)


def whole_file(path: Path, spec: TensorSpec) -> Array:
    """The raw elements of a file.

    Raises:
        UsageError: for a file that cannot be read or has another number of bytes.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"file {path} cannot be read: {error.strerror}") from None
    expected = spec.storage_elements * spec.dtype.itemsize_bytes
    if len(content) != expected:
        raise UsageError(f"file {path} has {len(content)} bytes, expected {expected} for {spec}")
    elements: Array = np.frombuffer(bytearray(content), np.uint8).view(numpy_dtype(spec.dtype))
    return elements


class TensorMemory:
    """A guarded buffer; for a torch device the last image of the same bytes, guards and gaps included, there."""

    def __init__(self, buffer: Buffer, device: str | None = None) -> None:
        """``device`` is torch's name of it, None for the processor, which needs no torch."""
        self.buffer = buffer
        self.address = buffer.address
        self._bytes: Any = None
        if device is not None:
            region = buffer.region
            self._bytes = loaded_torch().from_numpy(region.memory.copy()).to(device)
            self.address += self._bytes.data_ptr() - region.address

    @property
    def is_on_device(self) -> bool:
        return self._bytes is not None

    def fetch(self) -> Buffer:
        """The buffer as the device left it."""
        if self.is_on_device:
            np.copyto(self.buffer.region.memory, self._bytes.cpu().numpy())
        return self.buffer

    def put(self, values: Array) -> Array:
        """Put the values there, and return a dense copy of what lies there then.

        Raises:
            UsageError: for values that differ where the strides let elements share memory.
        """
        self.buffer.put(values)
        held = np.array(self.buffer.array, order="C")
        if not are_same_memory(held, np.ascontiguousarray(values)):
            strides = list(self.buffer.spec.strides or ())
            raise UsageError(f"values differ between elements that share memory (strides {strides})")
        if self.is_on_device:
            self._bytes.copy_(loaded_torch().from_numpy(self.buffer.region.memory))
        return held

    def tensor(self) -> Any:
        """A torch tensor in this memory; a copy where torch has no such strides."""
        if not self.is_on_device:
            return to_tensor(self.buffer.array)
        spec, region = self.buffer.spec, self.buffer.region
        strides = spec.strides or ()
        if any(stride < 0 for stride in strides):
            return to_tensor(self.fetch().array).to(self._bytes.device)
        dtype = to_tensor(self.buffer.array[(slice(0, 1),) * spec.rank]).dtype
        storage = self._bytes[region.start : region.end].view(dtype)
        return storage.as_strided(spec.shape, strides, storage.storage_offset() + spec.offset)


def laid_out(dtype: DType, shape: Sequence[int], strides: Sequence[int], offset: int | None = None) -> TensorSpec:
    """A layout; None puts the first element as near to the beginning of the storage as strides below 0 let it be.

    Raises:
        UsageError: for one that begins before the storage, or strides of another rank.
    """
    reaches = ((size - 1) * stride for size, stride in zip(shape, strides, strict=False))
    lowest = 0 if 0 in shape else -sum(min(0, reach) for reach in reaches)
    place = lowest if offset is None else offset
    try:
        return TensorSpec(dtype=dtype, shape=tuple(shape), strides=tuple(strides), offset=place)
    except ValueError as error:
        raise UsageError(str(error)) from None
