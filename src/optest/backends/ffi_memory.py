"""The memory of one case in C: what surrounds it changes from call to call, and what the library did to it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optest.backends.ffi_mapping import OperatorMapping
from optest.ffi.faults import FaultReport
from optest.ffi.memory import Buffer, Change
from optest.ffi.poisons import Poison
from optest.ffi.statuses import StatusError
from optest.ffi.workspace import Workspace
from optest.numerics import Array, dtype_of
from optest.spec import Check, CheckState, Fault, Reason, TensorSpec, contiguous_strides

__all__ = ["CaseMemory"]

Run = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Surroundings:
    """What a call finds where it should not look: in the outputs, in the workspace, around the inputs."""

    outputs: Poison = Poison.A5
    workspace: int = 0xFF
    inputs: Poison = Poison.NAN


_FIRST = _Surroundings()
_CALLS = (
    _FIRST,
    _Surroundings(outputs=Poison.X5A, workspace=0x00, inputs=Poison.HIGH),
    _Surroundings(inputs=Poison.LOW),
)
_BLAME = (
    (replace(_FIRST, outputs=Poison.X5A), Reason.UNWRITTEN, "what the outputs held before the call"),
    (replace(_FIRST, workspace=0x00), Reason.WORKSPACE, "what the workspace held before the call"),
    (replace(_FIRST, inputs=Poison.HIGH), Reason.READ_OUT_OF_BOUNDS, "memory outside the elements of the inputs"),
    (replace(_FIRST, inputs=Poison.LOW), Reason.READ_OUT_OF_BOUNDS, "memory outside the elements of the inputs"),
)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one call left: the outputs, and which of their elements still hold the poison."""

    outputs: dict[str, Array]
    untouched: dict[str, Array]

    def is_same(self, other: _Answer) -> bool:
        return all(array.tobytes() == other.outputs[name].tobytes() for name, array in self.outputs.items())


class CaseMemory:
    """Buffers for the tensors of one case, used for several calls."""

    def __init__(self, entry: OperatorMapping, given: Mapping[str, Array], layouts: Mapping[str, TensorSpec]) -> None:
        roles = entry.roles()
        named = {role.name for role in roles if role.kind == "input"}
        self._absent = {role.key for role in roles if role.kind == "input" and role.name not in given}
        first = next(iter(layouts.values()))
        self._values: dict[str, Array] = {}
        self._inputs: dict[str, Buffer] = {}
        for name in named & given.keys():
            values, spec = _placed(given[name], first.shape if entry.broadcasts else None)
            self._values[name] = values
            self._inputs[name] = Buffer.allocate(spec, name=f"input {name}", poison=_FIRST.inputs)
        self._outputs = {
            name: Buffer.allocate(spec, name=f"output {name}", poison=_FIRST.outputs) for name, spec in layouts.items()
        }
        self._start = _start(entry, given, layouts)
        self._workspace = Workspace.allocate(0)

    def specs(self) -> dict[str, TensorSpec | None]:
        """The tensors by role; None for one that is left out."""
        return {
            **{f"output:{name}": buffer.spec for name, buffer in self._outputs.items()},
            **{f"input:{name}": buffer.spec for name, buffer in self._inputs.items()},
            **dict.fromkeys(self._absent),
        }

    def take_workspace(self, size: int) -> None:
        self._workspace = Workspace.allocate(size)

    def outputs(self, run: Run) -> tuple[dict[str, Array], tuple[Check, ...]]:
        """Call under several surroundings; return the first call's outputs, and notes.

        Raises:
            Fault: OUT_OF_BOUNDS, INPUT_MUTATED, WORKSPACE, UNWRITTEN or READ_OUT_OF_BOUNDS.
        """
        with self._watched():
            return self._outputs_of(run)

    def _outputs_of(self, run: Run) -> tuple[dict[str, Array], tuple[Check, ...]]:
        answers = [self._answer(run, surroundings) for surroundings in _CALLS]
        first = answers[0]
        self._require_written(first, answers[1])
        if all(first.is_same(other) for other in answers[1:]):
            return first.outputs, ()
        if not first.is_same(self._answer(run, _FIRST)):
            detail = "the same call with the same arguments gave other bits; the first call's outputs were compared"
            return first.outputs, (Check(name="same bits in a second call", state=CheckState.NOTE, detail=detail),)
        for surroundings, reason, what in _BLAME:
            other = self._answer(run, surroundings)
            if not first.is_same(other):
                raise Fault(reason, f"{_where_different(first, other)} depends on {what}")
        detail = "a call gave other bits, but did so for none of its surroundings alone"
        return first.outputs, (Check(name="same bits in a second call", state=CheckState.NOTE, detail=detail),)

    def outputs_if_accepted(self, run: Run) -> dict[str, Array]:
        """Call once, for a call that should be refused: whether it was counts, not what it did when it was not.

        Raises:
            StatusError: if it was refused.
            Fault: OUT_OF_BOUNDS, INPUT_MUTATED or WORKSPACE if it was refused and wrote where it should not.
        """
        self._prepare(_FIRST)
        try:
            with self._watched():
                self._call(run)
        except StatusError:
            self._require_clean()
            raise
        return {name: np.array(buffer.array) for name, buffer in self._outputs.items()}

    def checks(self) -> tuple[Check, ...]:
        """What was looked at."""
        return (
            Check(
                name="guard zones",
                state=CheckState.DONE,
                detail="256 bytes on each side and all gaps, of inputs, outputs and workspace",
            ),
            Check(name="outputs written", state=CheckState.DONE, detail="two poisons"),
            Check(name="nothing else read", state=CheckState.DONE, detail="three calls, three poisons around inputs"),
            Check(name="workspace", state=CheckState.DONE, detail=f"{self._workspace.size} bytes, two contents"),
        )

    def _answer(self, run: Run, surroundings: _Surroundings) -> _Answer:
        self._prepare(surroundings)
        self._call(run)
        self._require_clean()
        return _Answer(
            {name: np.array(buffer.array) for name, buffer in self._outputs.items()},
            {name: buffer.untouched() for name, buffer in self._outputs.items()},
        )

    def _watched(self) -> FaultReport:
        """A crash inside is told in words of these buffers, which stay where they are from call to call."""
        return FaultReport((*self._outputs.values(), *self._inputs.values(), self._workspace.buffer))

    def _call(self, run: Run) -> None:
        pointers: dict[str, Any] = {
            **{f"output:{name}": buffer for name, buffer in self._outputs.items()},
            **{f"input:{name}": buffer for name, buffer in self._inputs.items()},
            **dict.fromkeys(self._absent),
            "workspace": self._workspace,
            "workspace_size": self._workspace.size,
        }
        run(pointers)

    def _prepare(self, surroundings: _Surroundings) -> None:
        for name, buffer in self._inputs.items():
            self._inputs[name] = buffer.poisoned_again(surroundings.inputs)
            self._inputs[name].put(self._values[name])
        for name, buffer in self._outputs.items():
            self._outputs[name] = buffer.poisoned_again(surroundings.outputs)
            if name in self._start:
                self._outputs[name].put(self._start[name])
        self._workspace.fill(surroundings.workspace)

    def _require_clean(self) -> None:
        """Raise for the first byte that was not the library's to write."""
        for buffer in self._outputs.values():
            _require_none(buffer.outside(), Reason.OUT_OF_BOUNDS)
        for name, buffer in self._inputs.items():
            change = buffer.mutated(self._values[name])
            is_element = change is not None and change.place == "element"
            _require_none(change, Reason.INPUT_MUTATED if is_element else Reason.OUT_OF_BOUNDS)
        _require_none(self._workspace.outside(), Reason.WORKSPACE)

    def _require_written(self, first: _Answer, second: _Answer) -> None:
        """Raise where an element held each of two poisons after two calls."""
        for name, untouched in first.untouched.items():
            never = untouched & second.untouched[name]
            if name in self._start or not never.any():
                continue
            index = _first_index(never)
            raise Fault(
                Reason.UNWRITTEN,
                f"{int(never.sum())} of {never.size} elements of output {name} were never written; "
                f"the first at {index}",
                details={"output": name, "index": index},
            )


