"""Seven hundred kernels, each wrong in one way: ``check`` finds them all, and has nothing against an honest one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import wrong_kernels
from wrong_kernels import FAULTS, ORDINARY, RARE, WITHOUT_FAULT, first_findings, tagged

from optest.api import bootstrap
from optest.api.checking import check
from optest.api.report import Report
from optest.spec import BAD_STATUSES, Status

FOUND_BY_CHECK = (
    "sum-reads-behind-its-input",
    "expm1-as-exp-minus-1",
    "matmul-accepts-misfits",
    "softmax-without-shift",
    "add-reads-dense",
    "sum-ignores-keepdim",
)
"""One of each kind, asked by a whole check; the others are asked the same cases without its report."""


@pytest.fixture(autouse=True, scope="module")
def faulty_backends() -> Iterator[None]:
    bootstrap()
    with wrong_kernels.registered():
        yield


def asked(backend: str, tmp_path: Path, **options: object) -> tuple[Report, str]:
    stream = io.StringIO()
    outcome = check({"backend": backend, "runs_dir": str(tmp_path / "runs"), **options}, stream=stream)
    return outcome, stream.getvalue()


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.heavy if number else ()) for number, each in enumerate(FOUND_BY_CHECK)],
)
def test_check_finds_a_fault_and_says_how_to_see_it_again(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    outcome, text = asked(name, tmp_path, op=(fault.op,))
    bad = [result for result in outcome.results if result.status in BAD_STATUSES]
    assert outcome.exit_status == 1, f"{name} was not found in {len(outcome.results)} cases"
    assert {result.status for result in bad} == {Status.FAILED}
    assert {result.reason for result in bad} <= set(fault.reasons)
    assert "  reproduce: optest run" in text
    assert f"{len(bad)} failed" in text


def test_there_are_enough_of_every_kind() -> None:
    assert len(tagged(ORDINARY)) >= 70
    assert len(tagged(RARE)) >= 650
    assert len({fault.op for fault in FAULTS.values()}) >= 80


OPERATORS = sorted({fault.op for fault in FAULTS.values()})


@pytest.mark.heavy
@pytest.mark.parametrize("op", OPERATORS)
def test_every_fault_is_found(op: str) -> None:
    """For its own reason, not because the fault itself does not run."""
    faults = {fault.name: fault for fault in (*tagged(ORDINARY), *tagged(RARE)) if fault.op == op}
    found = first_findings(op, faults.values())
    assert sorted(faults.keys() - found.keys()) == [], "not found"
    assert {name: verdict.message for name, verdict in found.items() if verdict.status is not Status.FAILED} == {}
    assert {name: found[name].reason for name in found if found[name].reason not in faults[name].reasons} == {}


def test_without_a_fault_there_is_no_alarm(tmp_path: Path) -> None:
    """Of some operators; ``check --backend numpy`` of all of them is a test of the command line."""
    outcome, text = asked(WITHOUT_FAULT, tmp_path, op=("add", "any", "gemm", "softmax"))
    assert outcome.exit_status == 0, text
    assert outcome.summary.by_status == {"passed": len(outcome.results)}
