"""What a driver states that it can do is asked, the rest never is, and a promise that is not kept is a failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from texts import refusal, says

from optest.api.checking import check_request, sample_cases
from optest.backends import BackendDriver, Capability, backend_manager
from optest.backends.command_abilities import outside_capabilities, skip_reason_for_operator
from optest.core.runner import execute, why_not_run
from optest.errors import NothingSelected, UsageError
from optest.operators import operators
from optest.operators.catalogue import DESCRIPTORS
from optest.spec import Fault, Reason, Status, TensorSpec, TestCase

DENSE_FLOATS = Capability(dtypes=("float32", "float64"), ranks=(2,), layouts=("dense",), refuses=False)


class Stating(BackendDriver):
    name = "stating"

    def __init__(self) -> None:
        self.capabilities = {"relu": DENSE_FLOATS}

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        if case.inputs[0].spec.dtype.name == "float64":
            raise Fault(Reason.UNSUPPORTED, "not in float64 after all")
        return [np.maximum(inputs[0], 0)]


def cases() -> list[TestCase]:
    return sample_cases("relu")


def cases_inside(driver: BackendDriver) -> list[TestCase]:
    return [case for case in cases() if why_not_run(case, driver) is None]


def shapes_of(case: TestCase) -> str:
    return " ".join("x".join(map(str, each.spec.shape)) or "()" for each in case.inputs)


def test_what_is_outside_is_never_asked() -> None:
    driver = Stating()
    inside = cases_inside(driver)
    assert 3 < len(inside) < len(cases()) / 2
    for case in inside:
        spec = case.inputs[0].spec
        assert case.expects_error is None
        assert (spec.rank, spec.is_dense, spec.dtype.name in DENSE_FLOATS.dtypes) == (2, True, True)
    reasons = {outside_capabilities(driver, case) or "" for case in cases()}
    layouts = [f"input is {layout}" for layout in ("overlapping", "negative", "strided")]
    for words in ("no input of 1 dimensions", "it takes float32 or float64", *layouts):
        assert any(words in each for each in reasons), words


def test_unsupported_is_gap_only_without_promise() -> None:
    driver = Stating()
    statuses = {case.inputs[0].spec.dtype.name: execute([case], driver).verdicts[0] for case in cases_inside(driver)}
    assert statuses["float32"].status is Status.PASSED
    assert (statuses["float64"].status, statuses["float64"].reason) == (Status.ERROR, Reason.RAISED)
    assert says(statuses["float64"].message, "backends.states_that_it_can")
    driver = Stating()
    del driver.capabilities
    case = next(case for case in cases() if case.inputs[0].spec.dtype.name == "float64" and case.inputs[0].spec.rank)
    assert execute([case], driver).verdicts[0].status is Status.SKIPPED


def test_check_runs_only_stated_operators() -> None:
    backend_manager.register(Stating(), replace=True)
    request = check_request({"backend": "stating"})
    assert {case.descriptor.name for case in request.run.cases} == {"relu"}
    assert request.unsupported[0] == f"{len(DESCRIPTORS) - 1} operators are not in the driver's capabilities"
    assert all("which the backend lacks" in each for each in request.unsupported[1:])
    with refusal(NothingSelected, "backends.softmax_is_not_among"):
        check_request({"backend": "stating", "op": ("softmax",)})
    alias = next(alias for alias in operators.get("relu").aliases)
    driver = Stating()
    driver.capabilities = {alias: Capability()}
    assert skip_reason_for_operator(driver, operators.get("relu")) is None
    assert all(outside_capabilities(driver, case) is None for case in cases())


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"dtypes": ("flaot32",)}, "did you mean float32"),
        ({"dtypes": "float32"}, "expected a tuple of names"),
        ({"layouts": ("dens",)}, "did you mean dense"),
        ({"ranks": 2}, "expected a tuple of numbers"),
    ],
)
def test_a_slip_in_a_capability_hides_nothing(stated: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Capability(**stated)


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        ({"sofmax": Capability()}, "did you mean .?softmax"),
        (["softmax"], "expected a mapping"),
        ({"softmax": None}, "expected a mapping"),
    ],
)
def test_a_slip_in_capabilities_ends_the_check(capabilities: Any, said: str) -> None:
    driver = Stating()
    driver.capabilities = capabilities
    backend_manager.register(driver, replace=True)
    with pytest.raises(UsageError, match=said):
        check_request({"backend": "stating"})


def test_dtypes_are_those_of_floats_also_behind_indices() -> None:
    for name in ("rotary_embedding", "embedding", "gather", "scatter"):
        inside = [each for each in sample_cases(name) if Capability(dtypes=("float32",)).lacks(each) is None]
        floats = {entry.name for each in inside for entry in each.dtypes if entry.is_inexact}
        assert len(inside) > 10, name
        assert floats == {"float32"}, name


def test_dtypes_and_ranks_are_about_the_main_inputs() -> None:
    inside = Capability(dtypes=("float32",), ranks=(2,))
    for name in ("index_select", "layer_norm", "linear", "where", "matmul", "add"):
        legal = [x for x in sample_cases(name) if x.expects_error is None and inside.lacks(x) is None]
        assert len(legal) > 10, name
        if name in ("matmul", "add"):
            assert 1 not in {each.spec.rank for x in legal for each in x.inputs if each.name == "other"}, name


@pytest.mark.parametrize(
    ("name", "outside", "inside"),
    [
        ("add", {"37 4x37", "4x37 4x1", "1x1 129", "() 4x37", "0x3 1x3"}, {"4x37 4x37"}),
        ("where", {"4x1 4x37 4x37", "4x37 () 4x37"}, {"4x37 4x37 4x37"}),
        ("matmul", {"2x5x7 7x3", "3x1x5x7 3x2x7x4"}, {"5x7 7x3", "1x9 9x64", "3x1 1x5"}),
        ("gemm", {"5x7 7x3 3", "5x7 7x3 5x1"}, {"5x7 7x3 5x3"}),
        ("bmm", set(), {"2x3x1 2x1x5"}),
        ("linear", set(), {"5x7 3x7 3", "3x1 5x1 5"}),
        ("layer_norm", set(), {"4x37 37 37", "3x1 1 1"}),
        ("conv2d", set(), {"2x3x7x9 4x3x3x2 4"}),
        ("embedding", set(), {"7x1 9"}),
        ("cross_entropy", set(), {"3x1 3"}),
        ("rope", set(), {"1x2x5x8 5x4 5x4"}),
        (
            "scaled_dot_product_attention",
            {"3x2x9x16 3x1x17x16 3x1x17x16"},
            {"2x4x5x16 2x2x9x16 2x2x9x16", "1x1x3x16 1x1x17x16 1x1x17x16", "2x2x9x8 2x2x17x8 2x2x17x8 9x17"},
        ),
    ],
)
def test_broadcasting_is_repetition_of_an_input(name: str, outside: set[str], inside: set[str]) -> None:
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for case in sample_cases(name):
        if case.expects_error is None:
            found[Capability(broadcasts=False).lacks(case) is not None].add(shapes_of(case))
    assert outside <= found[True]
    assert inside <= found[False]
    assert bool(outside) == bool(found[True])


def test_shared_key_head_is_no_broadcasting() -> None:
    grouped = next(x for x in sample_cases("sdpa") if x.attributes["enable_gqa"] and x.inputs[0].spec.rank == 4)
    for heads in ((2, 1), (3, 1), (8, 1)):
        inputs = tuple(
            replace(each, spec=TensorSpec(dtype=each.spec.dtype, shape=(2, heads[place > 0], *each.spec.shape[2:])))
            for place, each in enumerate(grouped.inputs)
        )
        for is_grouped in (True, False):
            case = replace(grouped, inputs=inputs, attributes={**grouped.attributes, "enable_gqa": is_grouped})
            assert bool(Capability(broadcasts=False).lacks(case)) != is_grouped


def test_numpy_decides_what_is_broadcast_without_inference() -> None:
    plain = replace(operators.get("add"), infer=None)
    limited = Capability(broadcasts=False)
    lacks = {shapes_of(case): limited.lacks(replace(case, descriptor=plain)) for case in sample_cases("add")}
    assert lacks["4x37 4x1"]
    assert lacks["37 4x37"]
    assert not lacks["4x37 4x37"]
