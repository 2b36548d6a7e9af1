"""Which results of a journal are meant by what a user types."""

from __future__ import annotations

from typing import Any

import pytest

from optest.api.earlier_runs import find_results
from optest.api.replaying import _driver_of
from optest.errors import NothingSelected, UsageError
from optest.settings import resolve
from optest.spec import CaseResult, Evidence, Reason, Status, Verdict
from optest.store import Journal


def result(name: str, key: str, status: Status = Status.PASSED, **more: Any) -> CaseResult:
    reason = Reason.VALUE if status in (Status.FAILED, Status.ERROR) else None
    evidence = Evidence.REFUSED_AS_EXPECTED if status is Status.PASSED else None
    verdict = Verdict(status=status, reason=reason, evidence=evidence)
    base = {"operator": "add", "target": "x", "reference": "numpy", "mode": "forward", "seed": 0}
    return CaseResult(id=name, key=key, verdict=verdict, **{**base, **more})


JOURNAL = Journal(
    results=(
        result("b", "k1:bb01", Status.FAILED, where="p.yaml:9"),
        result("a", "k1:aa01", where="p.yaml:2"),
        result("mat/1", "k1:cc01", Status.ERROR, where="p.yaml:4"),
        result("mat/2", "k1:cc02", Status.SUSPECT, where="p.yaml:5"),
        result("skip", "k1:dd01", Status.SKIPPED, where="p.yaml:6"),
        result("b", "k1:bb01", Status.FAILED, where="p.yaml:9", round=1),
    )
)


def names(*wanted: str) -> list[str]:
    return [each.id for each in find_results(JOURNAL, wanted, "run r1")]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        *((wanted, "a") for wanted in ("a", "2", "k1:aa", "latest a")),  # latest next to a result is ignored
        *((wanted, "mat/1 mat/2") for wanted in ("mat/*", "mat/* last")),
        ("b a 2", "a b"),
        *((wanted, "mat/1 mat/2 b") for wanted in ("", "latest", "last")),  # all failures, in the order of the plan
    ],
)
def test_ids_numbers_keys_and_globs(wanted: str, expected: str) -> None:
    assert names(*wanted.split()) == expected.split()


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match=r"unknown result 'mat/3'; did you mean 'mat/\d'\?(.|\n)*at run r1"):
        names("mat/3")
    with pytest.raises(UsageError, match="matches 2 cases: mat/1, mat/2"):
        names("k1:cc")
    with pytest.raises(NothingSelected, match="no case failed"):
        find_results(Journal(results=JOURNAL.results[1:2]), (), "run r1")


def test_foreign_backend_names_its_program() -> None:
    failed = result("a", "k1:aa01", Status.FAILED, backend="mine", repro="python mine.py --only 3")
    with pytest.raises(
        UsageError, match=r"unknown backend 'mine'(.|\n)*the program that ran the case has this backend: python mine"
    ):
        _driver_of(failed, resolve({}))
