"""What is remembered of a kind of case is right for every case of it, and for no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from optest.clib.library import kinds
from optest.clib.library.driver import FfiBackend
from optest.clib.library.kinds import CaseKinds
from optest.operators import operators
from optest.spec import Argument, BackendTarget, ExpectedError, Fault, Fill, TensorSpec, TestCase, dtype


def case_of(
    operator: str = "add", shape: tuple[int, ...] = (2, 3), dtype_name: str = "float32", **config: Any
) -> TestCase:
    descriptor = operators.get(operator)
    spec = TensorSpec(dtype=dtype(dtype_name), shape=shape)
    inputs = tuple(
        Argument(name=each.name, path=f"input{place}", spec=spec, fill=Fill(kind="randn"))
        for place, each in enumerate(descriptor.tensors.inputs)
    )
    return TestCase(
        descriptor=descriptor,
        inputs=inputs,
        outputs=(spec,),
        attributes=descriptor.bind({}),
        backend=BackendTarget(name="ffi"),
        backend_config={"ffi": {"library": "nowhere", "mapping": "infiniop", **config}},
    )


def test_cases_that_differ_in_their_values_alone_are_of_one_kind() -> None:
    known = CaseKinds()
    one = case_of()
    first = known.of(one)
    assert first.config is not None
    assert known.of(replace(one, seed=3, tags=("x",), name="other")) is first
    assert known.of(case_of()) is first


@pytest.mark.parametrize(
    "other",
    [
        case_of("mul"),
        case_of(shape=(3, 2)),
        case_of(dtype_name="float16"),
        case_of(probes="guards"),
        case_of(threads=(1, 2)),
        replace(case_of(), base_dir="elsewhere"),
        replace(case_of(), outputs=()),
        replace(case_of(), attributes={"alpha": 2.0}),
        replace(case_of(), attributes={"alpha": 1}),
        replace(case_of(), expects_error=ExpectedError()),
        replace(case_of(), inputs=case_of().inputs[:1]),
        replace(case_of(), descriptor=replace(case_of().descriptor)),
    ],
    ids=lambda each: f"{each.identifier()} {sorted(each.backend_config['ffi'])}",
)
def test_cases_that_differ_in_anything_else_are_not(other: TestCase) -> None:
    known = CaseKinds()
    assert known.of(case_of()) is not known.of(other)


def test_a_stride_makes_another_kind() -> None:
    known = CaseKinds()
    one = case_of()
    spec = TensorSpec(dtype=dtype("float32"), shape=(2, 3), strides=(1, 2))
    strided = replace(one, inputs=tuple(replace(each, spec=spec) for each in one.inputs))
    assert known.of(one) is not known.of(strided)


def test_what_is_changed_in_place_is_read_again() -> None:
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


def test_what_no_message_can_hold_is_told_apart_too() -> None:
    known = CaseKinds()
    one, other = case_of(device=object()), case_of(device={1, 2})
    assert known.of(one).problems != known.of(other).problems


def test_problems_are_looked_for_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    known, asked = CaseKinds(), [["missing"], []]

    def reads(_: TestCase) -> tuple[Any, Sequence[str]]:
        return config, asked.pop(0)

    config = CaseKinds().of(case_of()).config
    monkeypatch.setattr(kinds, "read_ffi_config", reads)
    assert known.of(case_of()).problems == ["missing"]
    assert known.of(case_of()).required() is config


def test_numerics_are_one_object_for_all_that_declare_the_same() -> None:
    """Laws are found again by their identity."""
    driver = FfiBackend()
    assert driver.numerics_of(case_of()) is driver.numerics_of(case_of("mul", threads=(1,)))
