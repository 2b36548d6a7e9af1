"""A hundred backends, each wrong in one way: ``check`` finds them all, and has nothing against the honest one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import sixty_faults
from sixty_faults import FAULTS

from optest.api import bootstrap
from optest.api.checking import check
from optest.api.running import RunOutcome
from optest.backends import backend_manager
from optest.spec import BAD_STATUSES, Status

QUICK = (
    "add-reads-dense",
    "cast-truncates-to-bfloat16",
    "expm1-as-exp-minus-1",
    "gemm-multiplies-c-by-0",
    "gelu-is-always-tanh",
    "layer-norm-in-one-pass",
    "matmul-accepts-misfits",
    "matmul-cuts-operands",
    "softmax-without-shift",
    "sum-accumulates-in-16-bits",
    "sum-ignores-keepdim",
    "transpose-reshapes",
)
"""One of each kind, for the quick group; the others are slow by their number alone."""


@pytest.fixture(autouse=True, scope="module")
def faulty_backends() -> Iterator[None]:
    """The backends by their names, for these tests alone."""
    bootstrap()
    tables = (backend_manager._registry._entries, backend_manager._kinds, backend_manager._lazy)
    before = [dict(table) for table in tables]
    sixty_faults.register()
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def asked(backend: str, tmp_path: Path, **options: object) -> tuple[RunOutcome, str]:
    stream = io.StringIO()
    outcome = check({"backend": backend, "runs_dir": str(tmp_path / "runs"), **options}, stream=stream)
    return outcome, stream.getvalue()


def test_there_are_enough_of_every_kind() -> None:
    assert len(FAULTS) >= 60
    assert len({fault.op for fault in FAULTS.values()}) >= 25
    assert set(QUICK) <= set(FAULTS)


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_found(name: str, tmp_path: Path) -> None:
    require_found(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(FAULTS) - set(QUICK)))
def test_every_other_fault_is_found(name: str, tmp_path: Path) -> None:
    require_found(name, tmp_path)


def require_found(name: str, tmp_path: Path) -> None:
    """The operator fails for a reason that suits its fault, and the report says how to see it again."""
    fault = FAULTS[name]
    outcome, text = asked(name, tmp_path, op=(fault.op,))
    bad = [result for result in outcome.results if result.status in BAD_STATUSES]
    assert outcome.exit_status == 1, f"{name} was not found in {len(outcome.results)} cases"
    assert {result.status for result in bad} == {Status.FAILED}
    assert {result.reason for result in bad} <= set(fault.reasons)
    assert "  again: optest run" in text
    assert f"{len(bad)} failed" in text


def test_without_a_fault_there_is_no_alarm(tmp_path: Path) -> None:
    """The operators of the quick faults; see the slow test below for all of them."""
    operators = tuple({FAULTS[name].op for name in QUICK})
    outcome, text = asked("without-fault", tmp_path, op=operators)
    assert outcome.exit_status == 0, text
    assert outcome.summary.by_status == {"passed": len(outcome.results)}


@pytest.mark.slow
def test_ten_thousand_cases_of_an_honest_backend_raise_no_alarm(tmp_path: Path) -> None:
    outcome, text = asked("without-fault", tmp_path)
    assert outcome.exit_status == 0, text
    assert outcome.summary.by_status == {"passed": len(outcome.results)}
    assert len(outcome.results) >= 10_000
