"""In which dtype the reference computes: float64, the case's own where it cannot or is told to, and that it says so."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
import torch_kit
from torch_kit import Wrong, tensor, verdict

from optest.api.listing import explain
from optest.operators import operators
from optest.settings import resolve
from optest.spec import CheckState, NamedOutput, ReferenceNote, Status, TestCase, Unrounded, Verdict
from optest.torch.calls.reference import expected, expected_in_own_dtype
from optest.torch.cases import compared_in_own_dtype


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    """An operator that torch has in float32 alone."""

    @torch.library.custom_op("optest_reference::single", mutates_args=())
    def single(given: torch.Tensor) -> torch.Tensor:
        if given.dtype != torch.float32:
            raise RuntimeError(f"single is not implemented for {given.dtype}")
        return given * 3

    single.register_fake(torch.empty_like)
    single.register_autograd(lambda ctx, above: above * 3)


def case(text: str, kind: str = "float32", **more: Any) -> TestCase:
    return torch_kit.case(text, tensor((5, 7), kind), **more)


def notes(of: Verdict) -> list[str]:
    return [check.detail for check in of.checks if check.state is CheckState.NOTE]


@pytest.mark.parametrize("more", [{}, {"grad": True}])
def test_a_reference_that_is_not_in_float64_says_so(more: dict[str, Any]) -> None:
    found = verdict(case("torch.ops.optest_reference.single(input0)", **more))
    assert found.status is Status.SUSPECT, found  # it is its own reference
    told = notes(found)
    assert "in the case's own dtype, not in float64: single is not implemented for torch.float64" in told[0]
    assert len(told) == 2 + len(more)


@pytest.mark.parametrize(("text", "kind"), [("torch.sin(input0)", "float32"), ("torch.sin(input0)", "float64")])
def test_one_that_is_has_nothing_to_say(text: str, kind: str) -> None:
    found = verdict(case(text, kind, grad=True))
    assert (found.status, notes(found)) == (Status.PASSED, [])


def test_for_parity_it_is_what_torch_says_in_the_dtype_of_the_case() -> None:
    array = np.linspace(0.1, 3, 35, dtype=np.float32).reshape(5, 7)
    attributes = {"call": "torch.special.i0(input0)", "grad": True}
    wide, narrow = expected([array], attributes), expected_in_own_dtype([array], attributes)
    assert isinstance(wide[0], Unrounded)
    assert wide[0].values.dtype == np.float64
    assert np.array_equal(narrow[0], torch.special.i0(torch.from_numpy(array)).numpy())
    assert isinstance(narrow[2], NamedOutput)
    assert narrow[2].value.values.dtype == np.float32
    assert not any(isinstance(each, ReferenceNote) for each in (*wide, *narrow))


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("text", ["torch.special.i0(input0)", "torch.exp(input0)", "torch.t(input0)"])
def test_a_device_passes_by_it_and_a_wrong_one_does_not(text: str, kind: str) -> None:
    [asked] = compared_in_own_dtype([case(text, kind, grad=True)])
    assert verdict(asked).status is Status.PASSED

    off = Wrong(lambda outputs: [outputs[0] + outputs[0].dtype.type(0.25), *outputs[1:]])
    assert verdict(asked, off).status is Status.FAILED


def test_the_key_stays_and_what_is_stated_goes_before_it() -> None:
    plain = case("torch.sin(input0)")
    stated = dataclasses.replace(plain, reference="somewhere:reference")
    native = TestCase(descriptor=operators.get("exp"), inputs=())
    found = compared_in_own_dtype([plain, stated, native])
    assert found[0].key == plain.key
    assert [each.reference for each in found[1:]] == ["somewhere:reference", None]
    assert found[0].origins["reference"] == "--reference-dtype same"


def test_explain_says_what_is_compared_with() -> None:
    asked = {
        "op": ("torch.sin",),
        "backend": "torch",
        "dtype": "float32",
        "shape": ("input0=3",),
        "attr": ("call=torch.sin(input0)",),
    }
    assert resolve({})["reference_dtype"] == "float64"
    plain, same = ("\n".join(explain(None, {**asked, **more})) for more in ({}, {"reference_dtype": "same"}))
    assert "torch on the CPU, in float64" in plain
    assert "expected_in_own_dtype  (--reference-dtype same)" in same