def _require_none(change: Change | None, reason: Reason) -> None:
    if change is not None:
        raise Fault(reason, str(change), details={"buffer": change.buffer, "place": change.place, "byte": change.byte})


def _first_index(where: Array) -> list[int]:
    return [int(axis[0]) for axis in np.nonzero(np.atleast_1d(where))][: where.ndim]


def _where_different(first: _Answer, other: _Answer) -> str:
    for name, array in first.outputs.items():
        if array.tobytes() == other.outputs[name].tobytes():
            continue
        size = array.dtype.itemsize
        one, two = (np.frombuffer(each.tobytes(), np.uint8).reshape(-1, size) for each in (array, other.outputs[name]))
        index = _first_index((one != two).any(axis=1).reshape(array.shape))
        return f"element {index} of output {name}"
    return "an output"


def _placed(array: Array, shape: tuple[int, ...] | None) -> tuple[Array, TensorSpec]:
    """An input as C gets it, with the layout that the case gave it; of ``shape``, by strides of 0, where it fits."""
    if shape is not None and array.shape != shape and _reaches(array.shape, shape):
        array = np.broadcast_to(array, shape)
    size = array.dtype.itemsize
    strides = tuple(stride // size for stride in array.strides)
    if array.size == 0:
        strides = contiguous_strides(array.shape)
    dtype = dtype_of(array.dtype)
    lowest = sum(min(0, (count - 1) * stride) for count, stride in zip(array.shape, strides, strict=True))
    return array, TensorSpec(dtype=dtype, shape=array.shape, strides=strides, offset=0 if array.size == 0 else -lowest)


def _reaches(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, wanted) == wanted
    except ValueError:
        return False


def _start(entry: OperatorMapping, given: Mapping[str, Array], layouts: Mapping[str, TensorSpec]) -> dict[str, Array]:
    """The values that an output holds when the call begins, by its name."""
    start = entry.starts_as
    if start is None or start.input not in given:
        return {}
    values, spec = given[start.input], layouts[start.output]
    if dtype_of(values.dtype) is not spec.dtype or not _reaches(values.shape, spec.shape):
        raise Fault(Reason.UNSUPPORTED, f"{start.input} does not fit output {start.output} ({spec}), where C reads it")
    return {start.output: np.broadcast_to(values, spec.shape)}
