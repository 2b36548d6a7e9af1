"""What ``--bench`` and its options ask for, and what is refused."""

from __future__ import annotations

import pytest

from optest.api.worker_slots import bench_notes, bench_options
from optest.errors import OptestError
from optest.settings import resolve


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0.2s", 0.2), ("50ms", 0.05), ("50 ms", 0.05), ("200us", 2e-4), ("200µs", 2e-4), ("1", 1.0), ("1.5min", 90.0)],
)
def test_times(text: str, seconds: float) -> None:
    options = bench_options(resolve({"bench": True, "bench_time": text}, variables={}))
    assert options is not None
    assert options.target_s == pytest.approx(seconds)


def test_without_bench_nothing_is_timed() -> None:
    assert bench_options(resolve({}, variables={})) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bench": True, "bench_time": "0"}, "--bench-time is '0', expected a time above 0 such as 0.2s"),
        ({"bench": True, "bench_time": "0ms"}, "a time above 0"),
        ({"bench": True, "bench_time": "soon"}, "--bench-time is 'soon'"),
        ({"bench": True, "bench_time": "-1s"}, "--bench-time is '-1s'"),
        ({"bench_time": "1s"}, "--bench-time has no effect without --bench; add --bench"),
        ({"bench_against": "numpy"}, "--bench-against has no effect without --bench; add --bench"),
        ({"bench": True, "bench_against": "nunpy"}, "did you mean 'numpy'?"),
        ({"bench": True, "bench_against": "ascend"}, "no call that can be timed separately"),
        ({"bench": True, "bench_against": "numpy:cuda"}, "accepts no device"),
    ],
)
def test_what_cannot_be_done_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(OptestError) as refused:
        bench_options(resolve(given, variables={}))
    assert said in str(refused.value)


def test_several_workers_are_noted() -> None:
    options = bench_options(resolve({"bench": True}, variables={}))
    assert bench_notes(options, 1) == ()
    assert "3 workers" in bench_notes(options, 3)[0]
    assert bench_notes(None, 3) == ()
