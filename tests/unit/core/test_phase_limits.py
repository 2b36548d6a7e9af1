"""Time limits of the phases other than running the backend."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_every_reason import case_of

from optest.core.deadlines import PhaseLimits
from optest.core.phases import Phase


@pytest.mark.parametrize(
    ("timeout_s", "own_s"), [(1.0, 60.0), (12.0, 120.0), (30.0, 300.0), (300.0, 300.0), (900.0, 900.0), (None, 300.0)]
)
def test_short_deadline_shortens_other_phases(timeout_s: float | None, own_s: float) -> None:
    case = replace(case_of(), timeout_s=timeout_s)
    for phase in (Phase.GENERATE, Phase.REFERENCE, Phase.COMPARE):
        assert PhaseLimits().allowance_s(phase, case) == own_s
    assert PhaseLimits().allowance_s(Phase.RUN, case) == (timeout_s or 300.0)
