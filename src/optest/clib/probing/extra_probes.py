"""What a few cases are asked beside the rest: tensors that share memory, arrays that the caller overwrites, NULL where
there is nothing, other NaNs, hundreds of calls, another caller at the same time.

Each is one comparison of bits with an answer that is known, so that no reference is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import combinations, islice
from threading import Event, Thread

import numpy as np

from optest.clib.ffi.calls import StatusError
from optest.clib.library.places import Place
from optest.clib.library.subject import Pointer
from optest.clib.probing.call_conditions import FIRST, ConditionedCalls
from optest.clib.probing.results import Answer, where_always_different, where_different
from optest.core.reproducible import is_reproducible
from optest.numerics import Array, dtype_of, numpy_dtype, view
from optest.spec import Fault, Kind, Reason, TensorSpec

_MOST_PAIRS = 2
_MANY = 300
"""Calls: more than a counter of eight bits counts."""

_CODES = {16: np.uint16, 32: np.uint32, 64: np.uint64}
"""The floats of IEEE and bfloat16 by their bits: they have NaNs of both signs with payloads."""


class ExtraProbes:
    """Calls one small case, whose ``first`` answer at its place ``home`` is known."""

    def __init__(self, calls: ConditionedCalls, home: Place, first: Answer) -> None:
        self._calls = calls
        self._memory = calls.memory
        self._subject = calls.subject
        self._home = home
        self._first = first

    def require_layouts_copied(self) -> None:
        """Sizes and strides are the caller's again as soon as a tensor's descriptor is made.

        Raises:
            Fault: STATE if the answer is another one when he has overwritten them.
        """
        if not self._subject.has_descriptors or self._gives_first(forgets=True) or not self._gives_first():
            return
        if is_reproducible(lambda: not self._gives_first(forgets=True), self._gives_first):
            message = (
                "the answer is another one where the caller overwrote the arrays of sizes and strides as soon as the "
                "functions that got them had returned"
            )
            raise Fault(Reason.STATE, message)

    def _gives_first(self, *, forgets: bool = False) -> bool:
        try:
            with self._subject.renewed(forgets=forgets):
                return self._first.is_same(self._calls.answer_to(self._memory.values, self._home))
        except (StatusError, Fault):
            return False

    def require_same_when_shared(self, *, but_alike: bool = False) -> int:
        """Inputs may lie in one memory: how many pairs of them did; ``but_alike`` only in place and in other layouts.

        Raises:
            Fault: VALUE if the answer is another one than with the same values in two memories.
        """
        pairs = list(self._pairs(but_alike))[:_MOST_PAIRS]
        for one, other in pairs:
            values, address = self._shared(one, other)
            pointers = self._memory.pointers(self._home)
            together = {**pointers, other: address}
            with suppress(StatusError):
                where = where_always_different(
                    partial(self._calls.answer_to, values, self._home, pointers),
                    partial(self._calls.answer_to, values, self._home, together),
                )
                if where:
                    names = " and ".join(key.partition(":")[2] for key in (one, other))
                    detail = f"where {names} lie in the same memory, not in two that hold the same"
                    raise Fault(Reason.VALUE, f"{where} is another one {detail}")
        return len(pairs)

    def note_of_null(self) -> str:
        """Call with NULL for tensors without elements, which has to do nothing or to be refused; what was refused."""
        specs = self._memory.specs()
        pointers = self._memory.pointers(self._home)
        empty = [key for key, spec in specs.items() if spec is not None and not spec.elements and key in pointers]
        try:
            self._calls.answer_to(self._memory.values, self._home, {**pointers, **dict.fromkeys(empty)})
        except StatusError as error:
            return f"NULL is refused for tensors without elements: {error}"
        return ""

    def with_other_nans(self) -> Answer | None:
        """The answer to NaNs of the other sign with another payload, if it differs in more than NaNs' bits."""
        values = {key: _other_nans(array) for key, array in self._memory.values.items()}
        with suppress(StatusError):
            answer = self._calls.answer_to(values, self._home)
            if not _is_same_but_for_nans(self._first, answer):
                return answer
        return None

    def require_same_after_many(self) -> None:
        """Call hundreds of times.

        Raises:
            Fault: STATE for the first call with another answer.
        """
        for count, answer in enumerate(islice(self._calls.repeated(self._home), _MANY), 1):
            if not self._first.is_same(answer):
                where = where_different(self._first, answer)
                raise Fault(Reason.STATE, f"{where} is another one in one of many equal calls, number {count} of these")

    def _pairs(self, but_alike: bool) -> Iterator[tuple[str, str]]:
        """Inputs of one dtype and shape whose storages have one size, so that the second may lie where the first does,
        be that in place."""
        specs = self._memory.specs()
        given = sorted(self._memory.values, key=lambda key: not key.startswith("output:"))
        for one, other in combinations(given, 2):
            if one.startswith("output:") and not (self._memory.may_join(one, other) and specs[one] == specs[other]):
                continue  # in place is what has one layout: anything else overlaps
            first, second = specs[one], specs[other]
            if first is None or second is None or not _may_share(first, second):
                continue
            if not but_alike or first != second or one.startswith("output:"):
                yield one, other

    def _shared(self, one: str, other: str) -> tuple[dict[str, Array], Pointer]:
        """Values by which both hold the same memory, and where ``other`` begins in that of ``one``."""
        memory, region = self._memory, self._home.slots[one].buffer.region
        spec = memory.specs()[other]
        assert spec is not None
        self._home.fill(FIRST.filling, memory.values)
        storage = np.array(region.memory[region.start : region.end]).view(numpy_dtype(spec.dtype))
        behind = region.start + spec.offset * spec.dtype.itemsize_bytes
        return {**memory.values, other: view(storage, spec)}, Pointer(region.address + behind, spec.dtype)


@contextmanager
def other_caller(run: Callable[[], None]) -> Iterator[None]:
    """While inside, another thread calls without a pause; it ends early where the library refuses."""
    is_over = Event()

    def call() -> None:
        with suppress(StatusError):
            while not is_over.is_set():
                run()

    thread = Thread(target=call, name="another caller", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def has_nan(answer: Answer) -> bool:
    return any(bool(_nans(array).any()) for array in answer.outputs.values())


def _nans(array: Array) -> Array:
    found: Array = np.isnan(array) if dtype_of(array.dtype).is_inexact else np.zeros(array.shape, bool)
    return found


def _other_nans(array: Array) -> Array:
    """The same values with other bits in what is NaN, where a float has several of them."""
    kind = dtype_of(array.dtype)
    if kind.kind is not Kind.FLOAT or kind.bits not in _CODES:
        return array
    codes = np.array(array, order="C").view(_CODES[kind.bits])
    codes[_nans(array)] ^= 1 << (kind.bits - 1) | 1
    return codes.view(array.dtype)


def _may_share(one: TensorSpec, other: TensorSpec) -> bool:
    """Not integers, which may be indices into something."""
    if one.dtype is not other.dtype or one.shape != other.shape or not one.dtype.is_inexact or not one.elements:
        return False
    return one == other or one.storage_elements == other.storage_elements == one.elements


def _is_same_but_for_nans(one: Answer, other: Answer) -> bool:
    for name, array in one.outputs.items():
        second = other.outputs[name]
        where = _nans(array)
        if (where != _nans(second)).any() or array[~where].tobytes() != second[~where].tobytes():
            return False
    return True
