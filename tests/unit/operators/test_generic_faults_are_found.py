"""Faults that any kernel can have, of operators whose case sets once left them out; all of them: check_faults.py."""

from __future__ import annotations

import pytest
from generic_faults import faults_of
from sixty_faults import Faulty

from optest.api import bootstrap
from optest.api.checking import cases_asked
from optest.core.runner import execute, why_not_run
from optest.operators import operators
from optest.spec import BAD_STATUSES

HOLES = {
    "wrong for one element": (
        "amax", "any", "layer_norm", "rms_norm", "batch_norm", "matmul", "bmm", "gemm", "linear", "conv1d", "conv2d",
        "conv3d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "scaled_dot_product_attention", "tril", "concat",
        "split", "slice", "pad", "embedding",
    ),
    "wrong for scalars": ("amax", "amin", "all", "any"),
    "wrong from 4 dimensions on": ("reshape", "gather", "scatter_add", "quantize", "dequantize"),
    "wrong in 16 bits where not dense": ("all", "any", "gather", "scatter_add", "embedding", "quantize"),
    "wrong beyond 65,536 elements": ("einsum", "quantize", "dequantize"),
    "wrong for last sizes beyond 256 that are odd": (
        "conv2d", "conv3d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "scaled_dot_product_attention", "split",
    ),
    "wrong for last sizes that are multiples of 16": ("split",),
    "subnormal inputs taken as 0": ("any",),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in HOLES.items() for name in names])
def test_a_fault_of_any_kernel_is_found(kind: str, name: str) -> None:
    bootstrap()
    (fault,) = (each for each in faults_of(operators.get(name)) if each.name == f"{name}: {kind}")
    driver = Faulty("generic", fault)
    asked = [case for case in cases_asked(name) if case.expects_error is None and not why_not_run(case, driver)]
    assert any(execute([case], driver).verdicts[0].status in BAD_STATUSES for case in asked)
