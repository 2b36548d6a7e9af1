"""The configuration of a case for a C library is read anew when it is changed in place."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import handmade
import pytest
from texts import refusal

from optest.api import cases
from optest.clib.ffi.calls import StatusCodes
from optest.clib.ffi.signatures import CKind, CType, Field, Parameter, Prototype
from optest.clib.library.config import read_ffi_config
from optest.clib.library.driver import FfiBackend, _require_ffi_config
from optest.clib.library.subject import PlainCall, PreparedObject, Subject
from optest.clib.library.values import put
from optest.clib.probing.library_probe import _policy
from optest.clib.probing.policy import Policy, ProbeResult
from optest.errors import PlanError
from optest.operators import operators
from optest.spec import BackendTarget, Check, CheckState, Fault, Reason, TestCase


def case_of(operator: str = "add", **config: Any) -> TestCase:
    descriptor = operators.get(operator)
    spec = handmade.spec("float32", 2, 3)
    return handmade.case_of(
        descriptor,
        *[spec for _ in descriptor.tensors.inputs],
        outputs=(spec,),
        attributes=descriptor.bind({}),
        backend=BackendTarget(name="ffi"),
        backend_config={"ffi": {"library": "nowhere", "mapping": "infiniop", **config}},
    )


def test_configuration_is_read_again_if_changed() -> None:
    driver, case = FfiBackend(), case_of()
    assert driver.unsupported(case) is None
    section: Any = case.backend_config["ffi"]
    section["probes"] = "some"
    with pytest.raises(Fault, match="probes is 'some'"):
        driver.run(case, [])
    section["probes"] = "guards"
    assert driver.unsupported(case) is None
    attributes: Any = case.attributes
    attributes["alpha"] = 2.0
    assert "alpha" in (driver.unsupported(case) or "")
    # Laws are found again by their identity.
    driver = FfiBackend()
    assert driver.numerics_of(case_of()) is driver.numerics_of(case_of("mul", threads=(1,)))


PLAN = """\
backend: ffi
cases:
  - op: gemm
    dtypes: [float16, float16]
    shapes: {a: [4, 6], b: [6, 2]}
    backend_config: {ffi: {library: nowhere, {stated}, device: cpu}}
"""


def profile_cases(folder: Path, stated: str, **options: Any) -> Any:
    plan = folder / "plan.yaml"
    plan.write_text(PLAN.replace("{stated}", stated))
    return cases(plan=str(plan), **options)


def test_profile_is_another_name_of_mapping(tmp_path: Path) -> None:
    (case,) = profile_cases(tmp_path, "profile: infiniop")
    config, problems = read_ffi_config(case)
    assert problems == []
    assert config is not None
    assert config.mapping.name == "infiniop"
    with pytest.raises(PlanError, match=r"profile is 'cblas', but mapping is 'infiniop'; .*write only one"):
        profile_cases(tmp_path, "profile: cblas, mapping: infiniop")
    assert len(profile_cases(tmp_path, "profile: infiniop, mapping: infiniop")) == 1
    with refusal(PlanError, "backends.untrusted_refuses_what_the"):
        profile_cases(tmp_path, "profile: infiniop", untrusted=True)


class Seeing:
    """Keeps the names that it is asked for."""

    def __init__(self, names: list[str]) -> None:
        object.__setattr__(self, "names", names)

    def __getattr__(self, name: str) -> Any:
        names = object.__getattribute__(self, "names")
        names.append(name)
        return Seeing(names)

    def __setattr__(self, name: str, value: object) -> None:
        object.__getattribute__(self, "names").append(name)


def test_field_name_is_one_interned_object() -> None:
    names: list[str] = []
    field = Field(name="eps", type=CType(kind=CKind.FLOAT, spelling="float", size=4))
    for _ in range(3):
        put(Seeing(names), ".".join(["norm", "eps"]), field, 0.5, 0)
    assert names == ["norm", "eps"] * 3
    assert len({id(name) for name in names}) == 2


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


def test_objects_end_by_their_functions() -> None:
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

    class Pair(ctypes.Structure):
        _fields_ = (("x", ctypes.c_int),)

    log.clear()
    ends: Any = Ends("-pair", log)
    pair = replace(thing_made_by(ends), create=None, struct=Pair, fill=lambda *_: [])
    pair = replace(pair, destroy=PlainCall(ends, [None], {0: "self"}))
    with ExitStack() as alive:
        assert pair.made({}, alive)
        assert log == []
    assert log == ["-pair"]


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
