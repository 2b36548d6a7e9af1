"""The HTML report of a real failed run in Chromium: filters, search, pictures, foreign text, no request, no error."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from texts import says
from user_shell import Shell

from optest.compare import Expected
from optest.compare.verdict import compare_outputs
from optest.core.results import result_of
from optest.reporting.html_report import html_text
from optest.spec import (
    Argument,
    CaseResult,
    Fill,
    Numerics,
    OperatorDescriptor,
    Rule,
    RuleClass,
    RunInfo,
    RunSummary,
    TensorSpec,
    TestCase,
    dtype,
)

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: requirements-test.txt")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium jinja2")]

NASTY = "</script><img src=https://example.invalid/x onerror=alert(1)>\"'&amp; \\uD800 \\0"
KERNELS = """
import numpy as np

def matmul(a, b):
    out = a.astype(np.float32) @ b.astype(np.float32)
    out[64:] = 0
    out[:, 64:] = np.nan
    return out.astype(a.dtype)

def add(a, b, *, alpha=1):
    return a + b
"""
PLAN = f"""
version: 1
defaults: {{dtypes: float32}}
cases:
  - {{op: matmul, shapes: {{input0: 100x32, input1: 32x80}}, name: '{NASTY.replace("'", "''")}'}}
  - {{op: matmul, shapes: {{input0: 96x32, input1: 32x64}}}}
  - {{op: matmul, shapes: {{input0: 64x32, input1: 32x64}}}}
  - {{op: add, shapes: {{input0: 1000, input1: 1000}}, dtypes: float16}}
  - {{op: add, shapes: {{input0: 1000, input1: 1000}}}}
  - {{op: softmax, shapes: {{input0: 4x9}}}}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def report(optest: Shell, plan: Callable[[str], Path], tmp_path: Path) -> Path:
    plan(PLAN)
    (tmp_path / "kernels.py").write_text(KERNELS)
    asked = ("--function", "kernels:matmul", "--function", "kernels:add", "--report", "html", "--report-path", "r.html")
    optest("run", "--plan", "plan.yaml", *asked).expect(1)
    optest("report", "latest", "--format", "html", "-o", "again.html").expect(0)
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "r.html").read_bytes()
    return tmp_path / "r.html"


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page whose ``requests`` and ``troubles`` are kept: what it says on its console, and what it raises."""
    opened = browser.new_page(color_scheme="dark")
    opened.requests, opened.troubles = [], []
    opened.on("request", lambda request: opened.requests.append(request.url))
    opened.on("console", lambda message: opened.troubles.append(message.text))
    opened.on("pageerror", lambda error: opened.troubles.append(str(error)))
    opened.on("dialog", lambda dialog: opened.troubles.append(dialog.message))
    yield opened
    opened.close()


def test_page(report: Path, page: Any) -> None:
    page.goto(report.as_uri())
    page.wait_for_selector("body[data-ready]")

    def shown() -> list[str]:
        return page.locator("tr.case td:nth-child(2)").all_inner_texts()  # type: ignore[no-any-return]

    def choose(**values: str) -> list[str]:
        for name, value in values.items():
            page.locator(f"select[name={name}]").select_option(value)
        return shown()

    assert "2 failed" in page.locator("h1").inner_text()
    everything = shown()
    assert len(everything) == 6
    assert everything[0].startswith("</script><img src=https://example.invalid/x onerror=alert(1)>\"'&amp; ")
    assert page.locator("output").inner_text() == "6 of 6 cases"

    # filters and search
    assert choose(status="failing") == everything[:2]
    assert choose(status="", operator="add") == ["add[float16](1000, 1000)", "add[float32](1000, 1000)"]
    assert choose(dtype="float16") == ["add[float16](1000, 1000)"]
    assert choose(dtype="", operator="", reason="NAN") == everything[:1]
    assert choose(reason="", status="skipped") == ["softmax[float32](4x9)"]
    choose(status="")
    page.locator("input[name=search]").fill("ADD float16")
    assert shown() == ["add[float16](1000, 1000)"]
    page.locator("input[name=search]").fill("nothing like it")
    assert (shown(), page.locator("output").inner_text()) == ([], "0 of 6 cases")
    page.locator("input[name=search]").fill("")

    # the operator that fails is open, with its picture; so is a case that is clicked
    assert page.locator("details.operator[open]").get_attribute("data-operator") == "matmul"
    assert page.locator("details.operator[open] canvas").count() == 2
    page.locator("tr.case").first.click()
    detail = page.locator("tr.detail")
    assert detail.locator("canvas").count() == 1
    assert detail.locator("svg circle").count() > 200
    assert says(detail.locator("pre").inner_text(), "cli.got_nan_but_should")
    assert "optest run --" in detail.locator("pre").inner_text()
    assert says(detail.locator("figure").inner_text(), "cli.begin_and_end_at")
    pixels = detail.locator("canvas").evaluate(
        """canvas => {
            const {width, height} = canvas, all = canvas.getContext("2d").getImageData(0, 0, width, height).data;
            const at = (x, y) => 4 * (Math.floor(y * height) * width + Math.floor(x * width));
            return [[0.1, 0.1], [0.1, 0.9], [0.9, 0.1]].map(([x, y]) => [...all.slice(at(x, y), at(x, y) + 3)]);
        }"""
    )
    right, zero, nan = pixels
    assert right[2] > right[0], "right is blue"
    assert zero[0] > 2 * zero[2], "wrong is red to yellow"
    assert nan[0] > nan[1] < nan[2], "NaN is purple"
    page.locator("tr.case").first.click()
    assert page.locator("tr.detail").count() == 0

    assert page.locator("body img").count() == 0
    assert page.requests == [report.as_uri()]
    assert page.troubles == []


@pytest.mark.heavy
def test_link_to_a_case(report: Path, page: Any) -> None:
    page.goto(report.as_uri() + "#matmul%5Bfloat32%5D(96x32%2C%2032x64)")
    page.wait_for_selector("tr.detail canvas")
    assert page.locator("tr.open td:nth-child(2)").inner_text() == "matmul[float32](96x32, 32x64)"


def failure(name: str, actual: Any, expected: Any, dtype_name: str) -> CaseResult:
    """As a comparison makes it, of a movement: the output has to be the same."""
    spec = TensorSpec(dtype=dtype(dtype_name), shape=np.shape(actual))
    descriptor = OperatorDescriptor(name="probe", rule=Rule(kind=RuleClass.MOVEMENT), signature="x -> out")
    argument = Argument(name="x", path="input0", spec=spec, fill=Fill(kind="randn"))
    case = TestCase(descriptor=descriptor, inputs=(argument,), name=name)
    right = Expected(name="out", dtype=dtype(dtype_name), shape=np.shape(actual), value=np.asarray(expected))
    verdict = compare_outputs(case, [np.asarray(actual)], [right], numerics=Numerics(), draws=True)
    assert verdict.pictures
    return result_of(case, verdict)


@pytest.mark.heavy
def test_odd_pictures(tmp_path: Path, page: Any) -> None:
    huge, inf, nan = np.finfo(np.float64).max, np.inf, np.nan
    results = [
        failure("scalar", np.float32(1), np.float32(2), "float32"),
        failure("none finite", np.float32([inf, -inf, 1]), np.float32([nan, inf, nan]), "float32"),
        failure("huge", np.array([huge, -huge]), np.array([-huge, huge]), "float64"),
        failure("equal", np.full((3, 3), np.float32(5)), np.full((3, 3), np.float32(nan)), "float32"),
        failure("complex", np.complex64([1 + 2j, nan]), np.complex64([1 + 3j, 4]), "complex64"),
        failure("bool", np.array([True, False]), np.array([False, False]), "bool"),
        failure("long", np.ones((70_000, 2), np.int64), np.zeros((70_000, 2), np.int64), "int64"),
    ]
    info = RunInfo(run_id="r", started_at="now", total=len(results), target="numpy", seed=0)
    summary = RunSummary.of(results, total=len(results), duration_s=1.0)
    path = tmp_path / "odd.html"
    path.write_text(html_text(info, results, summary))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    for row in page.locator("tr.case").all():
        row.click()
    assert page.locator("tr.detail figure").count() == len(results)
    places = page.locator("circle").evaluate_all(
        "all => all.map(each => [each.getAttribute('cx'), each.getAttribute('cy')])"
    )
    assert all(0 <= float(x) <= 340 and 30 <= float(y) <= 262 for x, y in places)
    assert page.troubles == []
