"""The HTML report as a file: all that a browser needs is in it, compressed, and nothing foreign is markup."""

from __future__ import annotations

import base64
import json
import random
import re
import sys
import zlib
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from reporting_kit import run_info, summary_of, write_journal

from optest.errors import Unavailable
from optest.reporting.explain import explain
from optest.reporting.file_report import FILE_FORMATS
from optest.reporting.from_journal import report_from_journal
from optest.reporting.html_report import html_text
from optest.spec import CaseResult, Picture, Reason, RunInfo, Status, Verdict
from optest.store import RunDirectory, read_journal

Make = Callable[..., CaseResult]
NASTY = "</script><script>alert(1)</script> \"'`{{ 7 * 7 }} <!-- \x00 \ud800 \u202e &amp; \x1b[31m"
INFO = RunInfo(run_id="r1", started_at="2026-01-31T23:59:58.123+00:00", total=3, target="torch:cpu", seed=7)
PICTURE = Picture(
    output="out",
    rows=2,
    columns=2,
    cell=(1, 1),
    levels=base64.b64encode(zlib.compress(bytes([1, 64, 80, 255]))).decode(),
    histogram=((1, 1), (64, 1), (80, 1), (255, 1)),
    wrong="nan 1 3 2",
    right="1 1 2 2",
)


def text_of(results: list[CaseResult], info: RunInfo = INFO) -> str:
    return html_text(info, results, summary_of(results))


def data_of(text: str) -> Any:
    (packed,) = re.findall(r'<script id="data" [^>]*>([A-Za-z0-9+/=]*)</script>', text)
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def failure_of(result: Make, measure: Callable[..., Any], **changes: Any) -> CaseResult:
    wrong = measure(mismatched=2, worst_used=3.0, where="row 1")
    verdict = Verdict(status=Status.FAILED, reason=Reason.VALUE, measures=(wrong,), pictures=(PICTURE,))
    return result(verdict=verdict, **{"repro": "optest run again", **changes})


def test_what_it_holds(result: Make, measure: Callable[..., Any]) -> None:
    failure = failure_of(result, measure, id="b", operator="bmm")
    data = data_of(text_of([result(), failure, result(id="s", reason=Reason.UNSUPPORTED, message="no kernel")]))
    words = data["words"]
    (name, operator, status, reason, dtypes, used, _, text) = data["cases"][1]
    assert (name, words[operator], data["statuses"][status], words[reason]) == ("b", "bmm", ["failed", True], "VALUE")
    assert (words[dtypes], used, words[text]) == ("float16", 3.0, "\n".join(explain(failure)))
    assert data["repro"]["1"] == "optest run again"
    assert data["pictures"].keys() == {"1"}
    assert data["pictures"]["1"][0]["grid"] == [[1, 64], [80, 255]]
    assert [words[each["name"]] for each in data["operators"]] == ["bmm", "matmul"]
    assert data["operators"][0]["groups"] == [{"members": [1], "pattern": ""}]
    assert words[data["cases"][2][-1]] == "no kernel"


def test_a_journal_has_all_of_it(result: Make, measure: Callable[..., Any], tmp_path: Path) -> None:
    results = [result(), failure_of(result, measure, id=NASTY)]
    summary = summary_of(results)
    write_journal(tmp_path / "journal.jsonl", INFO, results, summary)
    later = read_journal(tmp_path / "journal.jsonl")
    assert later.results[1].verdict.pictures == (PICTURE,)
    assert data_of(report_from_journal(later, "html")) == data_of(html_text(INFO, later.results, summary))


