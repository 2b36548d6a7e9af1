"""The references asked as a backend, in every dtype, by every fill: whatever is not a pass is a fault of the judge."""

from __future__ import annotations

import pytest

from optest.backends import backend_manager
from optest.core.executors import InProcess
from optest.errors import PlanError
from optest.generators import check_fill
from optest.operators import operators
from optest.plan import CaseRequest, build_cases
from optest.spec import BackendTarget, Status, TestCase, dtype

SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "add": {"input0": (7, 33), "input1": (33,)},
    "div": {"input0": (7, 33), "input1": (33,)},
    "matmul": {"input0": (9, 40), "input1": (40, 5)},
    "gemm": {"input0": (9, 40), "input1": (40, 5), "input2": (9, 5)},
    "layer_norm": {"input0": (6, 40), "input1": (40,), "input2": (40,)},
}
ATTRIBUTES = {
    "cast": {"dtype": "float16"},
    "sum": {"dim": (1,)},
    "layer_norm": {"normalized_shape": (40,)},
    "transpose": {"dim0": 0, "dim1": 1},
}
FILLS = ("randn", "uniform", "special", "special(rate=0.25)", "integer-exact", "ones", "zeros", "arange", None)
DTYPES = sorted({variant[0] for descriptor in operators for variant in descriptor.dtype_variants if len(variant) == 1})


def case_of(op: str, name: str, fill: str | None, seed: int) -> TestCase | None:
    """One case, None where the operator is not defined for the dtype."""
    shapes = SHAPES.get(op, {"input0": (6, 40)})
    request = CaseRequest(
        ops=(op,), dtypes=(dtype(name),), shapes=shapes, attributes=ATTRIBUTES.get(op, {}), generator=fill, seed=seed
    )
    try:
        (case,) = build_cases(
            None,
            request,
            operators=operators,
            target_of=lambda _name, _chip: BackendTarget(name="numpy"),
            check_fill=check_fill,
            check_backend=lambda _: (),
        )
    except PlanError:
        return None
    return case


@pytest.mark.parametrize("fill", FILLS, ids=str)
@pytest.mark.parametrize("op", operators.names())
def test_the_judge_passes_what_is_right(op: str, fill: str | None) -> None:
    executor = InProcess(backend_manager.get("numpy"))
    asked = 0
    for name in DTYPES:
        for seed in range(3):
            case = case_of(op, name, fill, seed)
            if case is None:
                continue
            asked += 1
            (verdict,) = executor.execute([case]).verdicts
            no_number = fill == "special(rate=0.25)" or (op, fill) == ("div", "zeros")
            doubted = no_number and verdict.status is Status.SUSPECT
            assert verdict.status is Status.PASSED or doubted, f"{case.identifier()} seed {seed}: {verdict.message}"
    assert asked >= 9
