"""Extra probes of a few cases: shared inputs, overwritten layouts, NULL, other NaNs, many calls, another caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import combinations, islice
from threading import Event, Thread

import numpy as np

from optest.clib.ffi.calls import StatusError
from optest.clib.library.subject import Pointer
from optest.clib.probing.call_conditions import FIRST, UNPRECEDED, ConditionedCalls
from optest.clib.probing.policy import CallOutputs, where_different, where_reproducibly_different
from optest.core.further_calls import is_reproducible
from optest.memory.buffer_sets import BufferSet
from optest.numerics import Array, dtype_of, numpy_dtype, view
from optest.spec import Fault, Kind, Reason, TensorSpec

_MAX_PAIRS = 2
# More calls than an eight-bit counter counts.
_MANY = 300

# Bit types of the IEEE floats and bfloat16, which have NaNs of both signs with payloads.
_CODES = {16: np.uint16, 32: np.uint32, 64: np.uint64}


class ExtraProbes:
    """Probes one small case, whose outputs ``first`` in the buffers ``home`` are known."""

    def __init__(self, calls: ConditionedCalls, home: BufferSet, first: CallOutputs) -> None:
        self._calls = calls
        self._memory = calls.memory
        self._subject = calls.subject
        self._home = home
        self._first = first

    def require_layouts_copied(self) -> None:
        """Raise STATE if outputs change when the caller overwrites sizes and strides after their use."""
        if not self._subject.has_descriptors or self._reproduces_first(forgets=True) or not self._reproduces_first():
            return
        if is_reproducible(lambda: not self._reproduces_first(forgets=True), self._reproduces_first):
            message = "the outputs change if the caller overwrites the arrays of sizes and strides after each function"
            raise Fault(Reason.STATE, f"{message} that got them has returned; copy the arrays")

    def _reproduces_first(self, *, forgets: bool = False) -> bool:
        """Return whether a new descriptor gives the first outputs; ``forgets`` overwrites layout arrays."""
        try:
            with self._subject.renewed(forgets=forgets):
                return self._first.is_same(self._calls.call(UNPRECEDED, self._home))
        except (StatusError, Fault):
            return False

    def require_same_when_shared(self, *, but_alike: bool = False) -> int:
        """Raise VALUE if inputs in the same memory change the outputs; return the number of pairs tried."""
        pairs = list(self._shareable_pairs(but_alike))[:_MAX_PAIRS]
        for one, other in pairs:
            values, address = self._values_in_shared_memory(one, other)
            pointers = self._memory.pointers(self._home)
            together = {**pointers, other: address}
            with suppress(StatusError):
                where = where_reproducibly_different(
                    partial(self._calls.call, UNPRECEDED, self._home, values, pointers),
                    partial(self._calls.call, UNPRECEDED, self._home, values, together),
                )
                if where:
                    names = " and ".join(key.partition(":")[2] for key in (one, other))
                    detail = f"if {names} are in the same memory instead of in two with the same values"
                    raise Fault(Reason.VALUE, f"{where} differs {detail}")
        return len(pairs)

    def note_of_null(self) -> str:
        """Return the library's refusal of NULL for tensors without elements; empty if it accepts the call."""
        specs = self._memory.specs()
        pointers = self._memory.pointers(self._home)
        empty = [key for key, spec in specs.items() if spec is not None and not spec.elements and key in pointers]
        try:
            self._calls.call(UNPRECEDED, self._home, pointers={**pointers, **dict.fromkeys(empty)})
        except StatusError as error:
            return f"NULL is refused for tensors without elements: {error}"
        return ""

    def with_other_nans(self) -> CallOutputs | None:
        """Return the outputs for other NaN signs and payloads if they differ in more than NaN bits."""
        values = {key: _with_other_nans(array) for key, array in self._memory.values.items()}
        with suppress(StatusError):
            answer = self._calls.call(UNPRECEDED, self._home, values)
            if not _is_same_except_nans(self._first, answer):
                return answer
        return None

    def require_same_after_many(self) -> None:
        """Repeat the call hundreds of times; raise STATE for the first call with other outputs."""
        for count, answer in enumerate(islice(self._calls.repeat(self._home), _MANY), 1):
            if not self._first.is_same(answer):
                where = where_different(self._first, answer)
                raise Fault(Reason.STATE, f"{where} differs in call {count} of {_MANY} equal calls")

    def _shareable_pairs(self, but_alike: bool) -> Iterator[tuple[str, str]]:
        """Yield pairs of inputs that can share memory; skip those of one layout if `but_alike`."""
        specs = self._memory.specs()
        keys = sorted(self._memory.values, key=lambda key: not key.startswith("output:"))
        for one, other in combinations(keys, 2):
            in_place = one.startswith("output:")
            # In-place needs one layout; others overlap in part.
            if in_place and not (self._memory.may_share_input(one, other) and specs[one] == specs[other]):
                continue
            first, second = specs[one], specs[other]
            if first is None or second is None or not _can_share(first, second):
                continue
            if not but_alike or first != second or in_place:
                yield one, other

    def _values_in_shared_memory(self, one: str, other: str) -> tuple[dict[str, Array], Pointer]:
        """Return values for both inputs in one memory, and the pointer to ``other`` in that of ``one``."""
        memory, region = self._memory, self._home.slots[one].buffer.region
        spec = memory.specs()[other]
        assert spec is not None
        self._home.fill(FIRST.filling, memory.values)
        storage = np.array(region.memory[region.start : region.end]).view(numpy_dtype(spec.dtype))
        offset = region.start + spec.offset * spec.dtype.itemsize_bytes
        return {**memory.values, other: view(storage, spec)}, Pointer(region.address + offset, spec.dtype)


@contextmanager
def other_caller(run: Callable[[], None]) -> Iterator[None]:
    """Run ``run`` repeatedly in another thread within the block, until the library refuses a call."""
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


def has_nan(answer: CallOutputs) -> bool:
    return any(bool(_nan_mask(array).any()) for array in answer.outputs.values())


def _nan_mask(array: Array) -> Array:
    mask: Array = np.isnan(array) if dtype_of(array.dtype).is_inexact else np.zeros(array.shape, bool)
    return mask


def _with_other_nans(array: Array) -> Array:
    """Return the array with sign and lowest bit of each NaN flipped; unchanged for other types than IEEE floats."""
    kind = dtype_of(array.dtype)
    if kind.kind is not Kind.FLOAT or kind.bits not in _CODES:
        return array
    codes = np.array(array, order="C").view(_CODES[kind.bits])
    codes[_nan_mask(array)] ^= 1 << (kind.bits - 1) | 1
    return codes.view(array.dtype)


def _can_share(one: TensorSpec, other: TensorSpec) -> bool:
    """Return whether both have one dtype, shape and dense storage size, and are no integers, which may be indices."""
    if one.dtype is not other.dtype or one.shape != other.shape or not one.dtype.is_inexact or not one.elements:
        return False
    return one == other or one.storage_elements == other.storage_elements == one.elements


def _is_same_except_nans(one: CallOutputs, other: CallOutputs) -> bool:
    for name, array in one.outputs.items():
        second = other.outputs[name]
        where = _nan_mask(array)
        if (where != _nan_mask(second)).any() or array[~where].tobytes() != second[~where].tobytes():
            return False
    return True
