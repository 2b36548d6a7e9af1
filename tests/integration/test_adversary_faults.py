"""Faults of somebody who did not know the case sets: ``check`` finds them all by its default settings."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import adversary_faults
import adversary_faults_fifth  # noqa: F401  (adds to ADVERSARY)
import adversary_faults_fourth  # noqa: F401  (too)
import adversary_faults_second  # noqa: F401  (too)
import adversary_faults_sixth  # noqa: F401  (too)
import adversary_faults_third  # noqa: F401  (too)
import pytest
from adversary_faults import ADVERSARY

from optest.api import bootstrap
from optest.api.checking import check
from optest.backends import backend_manager
from optest.spec import BAD_STATUSES, Status

QUICK = (
    "mul-stops-at-0",
    "cast-saturates-integers",
    "any-is-a-sum",
    "add-takes-scalars-as-float32",
    "sum-reads-behind-its-input",
)


@pytest.fixture(autouse=True, scope="module")
def faulty_backends() -> Iterator[None]:
    """The backends by their names, for these tests alone."""
    bootstrap()
    tables = (backend_manager._registry._entries, backend_manager._kinds, backend_manager._lazy)
    before = [dict(table) for table in tables]
    adversary_faults.register()
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


@pytest.mark.parametrize("name", QUICK)
def test_a_fault_is_found(name: str, tmp_path: Path) -> None:
    require_found(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(ADVERSARY) - set(QUICK)))
def test_every_other_fault_is_found(name: str, tmp_path: Path) -> None:
    require_found(name, tmp_path)


def require_found(name: str, tmp_path: Path) -> None:
    """For a wrong value, not because the fault itself does not run."""
    fault = ADVERSARY[name]
    outcome = check({"backend": name, "op": (fault.op,), "runs_dir": str(tmp_path / "runs")}, stream=io.StringIO())
    bad = [result for result in outcome.results if result.status in BAD_STATUSES]
    assert outcome.exit_status == 1, f"{name} was not found in {len(outcome.results)} cases"
    assert {result.status for result in bad} == {Status.FAILED}
    assert {result.reason for result in bad} <= set(fault.reasons)
