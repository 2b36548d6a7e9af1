"""How timings are shown: units, spreads that are not known, columns that are not needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reporting_kit import make_result
from texts import lacks, says

from optest.reporting.bench_table import bench_lines, bench_rows, seconds_text
from optest.spec import Benchmark, CallTime, CaseResult

_SCALES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


@given(st.floats(1e-9, 1e5))
def test_three_digits_approximate_number(seconds: float) -> None:
    number, unit = seconds_text(seconds).split()
    assert float(number) * _SCALES[unit] == pytest.approx(seconds, rel=5.1e-3)
    assert seconds >= 999 or float(number) < 1000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.00 ns"),
        (1.234e-6, "1.23 µs"),
        (9.996e-6, "10.0 µs"),
        (99.96e-6, "100 µs"),
        (0.9996, "1.00 s"),
        (75.0, "75.0 s"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def _time(**changes: object) -> CallTime:
    known = {"who": "ffi", "median_s": 2e-6, "least_s": 1e-6, "spread_s": 1e-7, "calls": 10, "batches": 5}
    return CallTime(**(known | changes))  # type: ignore[arg-type]


def _result(name: str, benchmark: Benchmark | None, duplicate_of: str | None = None) -> CaseResult:
    return make_result(id=name, target="ffi", benchmark=benchmark, duplicate_of=duplicate_of)


def test_empty_columns_are_omitted() -> None:
    lines = bench_lines([_result("one", Benchmark(time=_time(gb_per_s=1.5)))])
    assert "GB/s" in lines[1]
    assert "GFLOP/s" not in lines[1]
    assert "against" not in lines[1]
    assert "2.00 µs" in lines[2]
    assert lacks(lines[-1], "reporting.ratio_of_times")


def test_comparison_and_ratio() -> None:
    benchmark = Benchmark(time=_time(), against=_time(who="torch:cpu", median_s=4e-6), ratio=0.5, ratio_spread=0.0123)
    (row,) = bench_rows([_result("one", benchmark)])
    assert row == ["one", "2.00 µs", "100 ns", "", "", "torch:cpu", "4.00 µs", "0.5 ± 0.012"]
    assert says(bench_lines([_result("one", benchmark)])[-1], "reporting.ratio_of_times")


def test_large_ratios_have_no_exponent() -> None:
    benchmark = Benchmark(time=_time(gb_per_s=1234.5), against=_time(), ratio=999.7, ratio_spread=160.4)
    (row,) = bench_rows([_result("one", benchmark)])
    assert (row[3], row[7]) == ("1234", "1000 ± 160")


def test_unknown_spread_is_not_shown_as_zero() -> None:
    (row,) = bench_rows([_result("one", Benchmark(time=_time(spread_s=None, batches=1, calls=1)))])
    assert row[2] == "unknown"


def test_shared_executions_are_omitted_and_reasons_counted() -> None:
    lacking = Benchmark(lacks=("timing: not possible, x",))
    timed = Benchmark(time=_time())
    same = [_result("a", timed), _result("b", timed, "a")]
    results = [*same, _result("c", lacking), _result("d", lacking), _result("e", None)]
    assert [row[0] for row in bench_rows(results)] == ["a"]
    assert bench_lines(results)[-1] == "  2 × timing: not possible, x"
    assert bench_lines([_result("e", None)]) == []
    assert bench_lines([_result("c", lacking)]) == ["timings", "  1 × timing: not possible, x"]


def test_timed_calls_other_than_target_are_named() -> None:
    compiled = Benchmark(time=_time(who="torch:cpu compiled by inductor"))
    lines = bench_lines([_result("a", compiled), _result("b", compiled), _result("c", Benchmark(time=_time()))])
    assert [line for line in lines if "timed:" in line] == ["  timed: 2 × torch:cpu compiled by inductor"]
