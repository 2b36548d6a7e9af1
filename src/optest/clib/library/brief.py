"""The one call of `probes: guards` in a straight line, for a small case whose like was examined before.

Poison, values, descriptors, guards and modes are those of the long way, made anew for every call. What is not plainly
right goes the long way, once more and from the beginning; only what a second call might not show again is told here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optest.clib.ffi.float_control import FloatControl
from optest.clib.ffi.printed import Printed
from optest.clib.library.manners import noted_changes, require_float_mode
from optest.clib.library.places import WORKSPACE, Filling, Place
from optest.numerics import Array
from optest.process.state import ProcessState
from optest.spec import Check

if TYPE_CHECKING:
    from optest.clib.library.memory import CaseMemory
    from optest.clib.library.subject import Straight

__all__ = ["BriefCall"]


class BriefCall:
    """Calls with other values of the same kinds in the same place."""

    def __init__(
        self,
        memory: CaseMemory,
        place: Place,
        straight: Straight,
        printed: Printed,
        *,
        inputs: Sequence[str],
        outputs: Sequence[str],
        checks: tuple[Check, ...],
    ) -> None:
        """``inputs`` and ``outputs`` are the operator's names, in the order in which arrays come and go; ``checks`` are
        those of every such call."""
        self._checks = checks
        self._memory, self._place, self._straight, self._printed = memory, place, straight, printed
        self._times_left = memory.times_left
        self._float = FloatControl()
        self._watched = memory.watched(place)
        place.fill(Filling(), {})
        blanks = {slot.key: np.array(slot.buffer.region.memory) for slot in place.slots.values()}
        self._inputs = [
            (slot, slot.buffer.region.memory, blanks[slot.key], slot.buffer.array, inputs.index(slot.name))
            for slot in place.slots.values()
            if not slot.is_output and slot.key != WORKSPACE
        ]
        self._others: list[tuple[Any, Array, Array, bytes, Array, Any]] = [
            (slot, slot.buffer.region.memory, blanks[slot.key], slot.image, slot.buffer.array, slot.pristine)
            for slot in place.slots.values()
            if slot.is_output or slot.key == WORKSPACE
        ]
        self._outputs: list[tuple[Any, Any, Array]] = [
            (slot.words, slot.word, slot.buffer.array) for slot in place.in_order(outputs)
        ]

    @staticmethod
    def of(
        memory: CaseMemory,
        place: Place,
        straight: Straight | None,
        printed: Printed,
        *,
        inputs: Sequence[str],
        outputs: Sequence[str],
        checks: tuple[Check, ...],
    ) -> BriefCall | None:
        """None for a case that this is not for."""
        slots = place.slots.values()
        roles = {slot.key for slot in slots if slot.key != WORKSPACE}
        if (
            straight is None
            or not memory.keeps_places
            or not memory.is_plain
            or roles != {*(f"input:{name}" for name in inputs), *(f"output:{name}" for name in outputs)}
            or not all(slot.is_small and not slot.buffer.region.is_lent for slot in slots)
            or any(slot.words is None for slot in place.outputs)
        ):
            return None
        return BriefCall(memory, place, straight, printed, inputs=inputs, outputs=outputs, checks=checks)

    def __call__(
        self, arrays: Sequence[Array], *, looks_at_process: bool = False
    ) -> tuple[list[Array], tuple[Check, ...]] | None:
        """The outputs and what was checked; None where the long way has to be gone.

        ``looks_at_process`` compares what the process has one of before the call and after it.

        Raises:
            StatusError: if the library refuses.
            Fault: for a write into what is not the library's to write, another floating-point mode, or what became of
                the process.
        """
        memory, straight, copyto = self._memory, self._straight, np.copyto
        if memory.times_left != self._times_left:  # nobody may have the place again, or someone else has it
            return None
        images = []
        for _, region, blank, elements, index in self._inputs:
            copyto(region, blank)
            copyto(elements, arrays[index])
            images.append(region.tobytes())
        for _, region, blank, _, _, _ in self._others:
            copyto(region, blank)
        process = ProcessState() if looks_at_process else None
        self._float.renew()
        try:
            descriptor = straight.begin()
            try:
                if straight.workspace_bytes(descriptor) != memory.workspace_bytes:
                    return None
                with self._watched:
                    straight.run(descriptor)
                if self._printed.mark():
                    return None
                require_float_mode(self._float)
                for words, word, _ in self._outputs:
                    if b"\1" in (words == word).tobytes():  # the long way asks with another poison
                        return None
                noted = noted_changes(process) if process is not None else ()
                outputs = [np.array(elements) for _, _, elements in self._outputs]
                self._require_clean(arrays, images)
            finally:
                straight.end(descriptor)
        except BaseException:
            memory.leave()
            raise
        return outputs, (*noted, *self._checks) if noted else self._checks

    def _require_clean(self, arrays: Sequence[Array], images: Sequence[bytes]) -> None:
        """Give outputs and workspace what they held, and raise for the first byte that is not what it was.

        Raises:
            Fault: OUT_OF_BOUNDS, INPUT_MUTATED or WORKSPACE.
        """
        is_clean = True
        for (_, region, _, _, _), image in zip(self._inputs, images, strict=True):
            is_clean &= region.tobytes() == image
        for _, region, _, image, elements, pristine in self._others:
            np.copyto(elements, pristine)
            is_clean &= region.tobytes() == image
        if not is_clean:
            self._say_what_they_hold(arrays, images)
            self._place.require_clean()

    def _say_what_they_hold(self, arrays: Sequence[Array], images: Sequence[bytes]) -> None:
        """What the place would know if it had been filled the long way."""
        filling = Filling()
        for (slot, _, _, _, index), image in zip(self._inputs, images, strict=True):
            slot.poison, slot.values, slot.image, slot.pristine = filling.inputs, arrays[index], image, None
        for slot, _, _, image, _, pristine in self._others:
            slot.values, slot.image, slot.pristine = None, image, pristine
            if slot.is_output:
                slot.poison = filling.outputs
