"""The Markdown summary: nothing foreign becomes markup, and what does not fit is counted."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from markdown_it import MarkdownIt
from reporting_kit import run_info, summary_of
from texts import says

from optest.reporting.explain import explain
from optest.reporting.markdown import escaped, markdown_text
from optest.spec import CaseResult, Reason, Status

Make = Callable[..., CaseResult]

INFO = run_info(run_id="r1", versions={"numpy": "2"}, notes=("watch | this",))
READER = MarkdownIt("commonmark", {"html": True}).enable("table")


def text_of(results: list[CaseResult], **changes: int) -> str:
    return markdown_text(INFO, results, summary_of(results), **changes)


def test_counts_table_failures_and_provenance(result: Make) -> None:
    failure = result(id="b", reason=Reason.VALUE, message="why", operator="bmm")
    text = text_of([result(), failure, result(id="s", status=Status.SKIPPED, message="no kernel")])
    assert text.startswith("## ❌ optest: 1 passed, 1 failed, 1 skipped in 1.50 s\n")
    assert says(text, "reporting.operator_passed_failed_skipped")
    assert "| bmm |  | 1 |  | 1 VALUE |" in text
    assert "- 1 × skipped: no kernel" in text
    assert "\n".join(explain(failure)) in text
    assert "<details><summary>FAILED VALUE: b</summary>" in text
    assert "| run | r1 |" in text
    assert "| versions | numpy 2 |" in text
    assert "> watch &#124; this" in text
    assert text.count("<details>") == text.count("</details>") == 2


def test_all_well_is_green(result: Make) -> None:
    assert text_of([result()]).startswith("## ✅ optest: 1 passed")


NASTY = "a|b `c` <img src=x> [l](u) *e* _f_ #12 @me $x$ \x1b[31mred\x1b[0m ``` </details> & ~~s~~ x_y\nnext"


def test_foreign_text_stays_text(result: Make) -> None:
    failure = result(id=NASTY, operator="op|`x`", reason=Reason.RAISED, message=NASTY, details={"stderr_tail": NASTY})
    text = text_of([failure, result(status=Status.SKIPPED, message=NASTY)])
    assert "\x1b" not in text
    html = READER.render(text)
    assert "<td>op|`x`</td>" in html.replace("&#124;", "|").replace("&#96;", "`")
    assert "<em>" not in html
    assert "<a " not in html
    assert "<img" not in html
    assert html.count("<details>") == html.count("</details>") == 2
    (row,) = re.findall(r"<tr>\s*<td>op.*?</tr>", html, re.S)
    assert row.count("<td") == 4  # operator, error, skipped, reasons


@pytest.mark.parametrize("text", ["`", "``` x", "|", "<b>", "a & b", "*x*"])
def test_escaped_text_renders_as_itself(text: str) -> None:
    import html as html_module

    rendered = READER.render(f"- {escaped(text)}")
    plain = html_module.unescape(re.sub(r"</?(?:ul|li)>", "", rendered)).strip()
    assert plain == text


def test_fence_in_output_does_not_end_block(result: Make) -> None:
    failure = result(reason=Reason.RAISED, message="```\n# heading", details={"stderr_tail": "````\n# more"})
    html = READER.render(text_of([failure]))
    assert "<h1>" not in html
    assert "# heading" in html
    assert html.count("<pre>") == 1


def test_omitted_failures_are_counted(result: Make) -> None:
    wrong = {"reason": Reason.VALUE, "message": "y" * 200}
    failures = [result(id=f"case {place}", operator=f"op{place}", **wrong) for place in range(500)]
    text = text_of(failures, max_bytes=50_000)
    assert len(text.encode()) <= 50_000
    shown = text.count("<summary>FAILED VALUE")
    assert 0 < shown < 500
    assert f"**{500 - shown} of 500 failures omitted**" in text
    assert "optest report r1" in text
    assert "| run | r1 |" in text
    assert text.count("<details>") == text.count("</details>")


def test_the_limit_is_that_of_a_step_summary(result: Make) -> None:
    failures = [
        result(id=f"{place}", reason=Reason.RAISED, message=f"x{place}" + "ü" * 90_000, operator=f"op{place}")
        for place in range(400)
    ]
    size = len(text_of(failures).encode())
    assert 500_000 < size <= 1024 * 1024
