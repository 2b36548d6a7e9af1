"""torch on the CPU, asked all twelve operators in every dtype that they have in common; it has to pass."""

from __future__ import annotations

from typing import Any

import pytest

from optest.backends import backend_manager
from optest.core.executors import InProcess
from optest.generators import check_fill
from optest.operators import operators
from optest.plan import CaseRequest, PlanHost, build_cases
from optest.spec import BackendTarget, Status, TestCase, dtype

pytestmark = pytest.mark.torch

HOST = PlanHost(
    operators=operators, target=BackendTarget(name="torch", kind="torch", device="cpu"), check_fill=check_fill
)
DTYPES = ("float64", "float32", "float16", "bfloat16", "int32")
SHAPES: dict[str, list[dict[str, tuple[int, ...]]]] = {
    "add": [
        {"input0": (17, 33), "input1": (33,)},
        {"input0": (4096,), "input1": (4096,)},
        {"input0": (), "input1": ()},
    ],
    "div": [{"input0": (17, 33), "input1": (33,)}, {"input0": (0, 3), "input1": (0, 3)}],
    "exp": [{"input0": (4097,)}, {"input0": (1,)}],
    "gelu": [{"input0": (31, 65)}],
    "cast": [{"input0": (1000,)}],
    "relu": [{"input0": (3, 5, 7)}],
    "sum": [{"input0": (15, 1025)}, {"input0": (1,)}, {"input0": (3, 0)}],
    "matmul": [
        {"input0": (33, 129), "input1": (129, 17)},
        {"input0": (3, 16, 64), "input1": (64, 8)},
        {"input0": (100,), "input1": (100,)},
        {"input0": (4, 4096), "input1": (4096, 4)},
    ],
    "gemm": [{"input0": (31, 65), "input1": (65, 17), "input2": (31, 17)}, {"input0": (16, 16), "input1": (16, 16)}],
    "softmax": [{"input0": (17, 1024)}, {"input0": (5, 1)}],
    "layer_norm": [{"input0": (9, 768), "input1": (768,), "input2": (768,)}, {"input0": (9, 768)}],
    "transpose": [{"input0": (7, 9, 11)}],
}
ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
    "cast": [{"dtype": "float32"}, {"dtype": "float16"}, {"dtype": "int64"}],
    "sum": [{}, {"dim": (-1,), "keepdim": True}],
    "gemm": [{"alpha": 2.0, "beta": -1.0}, {"alpha": 1.0, "beta": 0.0}],
    "softmax": [{"dim": -1}, {"dim": 0}],
    "layer_norm": [{"normalized_shape": (768,)}],
    "transpose": [{"dim0": 0, "dim1": -1}],
}
FILLS = (None, "uniform", "integer-exact", "special")

KNOWN_DOUBLE_ROUNDING = {("cast", "float64", "float16")}
"""torch casts float64 to 16 bits through float32 and so rounds twice, about one element in ten thousand."""


SPECIAL_VALUES_APART = {
    ("gelu", "float32"): "the vectorised gelu yields NaN at infinity; its scalar path does not",
    ("gelu", "bfloat16"): "the same",
    ("matmul", "bfloat16"): "oneDNN reads subnormal operands as 0, and infinity times 0 is NaN",
    ("gemm", "bfloat16"): "the same",
}


def _fills(op: str, name: str, attributes: dict[str, Any]) -> tuple[str | None, ...]:
    """What is drawn: no special values where torch differs for the reason above or conversion is undefined."""
    undefined = op == "cast" and attributes["dtype"] == "int64" and name != "int32"
    apart = undefined or (op, name) in SPECIAL_VALUES_APART
    return FILLS[:-1] if apart else FILLS


def _is_vector_tail(name: str, shapes: dict[str, tuple[int, ...]], attributes: dict[str, Any]) -> bool:
    """See test_columns_beyond_the_vector_width_that_torch_rounds_twice_are_found."""
    return name in ("float16", "bfloat16") and attributes == {"dim": 0} and bool(shapes["input0"][1] % 32)


def cases_of(op: str, name: str) -> list[TestCase]:
    descriptor = operators.get(op)
    found = []
    for shapes in SHAPES[op]:
        if not descriptor.admits([name] * len(shapes)):
            continue
        for attributes in ATTRIBUTES.get(op, [{}]):
            if (op, name, attributes.get("dtype")) in KNOWN_DOUBLE_ROUNDING or _is_vector_tail(
                name, shapes, attributes
            ):
                continue
            for fill in _fills(op, name, attributes):
                request = CaseRequest(
                    ops=(op,), dtypes=(dtype(name),), shapes=shapes, attributes=attributes, generator=fill, seed=11
                )
                found += build_cases(None, request, HOST)
    return found


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("op", SHAPES)
def test_torch_passes_by_the_built_in_rules(op: str, name: str) -> None:
    executor = InProcess(backend_manager.get("torch"))
    for case in cases_of(op, name):
        (verdict,) = executor.execute([case]).verdicts
        if verdict.status is Status.SUSPECT and case.outputs[0].elements == 1:
            continue  # the one result is infinite or NaN, and both agree
        assert verdict.status is Status.PASSED, f"{case.identifier()} {case.inputs[0].fill}: {verdict.message}"
        assert verdict.measures[0].compared == (case.outputs[0].elements)


def test_every_operator_and_dtype_is_asked() -> None:
    asked = {(op, name) for op in SHAPES for name in DTYPES if cases_of(op, name)}
    assert set(SHAPES) <= set(operators.names())
    without_integers = {
        ("div", "int32"),
        ("exp", "int32"),
        ("gelu", "int32"),
        ("softmax", "int32"),
        ("layer_norm", "int32"),
    }
    assert {(op, name) for op in SHAPES for name in DTYPES} - asked <= without_integers


def verdict_of(op: str, name: str, shape: tuple[int, ...], generator: str | None, **attributes: Any) -> Any:
    request = CaseRequest(
        ops=(op,), dtypes=(dtype(name),), shapes={"input0": shape}, attributes=attributes, generator=generator, seed=11
    )
    (case,) = build_cases(None, request, HOST)
    return InProcess(backend_manager.get("torch")).execute([case]).verdicts[0]


def test_partial_sums_that_torch_rounds_to_bfloat16_are_found() -> None:
    """With two threads a total over more than 32,768 elements adds per-thread sums that were rounded to bfloat16."""
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert verdict_of("sum", "bfloat16", (33, 1025), "integer-exact").status is Status.FAILED
        torch.set_num_threads(1)
        assert verdict_of("sum", "bfloat16", (33, 1025), "integer-exact").status is Status.PASSED
    finally:
        torch.set_num_threads(before)


def test_columns_beyond_the_vector_width_that_torch_rounds_twice_are_found() -> None:
    """softmax over another dimension than the last rounds exp to 16 bits in the columns of the vector tail."""
    assert verdict_of("softmax", "float16", (17, 1001), None, dim=0).status is Status.FAILED
    assert verdict_of("softmax", "float16", (17, 1024), None, dim=0).status is Status.PASSED


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_special_values_that_torch_gets_wrong_are_found(name: str) -> None:
    """Only the gelu of some processors yields NaN at infinity: what torch does here decides what has to be found."""
    import torch

    at_infinity = torch.nn.functional.gelu(torch.full((64,), torch.inf, dtype=getattr(torch, name)))
    verdict = verdict_of("gelu", name, (31, 65), "special")
    assert verdict.status is (Status.FAILED if at_infinity.isnan().any() else Status.PASSED)
