"""Tensors of a test: their descriptor in C, their memory with guards and poisoned gaps, and their logical values."""

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
from optest.infiniop.functions import check_error
from optest.infiniop.liboperators import LIBINFINIOP
from optest.infiniop.scope import current_scope
from optest.infiniop.structs import infiniopTensorDescriptor_t
from optest.infiniop.torch_bridge import is_torch, loaded_torch, to_array, to_tensor
from optest.infiniop.values import (
    TensorMemory,
    codes_of,
    gathered,
    laid_out,
    scaled,
    strides_of,
    tensor_values,
    whole_file,
)
from optest.memory.buffers import Buffer, Change, require_written
from optest.memory.poisons import Poison
from optest.numerics import Array, dtype_of, numpy_dtype, view
from optest.spec import Reason, contiguous_strides, format_shape


class CTensor:
    """A tensor descriptor of the library, made when it is first asked for.

    ``strides`` count elements, None is dense and row-major.
    """

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
        self._account: Handle | None = None
        self._is_destroyed = False

    @property
    def descriptor(self) -> Any:
        """``infiniopTensorDescriptor_t``; None after :meth:`destroy_desc`.

        Raises:
            StatusError: if the library refuses the description.
            Unavailable: without a library.
        """
        if self._descriptor is None and not self._is_destroyed:
            made = infiniopTensorDescriptor_t()
            create = LIBINFINIOP.infiniopCreateTensorDescriptor
            check_error(create(ctypes.byref(made), self.ndim, self.c_shape, self.c_strides, int(self.dt)))
            self._descriptor, self._account = made, LIBINFINIOP.ledger.handed_over(made.address)
        return self._descriptor

    def destroy_desc(self) -> None:
        """End the descriptor; calling it again does nothing.

        Raises:
            StatusError: if the library refuses.
        """
        descriptor, self._descriptor, self._is_destroyed = self._descriptor, None, True
        if descriptor is not None:
            check_error(LIBINFINIOP.infiniopDestroyTensorDescriptor(descriptor))
            self._account = None


