"""The configuration of a case for a C library is read anew when it is changed in place."""

from __future__ import annotations

from typing import Any

import pytest

from optest.clib.library.driver import FfiBackend
from optest.operators import operators
from optest.spec import Argument, BackendTarget, Fault, Fill, TensorSpec, TestCase, dtype


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


def test_changed_section_is_read_again() -> None:
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


def test_equal_numerics_are_one_object() -> None:
    """Laws are found again by their identity."""
    driver = FfiBackend()
    assert driver.numerics_of(case_of()) is driver.numerics_of(case_of("mul", threads=(1,)))
