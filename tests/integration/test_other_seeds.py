"""Frameworks pass with the seeds 1 to 10 as with 0: an honest implementation fails for no draw of its inputs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from optest.api.checking import check_request
from optest.core import runner
from optest.core.runner import execute, why_not_run
from optest.spec import BAD_STATUSES

DRAWN_FROM_NOTHING = {"data", "zeros", "ones", "full", "arange"}
SHARES = {"torch": 10, "onnxruntime": 30, "jax": 60}
"""One case in so many is run: all cases of a seed take 5 to 50 minutes of processor time, as jax compiles each call."""


# Frameworks warn of their own calls, as torch does of some paddings, which is no failure of a case.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.heavy
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("backend", SHARES)
def test_every_seed_passes(backend: str, half: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each case has one of the seeds, and neighbours, which are of one set, have others."""
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    # Further calls compare bits with those of the first, whatever the seed is.
    monkeypatch.setattr(runner, "can_vary_surroundings", lambda *_: False)
    run = check_request({"backend": backend, "runs_dir": str(tmp_path)}).run
    drawn = [
        case
        for case in run.cases
        if case.expects_error is None
        and any(argument.fill.kind not in DRAWN_FROM_NOTHING for argument in case.inputs)
        and why_not_run(case, run.driver) is None
    ]
    failures = []
    for index, case in enumerate(drawn[half * SHARES[backend] // 2 :: SHARES[backend]]):
        seeded = dataclasses.replace(case, seed=1 + index % 10)
        verdict = run.revise(seeded, execute([seeded], run.driver).verdicts[0])
        if verdict.status in BAD_STATUSES:
            failures.append(f"{case.id}, seed {seeded.seed}: {verdict.message}")
    assert drawn
    assert failures == []