def test_foreign_text_is_no_markup(result: Make) -> None:
    bad = result(id=NASTY, operator=NASTY, reason=Reason.RAISED, message=NASTY, repro=NASTY, dtypes=(NASTY,))
    info = RunInfo(run_id=NASTY, started_at=NASTY, total=1, target=NASTY, seed=7, plan=NASTY, notes=(NASTY,))
    plain, text = text_of([result()]), text_of([bad], info)
    assert text.count("<script") == plain.count("<script") == 2
    assert text.count("<!--") == plain.count("<!--") == 1
    assert "alert(1)" in text
    assert "49" not in re.sub(r"<style>.*?</style>|<script.*?</script>", "", text, flags=re.S)
    assert not re.search(r"[\x00-\x08\x1b\ud800-\udfff\u202e]", text)
    assert data_of(text)["cases"][0][0].startswith("</script><script>alert(1)</script>")


def test_nothing_is_fetched(result: Make) -> None:
    text = text_of([result()]).replace("http://www.w3.org/2000/svg", "")
    assert "://" not in text
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=\"(?!data:,)[^#]", text)


def test_trend_of_the_runs_beside_it(result: Make, tmp_path: Path) -> None:
    def run(day: int, good: int, *, target: str = "torch:cpu", cases: int = 4) -> str:
        directory = RunDirectory.create(tmp_path, now=datetime(2026, 1, day, tzinfo=timezone.utc), token=target[:3])
        info = run_info(run_id=directory.id, started_at=f"2026-01-0{day}", target=target, directory=str(directory.path))
        made = [result(id=f"c{n}", **({} if n < good else {"reason": Reason.VALUE})) for n in range(cases)]
        write_journal(directory.journal_path, info, made)
        return text_of(made, info)

    assert 'id="trend"' not in run(2, 4)
    run(1, 0, target="jax:cpu")
    run(3, 1, cases=1)  # too few of the cases
    page = run(4, 3, cases=5)
    passed, time, errors = re.findall(r'<tr><th>(.*?)</th>.*? points="(.*?)".*?</td><td>(.*?)</td>', page)
    assert "Over 2 runs" in page
    assert passed == ("passed", "0.0,0.0 240.0,16.0 ", "4 of 4 → 3 of 5")
    assert (time[0], time[2]) == ("time", "3.2 ms → 4.0 ms")
    assert errors == ("matmul: error / allowance of passed cases", "0.0,0.0 240.0,0.0 ", "0.25 → 0.25")
    (tmp_path / "20260105T000000Z-x").mkdir()
    (tmp_path / "20260105T000000Z-x" / "journal.jsonl").write_text("no journal\n\n")
    assert "Over 3 runs" in run(6, 5, cases=5)


def test_without_jinja2_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "optest.reporting.html_report")
    with pytest.raises(Unavailable, match="pip install jinja2"):
        FILE_FORMATS["html"].text_of()


@pytest.mark.heavy
def test_20_000_cases_are_less_than_5_mb(result: Make, measure: Callable[..., Any]) -> None:
    draw = random.Random(1)
    noise = [
        Picture(
            output="out",
            rows=4096,
            columns=4096,
            cell=(64, 64),
            levels=base64.b64encode(zlib.compress(bytes(draw.choices(range(1, 256), k=4096)))).decode(),
            histogram=tuple((level, draw.randrange(10**6)) for level in range(1, 256)),
            wrong=" ".join(f"{draw.gauss(0, 1):.7g}" for _ in range(256)),
            right=" ".join(f"{draw.gauss(0, 1):.7g}" for _ in range(256)),
        )
        for _ in range(200)
    ]
    results = []
    for number in range(20_000):
        name = f"op{number % 100}/sizes/{number}[float16]({draw.randrange(4000)}x{draw.randrange(4000)})"
        verdict = Verdict(
            status=Status.FAILED,
            reason=Reason.VALUE,
            measures=(measure(mismatched=draw.randrange(1, 2048), worst_used=draw.random() * 1e6),),
            pictures=(noise.pop(),) if noise else (),
        )
        changes = {} if number % 4 else {"verdict": verdict}
        results.append(result(id=name, operator=f"op{number % 100}", **changes))
    assert len(text_of(results)) < 5_000_000
