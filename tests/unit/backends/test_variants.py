"""A backend with an optimiser: both variants are asked, judged and timed, and a slower one fails only where that is
wanted."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from texts import says

from optest.api.checking import check, check_request
from optest.api.report import Report
from optest.api.run_request import run_request
from optest.backends import BackendDriver, PreparedCall, backend_manager
from optest.core.benchmarking import _largest_difference
from optest.errors import UnknownName, UsageError
from optest.spec import BAD_STATUSES, TestCase


class Optimising(BackendDriver):
    name = "optimising"
    variants = ("plain", "middle", "fused")
    isolated = False

    def lacks(self, descriptor: Any) -> str | None:
        return None if descriptor.name in ("relu", "neg", "exp") else "not here"

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        if case.descriptor.name == "neg":
            return [np.negative(inputs[0])]
        if case.descriptor.name == "exp":
            exact = np.exp(inputs[0])
            return [np.nextafter(exact, np.float32(9)) if case.backend.variant == "fused" else exact]
        outputs = np.maximum(inputs[0], 0)
        if case.backend.variant == "fused" and outputs.size > 1:
            outputs.reshape(-1)[-1] = 7  # what the optimiser changed
        return [outputs]

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        def call() -> None:
            time.sleep(0.0004 if case.backend.variant == "fused" else 0.0001)

        yield PreparedCall(call=call, outputs=lambda: self.run(case, inputs))


@pytest.fixture(autouse=True)
def registered() -> None:
    backend_manager.register(Optimising(), replace=True)


def checked(**options: Any) -> tuple[Report, str]:
    stream = io.StringIO()
    given = {"backend": "optimising", "tier": "smoke", "jobs": 1, "isolate": "none", **options}
    return check(given, stream=stream), stream.getvalue()


def timed(*operators: str, **options: Any) -> tuple[Report, str]:
    return checked(bench=True, bench_time="20ms", op=operators or None, **options)


def test_the_baseline_is_asked_beside_the_default() -> None:
    outcome, text = checked()
    assert "--variant" not in text  # the line that runs a case again asks the default by itself
    bad = {each.id for each in outcome.results if each.status in BAD_STATUSES}
    assert {each.target for each in outcome.results} == {"optimising:plain", "optimising:fused"}
    assert bad == {"relu/ordinary/1[float32](4x37)"}
    assert "relu/ordinary/1[float32](4x37)@plain" in {each.id for each in outcome.results}
    assert len({each.key for each in outcome.results if each.operator == "relu"}) == 1  # the same inputs


def test_named_variant_runs_alone() -> None:
    outcome, _ = checked(variant="middle")
    assert {(each.target, each.status.value) for each in outcome.results} == {("optimising:middle", "passed")}
    assert all("@" not in each.id for each in outcome.results)
    with pytest.raises(UnknownName, match="fused"):
        check_request({"backend": "optimising", "variant": "fast"})
    with pytest.raises(UnknownName, match=r"\(no variant\)"):
        check_request({"backend": "numpy", "variant": "fast"})
    case = {"op": ("relu",), "dtype": "float32", "shape": ("input0=3",), "backend": "optimising"}
    assert [each.backend.variant for each in run_request(case).cases] == ["fused"]
    assert [each.backend.variant for each in run_request({**case, "variant": "plain"}).cases] == ["plain"]


def test_tables_compare_with_the_baseline() -> None:
    _, text = timed()
    table = text[text.index("test  ") :].splitlines()
    head = " ".join(table[0].split())
    rows = {line.split()[0]: line.split() for line in table if line.strip().startswith(("neg ", "relu "))}
    assert head == "test reference baseline (plain) optimized (fused) speedup difference status"
    assert rows["neg"][-1] == "ok"
    assert rows["relu"][1:4] == ["n/a"] * 3  # what is wrong is not timed
    assert rows["relu"][-2:] == ["1", "failed"]
    assert (rows["neg"][-2], rows["relu"][-3]) == ("0", "n/a")
    _, text = timed("neg", backend="numpy")
    (row,) = [line.split() for line in text.splitlines() if line.endswith("  ok")]
    assert (row[0], row[3], row[-3:]) == ("neg", "n/a", ["n/a", "n/a", "ok"])


def test_the_answer_is_compared_with_the_baselines() -> None:
    outcome, text = timed("exp")
    fused, plain = outcome.results
    assert (fused.benchmark, plain.benchmark) != (None, None)
    assert 0 < fused.benchmark.baseline_difference < 1e-6  # type: ignore[union-attr, operator]
    assert plain.benchmark.baseline_difference is None  # type: ignore[union-attr]
    (row,) = [line.split() for line in text.splitlines() if line.strip().startswith("exp ") and "ok" in line]
    assert float(row[-2]) == pytest.approx(fused.benchmark.baseline_difference, rel=0.1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ([1.0, np.inf, np.nan], [1.0, np.inf, np.nan], 0.0),
        ([1.0, 2.0], [1.5, 2.0], 0.5),
        ([1.0, np.nan], [1.0, 2.0], np.inf),
        ([np.inf], [-np.inf], np.inf),
        ([1.0], [1.0, 2.0], np.inf),
        ([], [], 0.0),
    ],
)
def test_the_largest_difference(one: list[float], other: list[float], difference: float) -> None:
    assert _largest_difference(np.array(one, np.float32), np.array(other, np.float32)) == difference


def test_a_line_of_csv_has_both_variants(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    timed(report_path=str(path))
    with path.open(newline="") as file:
        rows = {row["operator"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"relu", "neg", "exp"}
    relu, neg = rows["relu"], rows["neg"]
    assert (relu["status"], relu["reason"], relu["baseline_status"]) == ("failed", "VALUE", "passed")
    assert (relu["optimized_s"], relu["speedup"], neg["difference"]) == ("", "", "0.0")
    assert float(neg["speedup"]) == pytest.approx(float(neg["baseline_s"]) / float(neg["optimized_s"]))


def test_a_time_decides_only_where_that_is_wanted() -> None:
    assert timed("neg")[0].exit_status == 0
    outcome, text = timed("neg", fail_if_slower=1.5)
    assert "slower: neg takes" in text
    assert outcome.exit_status == 1
    outcome, text = timed("relu", fail_if_slower=1.5)  # was not timed
    assert says(text, "backends.shows_nothing_of_it")
    assert outcome.exit_status == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "add --bench"),
        ({"bench": True, "variant": "fused"}, "runs only one"),
        ({"bench": True, "fail_if_slower": float("nan")}, "expected a number of 1 or more"),
    ],
)
def test_a_gate_that_cannot_decide_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        checked(**{"fail_if_slower": 1.5, **options})


def test_baseline_failure_reproduces_with_its_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Optimising, "variants", ("fused", "plain"))
    _, text = checked(op=("relu",))
    assert "--backend optimising --variant fused" in text


def test_uncompared_variants_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Optimising, "compares_variants", False, raising=False)
    outcome, text = checked()
    assert {each.target for each in outcome.results} == {"optimising"}
    assert "--variant" not in text