class TestTensor(CTensor):
    """A tensor with values, in memory that is watched.

    Modes: ``random`` (floats uniform in [0, 1), integers over all their bits), ``zeros``, ``ones``, ``randint``,
    ``float8_e4m3fn``, ``manual`` and ``binary`` (``set_tensor``); beyond the seed's, ``normal``, ``special`` (NaN,
    infinities, subnormals among others), ``integer-exact``, and ``empty``, whose elements hold the poison. Then
    ``value * scale + bias``.

    Strides may have any sign or be 0, with gaps and overlaps; ``offset`` is where element [0, 0, …] lies in the
    storage, as small as possible unless stated. What is no element is poisoned: NaN for floats, so that reading it
    shows. ``seed`` makes the values those of this seed alone, otherwise they follow from the case's (or
    :func:`set_seed`) and how many tensors came before. ``memory`` is what else :meth:`Buffer.allocate` takes:
    ``name``, ``placement``, ``alignment`` (64 bytes), ``shift``, ``poison``.
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
        self._spec = laid_out(element_of(self.dt), self.shape, self.strides, offset)
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
        """Into the memory, and a dense copy as the logical values."""
        self._logical, self._torch = self._memory.put(codes), None

    def data(self) -> int:
        """The address of element [0, 0, …], for C."""
        return self._memory.address

    def is_broadcast(self) -> bool:
        """Whether a stride is 0."""
        return 0 in self.strides

    def logical_array(self) -> Array:
        """The values without layout, for computing what is expected: a dense NumPy array that no C function gets.

        What was written to :meth:`torch_tensor` shows in it. C16 and C32 come as complex64. Mode ``empty`` has none.
        """
        return from_codes(self._codes() if self._torch is None else to_array(self._torch), self.dt)

    def _codes(self) -> Array:
        if self._logical is None:
            raise UsageError("mode is empty, so there are no logical values yet; set them with update_torch_tensor")
        return self._logical

    def actual_array(self) -> Array:
        """The tensor as it lies in memory and as C leaves it; on the processor a view that may be written.

        C16 and C32 come as a copy, in complex64.
        """
        return from_codes(self._memory.fetch().array, self.dt)

    def torch_tensor(self) -> Any:
        """:meth:`logical_array` for torch: always the same tensor, in torch's own memory on the tensor's device.

        Raises:
            Unavailable: without torch.
        """
        if self._torch is None:
            self._torch = self._as_torch(to_tensor(self._codes()).clone())
            if self._memory.is_on_device:
                self._torch = self._torch.to(require_device(self.device))
        return self._torch

    def actual_tensor(self) -> Any:
        """:meth:`actual_array` for torch: a view, but a copy where strides are negative, which torch has not.

        Raises:
            Unavailable: without torch.
        """
        return self._as_torch(self._memory.tensor())

    @property
    def _torch_tensor(self) -> Any:
        """The seed's attribute behind :meth:`torch_tensor`."""
        return self.torch_tensor()

    @_torch_tensor.setter
    def _torch_tensor(self, tensor: Any) -> None:
        self.update_torch_tensor(tensor)

    @property
    def _data_tensor(self) -> Any:
        """The seed's attribute behind :meth:`actual_tensor`."""
        return self.actual_tensor()

    def _as_torch(self, tensor: Any) -> Any:
        if self.dt is InfiniDtype.C32:
            return tensor.view(loaded_torch().complex32)
        if self.dt is InfiniDtype.C16:
            raise UsageError("dtype C16 is two float8 numbers, which torch has no dtype for; use actual_array()")
        return tensor

    def update_torch_tensor(self, new_tensor: Any) -> None:
        """Replace the logical values, as after an operation in place; the memory stays as it is."""
        codes = codes_of(new_tensor, self.dt, tuple(self.shape))
        self._logical = np.array(codes, order="C")
        self._torch = new_tensor if is_torch(new_tensor) else None

    def set_tensor(self, new_tensor: Any) -> None:
        """Replace the logical values and what lies in memory; gaps and guards are left alone."""
        self._store(codes_of(new_tensor, self.dt, tuple(self.shape)))

    def elements(self) -> Array:
        """A dense copy of what lies in memory now, C16 and C32 as their bits."""
        return np.array(self._memory.fetch().array, order="C")

    def mutated(self, before: Array) -> Change | None:
        """The first element that is not, bit for bit, what it was, else the nearest write outside."""
        return self._memory.fetch().mutated(before)

    def check_guards(self) -> None:
        """See that nothing was written outside the elements: before, behind, or in a gap between them.

        Raises:
            Fault: OUT_OF_BOUNDS (for a workspace WORKSPACE), naming the place.
        """
        change = self._memory.fetch().outside()
        if change is not None:
            change = replace(change, buffer=f"{self.role} ({change.buffer})" if self.role else change.buffer)
            raise change.fault(self.guard_reason)

    def check_unchanged(self) -> None:
        """See that every element is, bit for bit, the logical value, and that nothing was written outside.

        Raises:
            Fault: INPUT_MUTATED or OUT_OF_BOUNDS.
        """
        self.check_guards()
        if self._logical is None:
            return
        change = self.mutated(self._logical)
        if change is not None:
            raise change.fault(Reason.INPUT_MUTATED)

    def check_written(self) -> None:
        """See that no element of a tensor of mode ``empty`` still holds the poison.

        Raises:
            Fault: UNWRITTEN, with the first such element.
        """
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
        **further: Any,
    ) -> TestTensor:
        """From the raw elements of a storage, in this machine's byte order; strides apply to it.

        Raises:
            UsageError: for a file of another size.
        """
        known = infini_dtype(dt)
        dense = contiguous_strides(tuple(shape)) if strides is None else tuple(strides)
        spec = laid_out(element_of(known), shape, dense, 0)
        values = view(whole_file(Path(binary_file), spec), spec)
        return cls(shape, strides, known, device, mode="binary", set_tensor=values, **further)

    @classmethod
    def from_torch(cls, torch_tensor: Any, dt: Any, device: Any, **further: Any) -> TestTensor:
        """With the values and strides of a torch tensor, also of an expanded one."""
        strides = torch_tensor.stride()
        return cls(torch_tensor.shape, strides, dt, device, mode="manual", set_tensor=torch_tensor, **further)

    @classmethod
    def from_numpy(cls, array: Array, dt: Any, device: Any, **further: Any) -> TestTensor:
        """With the values and strides of a NumPy array, negative ones too."""
        return cls(array.shape, strides_of(array), dt, device, mode="manual", set_tensor=array, **further)

    @classmethod
    def from_dlpack(cls, source: Any, dt: Any = None, device: Any = InfiniDeviceEnum.CPU, **further: Any) -> TestTensor:
        """With the values and strides of whatever has ``__dlpack__``; ``dt`` is its dtype unless stated."""
        if is_torch(source):
            return cls.from_torch(source, source.dtype if dt is None else dt, device, **further)
        array = gathered(source)
        return cls.from_numpy(array, dtype_of(array.dtype).name if dt is None else dt, device, **further)

    def __repr__(self) -> str:
        layout = "" if self._spec.is_dense else f", strides {self.strides}"
        return f"<TestTensor {self.dt.name}[{format_shape(tuple(self.shape))}]{layout}, {self.mode}>"


class TestWorkspace:
    """``size`` bytes for an operator, full of what an earlier call might have left, between guards."""

    __test__ = False

    def __init__(self, size: int, device: Any, *, content: int = 0xFF) -> None:
        self._size = int(size)
        self.tensor: TestTensor | None = None
        if self._size:
            filled = np.full(self._size, content, numpy_dtype(element_of(InfiniDtype.U8)))
            self.tensor = TestTensor(
                (self._size,), None, InfiniDtype.U8, device, mode="manual", set_tensor=filled, alignment=256
            )
            self.tensor.role, self.tensor.guard_reason = "workspace", Reason.WORKSPACE

    def data(self) -> int | None:
        """Its address, None for a workspace of 0 bytes."""
        return self.tensor.data() if self.tensor is not None else None

    def size(self) -> ctypes.c_uint64:
        return ctypes.c_uint64(self._size)

    def check_guards(self) -> None:
        """See that nothing was written beyond what was asked for.

        Raises:
            Fault: WORKSPACE.
        """
        if self.tensor is not None:
            self.tensor.check_guards()
