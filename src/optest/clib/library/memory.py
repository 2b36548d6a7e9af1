"""The memory of one case in C: which tensors it has, with which values, and the places where they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from optest.clib.ffi.calls import StatusError
from optest.clib.ffi.faults import FaultReport
from optest.clib.library.case_tensors import NO_REQUEST, CallRequest
from optest.clib.library.layouts import reaches, strides_of
from optest.clib.library.operator_mapping import OperatorMapping
from optest.clib.library.places import Filling, Place, PlaceKey, PlacePool, Where
from optest.clib.library.subject import Pointer
from optest.core.kept_tensors import spec_of
from optest.numerics import Array, dtype_of
from optest.spec import Fault, Reason, TensorSpec

Run = Callable[[Mapping[str, Any]], None]


class CaseMemory:
    """The tensors of one case by role (``input:a``, ``output:out``), in as many places as are asked for."""

    def __init__(
        self,
        entry: OperatorMapping,
        given: Mapping[str, Array],
        layouts: Mapping[str, TensorSpec],
        *,
        request: CallRequest = NO_REQUEST,
        pool: PlacePool | None = None,
        alignment: int = 1,
    ) -> None:
        """``given`` are the inputs by name, ``layouts`` the outputs."""
        roles = entry.read.roles
        self._request = request
        self._entry = entry
        self._home = Where(alignment=alignment)
        self._pool = pool or PlacePool()
        self._taken: dict[tuple[Where, int], Place] = {}
        self._absent = {role.key for role in roles if role.is_input and role.name not in given}
        self._described: dict[str, TensorSpec | None] = {f"output:{name}": spec for name, spec in layouts.items()}
        self.values: dict[str, Array] = {}
        reached = next(iter(layouts.values())).shape if entry.broadcasts else None
        self._inputs = [(role.key, role.name) for role in roles if role.is_input and role.name in given]
        for key, name in self._inputs:
            self.values[key], self._described[key] = _placed(given[name], reached)
        self._shapes_given = {key: given[name].shape for key, name in self._inputs}
        self.values |= _start(entry, given, layouts, request)
        self._held = {key: spec for key, spec in self._described.items() if spec is not None}
        self._together: dict[str, tuple[str, int]] = {}
        for output, tensor in request.in_place.items():
            self._put_in_place(output, tensor)
        for output, tensor in request.alias.items():
            self._overlap(output, tensor)
        self.workspace_bytes = 0

    def inputs_as_given(self) -> dict[str, str]:
        """The names of the inputs by role that lie in memory of their own and in the shape in which they were given."""
        return {
            key: name
            for key, name in self._inputs
            if key in self.values and self.values[key].shape == self._shapes_given[key]
        }

    def values_with(self, key: str, other: Array) -> dict[str, Array]:
        """The values with others for one input, and for the outputs that hold it when the call begins."""
        name = key.partition(":")[2]
        held = [f"output:{start.output}" for start in self._entry.starts if start.input == name]
        copies = {each: np.broadcast_to(other, self.values[each].shape) for each in held if each in self.values}
        return {**self.values, key: other, **copies}

    def specs(self) -> dict[str, TensorSpec | None]:
        """The tensors by role as they are described to C; None for one that is left out."""
        hidden = dict.fromkeys(self._request.null_descriptor)
        return {**self._described, **dict.fromkeys(self._absent), **hidden}

    def may_join(self, output: str, tensor: str) -> bool:
        """Whether the output is an input in place, and another input may lie there too."""
        return output in self._request.in_place and tensor.partition(":")[2] in self._entry.in_place

    def take_workspace(self, size: int) -> None:
        """Calls get ``size`` bytes, or one less where the case asks for too few.

        Raises:
            Fault: UNSUPPORTED where there is nothing to be too short.
        """
        if size == 0 and (self._request.short_workspace or "workspace" in self._request.null):
            raise Fault(Reason.UNSUPPORTED, "the library asks for no workspace, so there is nothing to refuse")
        size -= self._request.short_workspace
        self.workspace_bytes = size

    @property
    def nbytes(self) -> int:
        specs = self._held.values()
        return sum(spec.storage_elements * spec.dtype.itemsize_bytes for spec in specs) + self.workspace_bytes

    @property
    def most_elements(self) -> int:
        return max(spec.elements for spec in self._held.values())

    def place(self, where: Where) -> Place:
        """The same place for the same ``where``, until it is released."""
        if (where, self.workspace_bytes) not in self._taken:
            key: PlaceKey = (where, tuple(self._held.items()), self.workspace_bytes)
            self._taken[where, self.workspace_bytes] = self._pool.take(key)
        return self._taken[where, self.workspace_bytes]

    def release(self, *, for_others: bool = True) -> None:
        """Another case may have the places, or nobody again: the next ones are others then."""
        for place in self._taken.values():
            (self._pool.give_back if for_others else self._pool.leave)(place)
        self._taken, self.values = {}, {}  # which may be large

    def pointers(self, place: Place) -> dict[str, Any]:
        """What a call gets, by role, with what the case asks to be done otherwise."""
        given = {**place.pointers(), **dict.fromkeys(self._absent)}
        for key, (tensor, elements) in self._together.items():
            buffer = given[tensor]
            behind = elements * buffer.spec.dtype.itemsize_bytes
            given[key] = Pointer(buffer.address + behind, buffer.element) if behind else buffer
        return {**given, **dict.fromkeys(self._request.null)}

    def watched(self, *places: Place) -> FaultReport:
        """A crash inside is told in words of the places' buffers."""
        return FaultReport([buffer for place in places for buffer in place.buffers])

    def outputs_if_accepted(self, run: Run) -> dict[str, Array]:
        """Call once, for a call that should be refused: whether it was counts, not what it did when it was not.

        Raises:
            StatusError: if it was refused.
            Fault: OUT_OF_BOUNDS, INPUT_MUTATED or WORKSPACE if it was refused and wrote where it should not.
        """
        place = self.place(self._home)
        place.fill(Filling(), self.values)
        try:
            with self.watched(place):
                run(self.pointers(place))
        except StatusError:
            self._require_untouched(place)
            raise
        return {
            key.partition(":")[2]: np.array(slot.buffer.array) for key, slot in place.slots.items() if slot.is_output
        }

    def _require_untouched(self, place: Place) -> None:
        """A refused call writes nothing, into the outputs neither."""
        held = {key: self.values.get(key) for key, slot in place.slots.items() if slot.is_output}
        for name, untouched in place.untouched().items():
            if held[f"output:{name}"] is None and not untouched.all():
                message = f"the call was refused, but wrote into output {name}"
                raise Fault(Reason.OUT_OF_BOUNDS, message, details={"refused_output": name})
        place.require_clean()

    def _put_in_place(self, output: str, tensor: str) -> None:
        """The output is the input: one buffer, which holds the input's values when the call begins."""
        spec, own = self._held.get(tensor), self._held[output]
        if spec is None or (spec.dtype, spec.shape) != (own.dtype, own.shape):
            raise Fault(Reason.BAD_CASE, f"{output} ({own}) cannot be {tensor} ({spec}) in place")
        if any(stride == 0 and size > 1 for stride, size in zip(strides_of(spec), spec.shape, strict=True)):
            raise Fault(Reason.BAD_CASE, f"{output} cannot be {tensor} ({spec}): it has several elements at one place")
        self._described[output] = self._held[output] = spec
        self.values[output] = self.values.pop(tensor)
        del self._held[tensor]
        self._together[tensor] = (output, 0)

    def _overlap(self, output: str, tensor: str) -> None:
        """The output begins beside the first element of the other tensor, in memory that has room for both."""
        if tensor not in self._held:
            raise Fault(Reason.BAD_CASE, f"{output} cannot overlap {tensor}, which the case leaves out")
        spec, own = self._held[tensor], self._held.pop(output)
        behind = self._request.behind
        room = TensorSpec(dtype=spec.dtype, shape=(spec.storage_elements + own.storage_elements * 2 + abs(behind),))
        values = self.values.pop(tensor, None)
        self._held[tensor] = room
        if values is not None and values.size:
            self.values[tensor] = np.resize(values, room.shape)
        first = max(spec.offset, own.offset - behind)
        self._together[tensor] = (tensor, first)
        self._together[output] = (tensor, first + behind)
        self._together = dict(sorted(self._together.items(), key=lambda each: each[0] == each[1][0]))


def _placed(array: Array, shape: tuple[int, ...] | None) -> tuple[Array, TensorSpec]:
    """An input as C gets it, with the layout that the case gave it; of ``shape``, by strides of 0, where it fits."""
    if shape not in (None, array.shape) and reaches(array.shape, shape):
        array = np.broadcast_to(array, shape)
    return array, spec_of(array)


def _start(
    entry: OperatorMapping, given: Mapping[str, Array], layouts: Mapping[str, TensorSpec], request: CallRequest
) -> dict[str, Array]:
    """The values that outputs hold when the call begins, by their keys."""
    held: dict[str, Array] = {}
    for start in entry.starts:
        if start.input not in given:
            continue
        values, spec = given[start.input], layouts[start.output]
        if dtype_of(values.dtype) is spec.dtype and reaches(values.shape, spec.shape):
            held[f"output:{start.output}"] = np.broadcast_to(values, spec.shape)
        elif not (request.shapes or request.dtypes):  # else it is described so that it has to be refused
            what = f"{start.input} does not fit output {start.output} ({spec}), where C reads it"
            raise Fault(Reason.UNSUPPORTED, what)
    return held
