"""What few cases are asked beside the rest, of a sum that Python computes in the memory that C would get."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from handmade import subject_of
from texts import refusal

from optest.clib.ffi.calls import StatusError
from optest.clib.library.case_tensors import NO_REQUEST, CallRequest
from optest.clib.library.mapping_file import mapping_path, read_mapping
from optest.clib.library.memory import CaseMemory
from optest.clib.probing import side_effects
from optest.clib.probing.call_conditions import FIRST, ConditionedCalls
from optest.clib.probing.extra_probes import ExtraProbes, has_nan
from optest.clib.probing.policy import CallOutputs, Policy
from optest.core.further_calls import is_reproducible
from optest.memory.buffer_sets import BufferPlacement, BufferSet
from optest.numerics import Array
from optest.spec import Fault, Reason, TensorSpec, dtype

F32 = dtype("float32")
SHAPE = (3, 3)
ONE, OTHER, OUT = "input:input", "input:other", "output:out"
Sum = Callable[[Mapping[str, Any]], None]


def memory_of(one: Array, other: Array, request: CallRequest = NO_REQUEST) -> CaseMemory:
    entry = read_mapping(mapping_path("infiniop", "")).operators["add"][0]
    given = {"input": one, "other": other}
    return CaseMemory(entry, given, {"out": TensorSpec(dtype=F32, shape=one.shape)}, request=request)


def test_other_values_reach_started_output() -> None:
    """What C works on in place would hold the values of the call before."""
    entry = read_mapping(mapping_path("cblas", "")).operators["add"][0]
    one, spec = np.zeros(SHAPE, np.float32), TensorSpec(dtype=F32, shape=SHAPE)
    memory = CaseMemory(entry, {"input": one, "other": one}, {"out": spec})
    given = memory.values_with(ONE, one + 1)
    assert given[ONE].tolist() == given[OUT].tolist() == (one + 1).tolist()
    assert memory.values[OUT].tolist() == one.tolist()


def at(address: int, strides: tuple[int, ...], shape: tuple[int, ...] = SHAPE) -> Array:
    """The elements there; strides are in bytes."""
    count = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) // 4 + 1
    held = np.frombuffer((ctypes.c_float * count).from_address(address), np.float32)
    return np.lib.stride_tricks.as_strided(held, shape, strides)


def asked(one: Array, other: Array, run: Sum, request: CallRequest = NO_REQUEST) -> ExtraProbes:
    memory = memory_of(one, other, request)
    home: BufferSet = memory.place(BufferPlacement())
    home.fill(FIRST.filling, memory.values)
    run(memory.pointers(home))
    return ExtraProbes(ConditionedCalls(memory, subject_of(run), run, Policy()), home, CallOutputs(home.collect()))


def added(one: Array, other: Array) -> Sum:
    """The sum of tensors that lie like these, wherever the pointers say."""

    def run(pointers: Mapping[str, Any]) -> None:
        if pointers[ONE] is None:
            return
        total = at(pointers[ONE].address, one.strides) + at(pointers[OTHER].address, other.strides)
        pointers[OUT].array[...] = total

    return run


VALUES = np.arange(9, dtype=np.float32).reshape(SHAPE)
LAYOUTS = {"alike": (VALUES, 10 * VALUES), "transposed": (VALUES, (10 * VALUES).T)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_correct_sum_passes_all_probes(layout: str) -> None:
    one, other = LAYOUTS[layout]
    look = asked(one, other, added(one, other))
    assert look.require_same_when_shared() == 1
    assert look.require_same_when_shared(but_alike=True) == (layout == "transposed")
    look.require_same_after_many()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_caching_by_address_is_detected(layout: str) -> None:
    """Twice the first where both begin at one address: right only if that is not wrong by one, or laid otherwise."""
    one, other = LAYOUTS[layout]
    right = added(one, other)

    def run(pointers: Mapping[str, Any]) -> None:
        right(pointers)
        if pointers[ONE].address == pointers[OTHER].address:
            pointers[OUT].array[...] = 2 * pointers[ONE].array + (layout == "alike")

    with refusal(Fault, "backends.where_input_and_other") as raised:
        asked(one, other, run).require_same_when_shared()
    assert raised.value.reason is Reason.VALUE


@pytest.mark.parametrize("name", [ONE, OTHER])
def test_in_place_second_input_shares_memory(name: str) -> None:
    right = added(VALUES, VALUES)

    def run(pointers: Mapping[str, Any]) -> None:
        right(pointers)
        if pointers[ONE].address == pointers[OTHER].address == pointers[OUT].address:
            pointers[OUT].array[...] = 0

    in_place = CallRequest(in_place={OUT: name})
    assert asked(VALUES, 2 * VALUES, right, in_place).require_same_when_shared(but_alike=True) == 1
    with refusal(Fault, "backends.lie_in_the_same"):
        asked(VALUES, 2 * VALUES, run, in_place).require_same_when_shared()


def test_shared_memory_may_be_refused_or_absent() -> None:
    """It would be read after it was written, by right libraries too."""
    one, other = LAYOUTS["transposed"]
    assert asked(one, other, added(one, other), CallRequest(in_place={OUT: ONE})).require_same_when_shared() == 0
    right = added(VALUES, VALUES)

    def run(pointers: Mapping[str, Any]) -> None:
        if pointers[ONE].address == pointers[OTHER].address:
            raise StatusError("add", 1, "REFUSED")
        right(pointers)

    asked(VALUES, VALUES, run).require_same_when_shared()


def test_eight_bit_counter_is_detected() -> None:
    right, calls = added(VALUES, VALUES), 0

    def run(pointers: Mapping[str, Any]) -> None:
        nonlocal calls
        calls = (calls + 1) % 256
        right(pointers)
        if calls == 0:
            pointers[OUT].array[0, 1] = 7

    with pytest.raises(Fault, match=r"element \[0, 1\] of output out differs in call 255 of") as raised:
        asked(VALUES, VALUES, run).require_same_after_many()
    assert raised.value.reason is Reason.STATE


def test_nans_of_both_signs_give_nan() -> None:
    values = VALUES.copy()
    values[1, 1] = np.nan
    right = added(values, VALUES)

    def run(pointers: Mapping[str, Any]) -> None:
        right(pointers)
        if np.signbit(pointers[ONE].array[1, 1]):
            pointers[OUT].array[1, 1] = 0

    look = asked(values, VALUES, right)
    assert has_nan(look._first)
    assert look.with_other_nans() is None
    found = asked(values, VALUES, run).with_other_nans()
    assert found is not None
    assert found.outputs["out"][1, 1] == 0


@pytest.mark.parametrize("refuses", [False, True])
def test_null_of_empty_tensor_may_be_refused(refuses: bool) -> None:
    empty = np.zeros((0, 3), np.float32)

    def run(pointers: Mapping[str, Any]) -> None:
        if refuses and pointers[ONE] is None:
            raise StatusError("add", 2, "NULL_POINTER")

    said = asked(empty, empty, run).note_of_null()
    assert said.startswith("NULL is refused for tensors without elements: ") == refuses


def counts(monkeypatch: pytest.MonkeyPatch, threads: Iterator[int]) -> list[float]:
    """Let these numbers of threads be seen one after the other; returns how long was slept."""
    slept: list[float] = []
    monkeypatch.setattr(side_effects, "count_resources", lambda: {"threads": next(threads)})
    monkeypatch.setattr(side_effects, "sleep", slept.append)
    return slept


def test_threads_left_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = counts(monkeypatch, iter([52, 52, 47, 47, 47, 42, 37, 36, 35]))
    side_effects._require_none_left({"threads": 1}, "calls")
    assert len(slept) == 7
    slept = counts(monkeypatch, iter([36]))
    side_effects._require_none_left({"threads": 1}, "calls")
    assert slept == []
    slept = counts(monkeypatch, iter([52, 42, 42, 42, 42, 1]))
    with pytest.raises(Fault) as left:
        side_effects._require_none_left({"threads": 1}, "calls")
    assert (left.value.reason, left.value.details) == (Reason.LEAK, {"threads": 41})
    assert len(slept) == 4


def is_blamed(wrong: Callable[[int], bool]) -> bool:
    """A library whose n-th call is wrong or not, whatever the circumstance."""
    calls = iter(range(1000))
    without, with_it = wrong(next(calls)), wrong(next(calls))
    return without != with_it and is_reproducible(
        lambda: wrong(next(calls)) == without, lambda: wrong(next(calls)) == with_it
    )


@pytest.mark.parametrize("period", range(2, 30))
def test_no_rhythm_is_blamed(period: int) -> None:
    for wrong in range(period):
        assert not is_blamed(lambda call, wrong=wrong: call % period == wrong)
        assert not is_blamed(lambda call, wrong=wrong: call % period != wrong)
        assert not is_blamed(lambda call, wrong=wrong: call % (2 * period) // period == wrong % 2)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_chance_is_hardly_ever_blamed(share: float) -> None:
    choice = random.Random(2026)
    assert sum(is_blamed(lambda _: choice.random() < share) for _ in range(5000)) <= 3


def test_a_circumstance_is_blamed() -> None:
    assert is_reproducible(lambda: True, lambda: True)
    assert not is_reproducible(lambda: True, lambda: False)
    assert not is_reproducible(lambda: False, lambda: True)
