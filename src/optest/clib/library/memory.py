"""Memory of one case in C: its tensors, their values, and the buffers that hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from optest.clib.ffi.calls import StatusError
from optest.clib.ffi.faults import FaultReport
from optest.clib.library.case_tensors import NO_REQUEST, CallRequest
from optest.clib.library.layouts import reaches, strides_of
from optest.clib.library.operator_mapping import OperatorMapping
from optest.clib.library.subject import Pointer
from optest.core.kept_tensors import spec_of
from optest.memory.buffer_sets import BufferKey, BufferPlacement, BufferPool, BufferSet, Filling
from optest.numerics import Array, dtype_of
from optest.spec import Fault, Reason, TensorSpec

Run = Callable[[Mapping[str, Any]], None]


class CaseMemory:
    """Tensors of one case by role (``input:a``, ``output:out``), in one set of buffers for each placement."""

    def __init__(
        self,
        entry: OperatorMapping,
        arrays: Mapping[str, Array],
        layouts: Mapping[str, TensorSpec],
        *,
        request: CallRequest = NO_REQUEST,
        pool: BufferPool | None = None,
        alignment: int = 1,
    ) -> None:
        """Store the arguments; ``arrays`` are the input arrays by name, ``layouts`` the output specs."""
        roles = entry.read.roles
        self._request = request
        self._entry = entry
        self._home = BufferPlacement(alignment=alignment)
        self._pool = pool or BufferPool()
        self._places: dict[tuple[BufferPlacement, int], BufferSet] = {}
        self._absent = {role.key for role in roles if role.is_input and role.name not in arrays}
        self._described: dict[str, TensorSpec | None] = {f"output:{name}": spec for name, spec in layouts.items()}
        self.values: dict[str, Array] = {}
        reached = next(iter(layouts.values())).shape if entry.broadcasts else None
        self._inputs = [(role.key, role.name) for role in roles if role.is_input and role.name in arrays]
        for key, name in self._inputs:
            array = arrays[name]
            if reached not in (None, array.shape) and reaches(array.shape, reached):
                array = np.broadcast_to(array, reached)  # by strides of 0, as C expects it
            self.values[key], self._described[key] = array, spec_of(array)
        self._original_shapes = {key: arrays[name].shape for key, name in self._inputs}
        self.values |= _initial_outputs(entry, arrays, layouts, request)
        self._stored = {key: spec for key, spec in self._described.items() if spec is not None}
        self._shared: dict[str, tuple[str, int]] = {}
        for output, tensor in request.in_place.items():
            self._put_in_place(output, tensor)
        for output, tensor in request.alias.items():
            self._overlap(output, tensor)
        self.workspace_bytes = 0

    def inputs_as_given(self) -> dict[str, str]:
        """Return the names, by role, of inputs that have separate memory and their original shape."""
        separate = [(key, name) for key, name in self._inputs if key in self.values]
        return {key: name for key, name in separate if self.values[key].shape == self._original_shapes[key]}

    def values_with(self, key: str, other: Array) -> dict[str, Array]:
        """Return the values with ``other`` for one input, and for the outputs that start as it."""
        name = key.partition(":")[2]
        held = [f"output:{start.output}" for start in self._entry.starts if start.input == name]
        copies = {out: np.broadcast_to(other, self.values[out].shape) for out in held if out in self.values}
        return {**self.values, key: other, **copies}

    def specs(self) -> dict[str, TensorSpec | None]:
        """Return the specs by role as C receives them; None for an omitted tensor."""
        hidden = dict.fromkeys(self._request.null_descriptor)
        return {**self._described, **dict.fromkeys(self._absent), **hidden}

    def may_share_input(self, output: str, tensor: str) -> bool:
        """Return whether the output is an input in place and the mapping also allows ``tensor`` there."""
        return output in self._request.in_place and tensor.partition(":")[2] in self._entry.in_place

    def take_workspace(self, size: int) -> None:
        """Set the workspace size, a byte less on request; raise UNSUPPORTED if a wrong workspace needs a size."""
        if size == 0 and (self._request.short_workspace or "workspace" in self._request.null):
            raise Fault(Reason.UNSUPPORTED, "the library needs no workspace, so it cannot refuse a wrong one")
        self.workspace_bytes = size - self._request.short_workspace

    @property
    def nbytes(self) -> int:
        specs = self._stored.values()
        return sum(spec.storage_elements * spec.dtype.itemsize_bytes for spec in specs) + self.workspace_bytes

    @property
    def most_elements(self) -> int:
        return max(spec.elements for spec in self._stored.values())

    def place(self, where: BufferPlacement) -> BufferSet:
        """Return the buffers for ``where``, the same ones until they are released."""
        if (where, self.workspace_bytes) not in self._places:
            key: BufferKey = (where, tuple(self._stored.items()), self.workspace_bytes)
            self._places[where, self.workspace_bytes] = self._pool.take(key)
        return self._places[where, self.workspace_bytes]

    def release(self, *, for_others: bool = True) -> None:
        """Drop the values; return the buffers to the pool, or leave them unused (``for_others=False``)."""
        for place in self._places.values():
            (self._pool.give_back if for_others else self._pool.leave)(place)
        self._places, self.values = {}, {}  # the arrays may be large

    def pointers(self, place: BufferSet) -> dict[str, Any]:
        """Return the arguments by role, with the NULLs and shared memory that the case requests."""
        arguments = {**place.pointers(), **dict.fromkeys(self._absent)}
        for key, (tensor, elements) in self._shared.items():
            buffer = arguments[tensor]
            behind = elements * buffer.spec.dtype.itemsize_bytes
            arguments[key] = Pointer(buffer.address + behind, buffer.element) if behind else buffer
        return {**arguments, **dict.fromkeys(self._request.null)}

    def watched(self, *places: BufferSet) -> FaultReport:
        """Return a context manager that describes a crash by these buffers."""
        return FaultReport([buffer for place in places for buffer in place.buffers])

    def outputs_if_accepted(self, run: Run) -> dict[str, Array]:
        """Call once, for a call that should be refused; return the outputs if the library accepts it.

        Raises:
            StatusError: if the library refuses the call.
            Fault: OUT_OF_BOUNDS, INPUT_MUTATED or WORKSPACE if it refuses and writes out of bounds.
        """
        place = self.place(self._home)
        place.fill(Filling(), self.values)
        try:
            with self.watched(place):
                run(self.pointers(place))
        except StatusError:
            self._require_untouched(place)
            raise
        return {slot.name: np.array(slot.buffer.array) for slot in place.outputs}

    def _require_untouched(self, place: BufferSet) -> None:
        """Raise a fault if a refused call wrote anything, outputs included."""
        for name, untouched in place.untouched().items():
            if self.values.get(f"output:{name}") is None and not untouched.all():
                message = f"the call was refused, but wrote into output {name}"
                raise Fault(Reason.OUT_OF_BOUNDS, message, details={"refused_output": name})
        place.require_clean()

    def _put_in_place(self, output: str, tensor: str) -> None:
        """Make input and output one buffer, which initially holds the input's values."""
        spec, output_spec = self._stored.get(tensor), self._stored[output]
        if spec is None or (spec.dtype, spec.shape) != (output_spec.dtype, output_spec.shape):
            message = f"{output} ({output_spec}) cannot be computed in place of {tensor} ({spec}), which differs"
            raise Fault(Reason.BAD_CASE, message)
        if any(stride == 0 and size > 1 for stride, size in zip(strides_of(spec), spec.shape, strict=True)):
            message = f"{output} cannot be computed in place of {tensor} ({spec}), whose elements overlap"
            raise Fault(Reason.BAD_CASE, message)
        self._described[output] = self._stored[output] = spec
        self.values[output] = self.values.pop(tensor)
        del self._stored[tensor]
        self._shared[tensor] = (output, 0)

    def _overlap(self, output: str, tensor: str) -> None:
        """Place the output ``behind`` elements after the first element of ``tensor``, in one larger buffer."""
        if tensor not in self._stored:
            message = f"{output} is to overlap {tensor}, which the case omits; add it or drop the overlap"
            raise Fault(Reason.BAD_CASE, message)
        spec, output_spec = self._stored[tensor], self._stored.pop(output)
        behind = self._request.behind
        room = TensorSpec(
            dtype=spec.dtype, shape=(spec.storage_elements + output_spec.storage_elements * 2 + abs(behind),)
        )
        values = self.values.pop(tensor, None)
        self._stored[tensor] = room
        if values is not None and values.size:
            self.values[tensor] = np.resize(values, room.shape)
        first = max(spec.offset, output_spec.offset - behind)
        self._shared[tensor] = (tensor, first)
        self._shared[output] = (tensor, first + behind)
        # The buffer's own entry is last: pointers() computes the others from the unchanged buffer.
        self._shared = dict(sorted(self._shared.items(), key=lambda pair: pair[0] == pair[1][0]))


def _initial_outputs(
    entry: OperatorMapping, arrays: Mapping[str, Array], layouts: Mapping[str, TensorSpec], request: CallRequest
) -> dict[str, Array]:
    """Return the initial values of outputs that start as an input, by role."""
    initial: dict[str, Array] = {}
    for start in entry.starts:
        if start.input not in arrays:
            continue
        values, spec = arrays[start.input], layouts[start.output]
        if dtype_of(values.dtype) is spec.dtype and reaches(values.shape, spec.shape):
            initial[f"output:{start.output}"] = np.broadcast_to(values, spec.shape)
        elif not (request.shapes or request.dtypes):  # else C receives the wrong spec and must refuse it
            message = f"{start.input} does not fit output {start.output} ({spec}), which C reads"
            raise Fault(Reason.UNSUPPORTED, message)
    return initial
