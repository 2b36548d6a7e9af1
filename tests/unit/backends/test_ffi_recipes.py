"""What is prepared once for many calls of a C library says the same of each of them as if it were made anew."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from typing import Any, cast

import pytest
from test_ffi_config import case_of
from texts import refusal

from optest.clib.ffi.calls import StatusCodes
from optest.clib.ffi.signatures import CKind, CType, Parameter, Prototype
from optest.clib.library.driver import _require_ffi_config
from optest.clib.library.subject import PlainCall, PreparedObject, Subject
from optest.clib.probing.library_probe import _policy
from optest.clib.probing.policy import Policy, ProbeResult
from optest.spec import Check, CheckState, Fault, Reason

INT = CType(kind=CKind.INT, size=4, spelling="int")
ADDRESS = CType(kind=CKind.POINTER, size=8, spelling="void *", pointee=CType(kind=CKind.VOID, size=0, spelling="void"))


class Creates:
    """A function ``create(first, slot, handle)`` that puts the given pointers into the slot, None for none."""

    name = "create"
    codes = StatusCodes.of({"OK": 0})
    prototype = Prototype(
        name=name, result=INT, parameters=tuple(Parameter(name=each, type=ADDRESS) for each in ("f", "s", "h"))
    )

    def __init__(self, *pointers: int | None) -> None:
        self.pointers = list(pointers)
        self.told: list[tuple[Any, Any]] = []

    def convert_arguments(self, arguments: Sequence[Any]) -> list[Any]:
        return list(arguments)

    def call_converted(self, told: Sequence[Any]) -> int:
        self.told.append((told[0], told[2]))
        pointer = self.pointers.pop(0)
        if pointer is not None:
            told[1]._obj.value = pointer
        return 0


def thing_made_by(function: Any) -> PreparedObject:
    create = PlainCall(function, [None, None, 7], {0: "first", 1: "slot"})
    return PreparedObject(
        name="thing",
        create=create,
        sets=(),
        late_sets=(),
        destroy=None,
        struct=None,
        fill=None,
        is_late=False,
        is_brief=False,
        read_message=None,
    )


def test_every_call_gets_its_own_pointers() -> None:
    function = Creates(11, 12, 13)
    thing = thing_made_by(function)
    with ExitStack() as alive:
        made = [thing.made({"first": first}, alive) for first in (1, 2, None)]
    assert made == [11, 12, 13]
    assert function.told == [(1, 7), (2, 7), (None, 7)]


@pytest.mark.parametrize("before", [(), (11,), (11, 12)])
def test_pointer_of_previous_call_is_not_reused(before: tuple[int, ...]) -> None:
    thing = thing_made_by(Creates(*before, None))
    with ExitStack() as alive:
        for pointer in before:
            assert thing.made({"first": 1}, alive) == pointer
        with refusal(Fault, "backends.thing_was_created_without") as found:
            thing.made({"first": 1}, alive)
    assert found.value.reason is Reason.NOT_REFUSED


class Ends:
    """Records what is made and ended, and what it was told."""

    prototype = Prototype(name="f", result=ADDRESS, parameters=(Parameter(name="x", type=ADDRESS),))
    name, codes = "f", None

    def __init__(self, name: str, log: list[str], result: int = 1) -> None:
        self._name = name
        self._log = log
        self._result = result

    def convert_arguments(self, arguments: Sequence[Any]) -> list[Any]:
        return list(arguments)

    def call_converted(self, told: Sequence[Any]) -> int:
        self._log.append(self._name)
        return self._result


def made_and_ended(name: str, log: list[str], *, is_brief: bool) -> PreparedObject:
    create, destroy = cast("Any", Ends(f"+{name}", log)), cast("Any", Ends(f"-{name}", log))
    return replace(
        thing_made_by(create),
        name=name,
        create=PlainCall(create, [None]),
        destroy=PlainCall(destroy, [None], {0: "self"}),
        is_brief=is_brief,
    )


def test_struct_is_destroyed_by_its_function() -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("x", ctypes.c_int),)

    log: list[str] = []
    ends: Any = Ends("-pair", log)
    pair = replace(thing_made_by(ends), create=None, struct=Pair, fill=lambda *_: [])
    pair = replace(pair, destroy=PlainCall(ends, [None], {0: "self"}))
    with ExitStack() as alive:
        assert pair.made({}, alive)
        assert log == []
    assert log == ["-pair"]


def test_tensor_descriptors_end_after_operator_descriptor() -> None:
    log: list[str] = []
    objects = [made_and_ended("tensor a", log, is_brief=True), made_and_ended("operator", log, is_brief=False)]
    run: Any = Ends("run", log)
    call = Subject(PlainCall(run, [None]), c_objects=objects)
    with call.renewed():
        call.run({})
    assert log == ["+tensor a", "+operator", "-tensor a", "run", "-operator"]
    log.clear()
    with call.second_objects():
        log.append("beside")
    assert log == ["+tensor a", "+operator", "beside", "-operator", "-tensor a"]


def test_probe_policy_follows_configuration_and_case() -> None:
    for probes in ("all", "guards"):
        config = _require_ffi_config(case_of(probes=probes))
        for key, often in product(("k1:a1", "k1:a0"), (False, True)):
            policy = _policy(key, config, often=often)
            assert policy.is_brief is (probes == "guards")
            assert policy.has_extra_probes is key.endswith("0")
            assert policy.counts_leaks is (often or key.endswith("0"))
            assert policy.calls_often is often


def test_single_call_reports_its_placement() -> None:
    def shown(policy: Policy) -> list[Check]:
        result = ProbeResult(outputs={})
        policy.report_single_call(result, "no more")
        return result.checks

    on_heap, on_pages = shown(Policy(guard="heap")), shown(Policy())
    assert ["256 bytes" in on_heap[0].detail, "forbidden pages" in on_pages[0].detail] == [True, True]
    assert [each.detail for each in on_pages if each.state is CheckState.NOT_POSSIBLE] == ["no more"] * 5
    aligned = shown(Policy(alignment=64))
    assert "multiples of 64 bytes" in next(each.detail for each in aligned if each.name == "other alignments")
