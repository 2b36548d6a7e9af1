"""What torch on the CPU gets wrong is found. Where it is right it passes: `check --backend torch` of all operators."""

from __future__ import annotations

from typing import Any

import pytest

from optest.backends import backend_manager
from optest.core.executors import InProcess
from optest.generators import check_fill
from optest.operators import operators
from optest.plan import CaseRequest, PlanHost, build_cases
from optest.spec import BackendTarget, Status, dtype

pytestmark = pytest.mark.torch


def verdict_of(op: str, name: str, shape: tuple[int, ...], generator: str | None, **attributes: Any) -> Any:
    request = CaseRequest(
        ops=(op,), dtypes=(dtype(name),), shapes={"input0": shape}, attributes=attributes, generator=generator, seed=11
    )
    target = BackendTarget(name="torch", kind="torch", device="cpu")
    (case,) = build_cases(None, request, PlanHost(operators=operators, target=target, check_fill=check_fill))
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
