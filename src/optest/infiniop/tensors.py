"""Tensors of a test: C descriptor, memory with guard zones and poisoned gaps, and logical values."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from optest.clib.ffi.handles import Handle
from optest.errors import UsageError
from optest.infiniop.datatypes import InfiniDtype, element_of, from_codes, infini_dtype
from optest.infiniop.devices import InfiniDeviceEnum, infini_device, require_device
from optest.infiniop.liboperators import LIBINFINIOP, check_error
from optest.infiniop.scope import current_scope
from optest.infiniop.structs import infiniopTensorDescriptor_t
from optest.infiniop.torch_bridge import is_torch, loaded_torch, to_array, to_tensor
from optest.infiniop.values import (
    TensorMemory,
    as_numpy,
    codes_of,
    layout_of,
    read_elements,
    scaled,
    strides_of,
    tensor_values,
)
from optest.memory.buffers import Buffer, Change, require_written
from optest.memory.poisons import Poison
from optest.numerics import Array, dtype_of, numpy_dtype, view
from optest.spec import Reason, contiguous_strides, format_shape


class CTensor:
    """A tensor descriptor of the library, created at first use; ``strides`` count elements, None is row-major."""

    def __init__(self, dt: Any, shape: Sequence[int], strides: Sequence[int] | None) -> None:
        self.dt: InfiniDtype = infini_dtype(dt)
        self.shape = [int(size) for size in shape]
        self.ndim = len(self.shape)
        dense = contiguous_strides(tuple(self.shape))
        self.strides = [int(stride) for stride in (dense if strides is None else strides)]
        if len(self.strides) != self.ndim:
            raise UsageError(f"strides {self.strides} have {len(self.strides)} entries, expected {self.ndim}")
        self.c_shape = (ctypes.c_size_t * self.ndim)(*self.shape)
        self.c_strides = (ctypes.c_ssize_t * self.ndim)(*self.strides)
        self._descriptor: Any = None
        self._ledger_handle: Handle | None = None
        self._is_destroyed = False

    @property
    def descriptor(self) -> Any:
        """``infiniopTensorDescriptor_t``, None after :meth:`destroy_desc`; raises StatusError if refused."""
        if self._descriptor is None and not self._is_destroyed:
            descriptor = infiniopTensorDescriptor_t()
            create = LIBINFINIOP.infiniopCreateTensorDescriptor
            check_error(create(ctypes.byref(descriptor), self.ndim, self.c_shape, self.c_strides, int(self.dt)))
            self._descriptor, self._ledger_handle = descriptor, LIBINFINIOP.ledger.handed_over(descriptor.address)
        return self._descriptor

    def destroy_desc(self) -> None:
        """Destroy the descriptor, if it exists; raise StatusError if the library refuses."""
        descriptor, self._descriptor, self._is_destroyed = self._descriptor, None, True
        if descriptor is not None:
            check_error(LIBINFINIOP.infiniopDestroyTensorDescriptor(descriptor))
            self._ledger_handle = None


class TestTensor(CTensor):
    """A tensor with values, in memory with guard zones.

    Modes: ``random`` (floats uniform in [0, 1), integers over all their bits), ``zeros``, ``ones``, ``randint``,
    ``float8_e4m3fn``, ``manual`` and ``binary`` (``set_tensor``); besides the seed's, ``normal``, ``special`` (NaN,
    infinities, subnormals and others), ``integer-exact``, and ``empty``, whose elements hold the poison. Then ``value *
    scale + bias``.

    Strides may be negative or 0, with gaps and overlaps; ``offset`` is the position of element [0, 0, …] in the
    storage, the smallest possible one by default. All other memory is poisoned, with NaN for floats. ``seed`` alone
    determines the values; without it they depend on the case's seed (or :func:`set_seed`) and on the number of tensors
    before. ``memory`` holds arguments of :meth:`Buffer.allocate`: ``name``, ``placement``, ``alignment`` (64 bytes),
    ``shift``, ``poison``.
    """

    __test__ = False  # pytest would take the name for a test class
    guard_reason = Reason.OUT_OF_BOUNDS

    def __init__(
        self,
        shape: Sequence[int],
        strides: Sequence[int] | None,
        dt: Any,
        device: Any,
        mode: str = "random",
        scale: Any = None,
        bias: Any = None,
        set_tensor: Any = None,
        randint_low: int | None = None,
        randint_high: int | None = None,
        *,
        offset: int | None = None,
        seed: int | None = None,
        **memory: Any,
    ) -> None:
        super().__init__(dt, shape, strides)
        self.device: InfiniDeviceEnum = infini_device(device)
        self.mode = mode
        scope = current_scope()
        self.seed, path = scope.next_path() if seed is None else (seed, "tensor")
        self._spec = layout_of(element_of(self.dt), self.shape, self.strides, offset)
        drawn = {"seed": self.seed, "path": path, "low": randint_low, "high": randint_high}
        values = tensor_values(mode, self.dt, self._spec, set_tensor, **drawn)
        buffer = Buffer.allocate(self._spec, **{"name": path, "poison": Poison.NAN, **memory})
        name = require_device(self.device)
        self._memory = TensorMemory(buffer, None if name == "cpu" else name)
        self.role = ""
        self._torch: Any = None
        self._logical: Array | None = None
        if values is not None:
            self._store(scaled(values, self.dt, scale, bias))
        scope.keep(self)

    def _store(self, codes: Array) -> None:
        """Write elements to the memory, and keep a dense copy as the logical values."""
        self._logical, self._torch = self._memory.put(codes), None

    def data(self) -> int:
        """Return the address of element [0, 0, …]."""
        return self._memory.address

    def is_broadcast(self) -> bool:
        """Return whether a stride is 0."""
        return 0 in self.strides

    def logical_array(self) -> Array:
        """Return the values without layout, a dense NumPy array for computing expected outputs.

        It includes what was written to :meth:`torch_tensor`. C16 and C32 are complex64. Mode ``empty`` has no values.
        """
        return from_codes(self._require_codes() if self._torch is None else to_array(self._torch), self.dt)

    def _require_codes(self) -> Array:
        if self._logical is None:
            raise UsageError("mode is empty, so the tensor has no logical values; set them with update_torch_tensor")
        return self._logical

    def actual_array(self) -> Array:
        """Return the elements in memory: a writable view on the processor, a copy of a device's and of C16, C32."""
        return from_codes(self._memory.fetch().array, self.dt)

    def torch_tensor(self) -> Any:
        """Return :meth:`logical_array` as a torch tensor on the device, always the same one, in torch's memory."""
        if self._torch is None:
            self._torch = self._as_torch(to_tensor(self._require_codes()).clone())
            if self._memory.is_on_device:
                self._torch = self._torch.to(require_device(self.device))
        return self._torch

    def actual_tensor(self) -> Any:
        """Return :meth:`actual_array` as a torch tensor: a view, or a copy for negative strides."""
        return self._as_torch(self._memory.tensor())

    @property
    def _torch_tensor(self) -> Any:
        """Name of :meth:`torch_tensor` in the seed."""
        return self.torch_tensor()

    @_torch_tensor.setter
    def _torch_tensor(self, tensor: Any) -> None:
        self.update_torch_tensor(tensor)

    @property
    def _data_tensor(self) -> Any:
        """Name of :meth:`actual_tensor` in the seed."""
        return self.actual_tensor()

    def _as_torch(self, tensor: Any) -> Any:
        if self.dt is InfiniDtype.C32:
            return tensor.view(loaded_torch().complex32)
        if self.dt is InfiniDtype.C16:
            raise UsageError("dtype C16 is two float8 numbers, which torch has no dtype for; use actual_array()")
        return tensor

    def update_torch_tensor(self, new_tensor: Any) -> None:
        """Replace the logical values, as after an in-place operation; the memory keeps its content."""
        codes = codes_of(new_tensor, self.dt, tuple(self.shape))
        self._logical = np.array(codes, order="C")  # a copy: the caller may change the array
        self._torch = new_tensor if is_torch(new_tensor) else None

    def set_tensor(self, new_tensor: Any) -> None:
        """Replace the logical values and the elements in memory; gaps and guard zones keep their content."""
        self._store(codes_of(new_tensor, self.dt, tuple(self.shape)))

    def elements(self) -> Array:
        """Return a dense copy of the elements in memory; C16 and C32 as their bits."""
        return np.array(self._memory.fetch().array, order="C")

    def mutated(self, before: Array) -> Change | None:
        """Return the first element with other bits than in `before`, else the nearest write outside, else None."""
        return self._memory.fetch().mutated(before)

    def check_guards(self) -> None:
        """Raise OUT_OF_BOUNDS (of a workspace WORKSPACE) if memory outside the elements was written."""
        buffer = self._memory.fetch()
        named = replace(buffer, name=f"{self.role} ({buffer.name})") if self.role else buffer
        named.require_clean(reason=self.guard_reason)

    def check_unchanged(self) -> None:
        """Raise INPUT_MUTATED unless every element equals its logical value bit for bit; check the guards, too."""
        self.check_guards()
        if self._logical is not None:
            self._memory.buffer.require_clean(self._logical)

    def check_written(self) -> None:
        """Raise UNWRITTEN if an element of a tensor of mode ``empty`` still holds the poison."""
        buffer = self._memory.fetch()
        require_written({buffer.name: (buffer.array, buffer.untouched())})

    @classmethod
    def from_binary(
        cls,
        binary_file: str | Path,
        shape: Sequence[int],
        strides: Sequence[int] | None,
        dt: Any,
        device: Any,
        **options: Any,
    ) -> TestTensor:
        """Return a tensor with the raw elements of a storage file, in this machine's byte order."""
        dtype = infini_dtype(dt)
        element_strides = contiguous_strides(tuple(shape)) if strides is None else tuple(strides)
        spec = layout_of(element_of(dtype), shape, element_strides, 0)
        values = view(read_elements(Path(binary_file), spec), spec)
        return cls(shape, strides, dtype, device, mode="binary", set_tensor=values, **options)

    @classmethod
    def from_torch(cls, torch_tensor: Any, dt: Any, device: Any, **options: Any) -> TestTensor:
        """Return a tensor with the values and strides of a torch tensor, which may be expanded."""
        strides = torch_tensor.stride()
        return cls(torch_tensor.shape, strides, dt, device, mode="manual", set_tensor=torch_tensor, **options)

    @classmethod
    def from_numpy(cls, array: Array, dt: Any, device: Any, **options: Any) -> TestTensor:
        """Return a tensor with the values and strides of a NumPy array; strides may be negative."""
        return cls(array.shape, strides_of(array), dt, device, mode="manual", set_tensor=array, **options)

    @classmethod
    def from_dlpack(cls, source: Any, dt: Any = None, device: Any = InfiniDeviceEnum.CPU, **options: Any) -> TestTensor:
        """Return a tensor with the values and strides of a DLPack object; ``dt`` defaults to its dtype."""
        if is_torch(source):
            return cls.from_torch(source, source.dtype if dt is None else dt, device, **options)
        array = as_numpy(source)
        return cls.from_numpy(array, dtype_of(array.dtype).name if dt is None else dt, device, **options)

    def __repr__(self) -> str:
        layout = "" if self._spec.is_dense else f", strides {self.strides}"
        return f"<TestTensor {self.dt.name}[{format_shape(tuple(self.shape))}]{layout}, {self.mode}>"


class TestWorkspace:
    """``size`` bytes for an operator between guard zones, full of ``content`` as if used by an earlier call."""

    __test__ = False

    def __init__(self, size: int, device: Any, *, content: int = 0xFF) -> None:
        self._size = int(size)
        self.tensor: TestTensor | None = None
        if self._size:
            filled = np.full(self._size, content, numpy_dtype(element_of(InfiniDtype.U8)))
            self.tensor = TestTensor((self._size,), None, "U8", device, "manual", set_tensor=filled, alignment=256)
            self.tensor.role, self.tensor.guard_reason = "workspace", Reason.WORKSPACE

    def data(self) -> int | None:
        """Return the address, None for a workspace of 0 bytes."""
        return self.tensor.data() if self.tensor is not None else None

    def size(self) -> ctypes.c_uint64:
        return ctypes.c_uint64(self._size)

    def check_guards(self) -> None:
        """Raise WORKSPACE if memory outside the requested bytes was written."""
        if self.tensor is not None:
            self.tensor.check_guards()
