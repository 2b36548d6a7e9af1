"""The terminal's report on a terminal, in a pipe, in ASCII, narrow, quiet, verbose, and over many cases."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from reporting_kit import report_run, run_info
from texts import lacks, says, says_exactly

from optest.reporting.page import Page, wants_color
from optest.reporting.terminal import TerminalReporter
from optest.spec import CaseResult, Check, CheckState, Evidence, Reason, RunSummary, Status, Verdict

Make = Callable[..., Any]
NOTE = "the driver was registered by hand, so it runs in this process"
INFO = run_info(plan="plan.yaml", optest_version="0.1.0", notes=(NOTE,))
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def run(results: Iterable[CaseResult], stream: Any, *, shrink: Any = None, **options: Any) -> str:
    reporter = TerminalReporter(stream, **{"clock": lambda: 0.0, **options})
    reporter.shrink = shrink
    report_run(reporter, INFO, list(results), duration_s=0.41)
    return str(stream.getvalue())


OFF = {"mismatched": 3, "worst_index": (0, 1), "worst_actual": 1.0, "worst_expected": 2.0, "worst_bound": 0.5}


@pytest.fixture
def three(result: Make, measure: Make) -> list[CaseResult]:
    wrong = measure(**OFF, worst_used=2.0)
    return [
        result(),
        result(status=Status.FAILED, reason=Reason.VALUE, measures=(wrong,), repro="optest run again"),
        result(operator="cast", id="cast[float16](4)", reason=Reason.UNSUPPORTED, message="no float8"),
    ]


def test_the_whole_report_in_a_pipe(three: list[CaseResult]) -> None:
    assert run(three, io.StringIO()) == (
        "optest 0.1.0: 3 cases of plan.yaml on torch:cpu, seed 7\n"
        "  note: the driver was registered by hand, so it runs in this process\n"
        "[1/3] PASSED  matmul[float16](64x128, 128x32)  1.2 ms\n"
        "[2/3] FAILED  matmul[float16](64x128, 128x32)  VALUE  1.2 ms\n"
        "[3/3] SKIPPED cast[float16](4)  UNSUPPORTED: no float8  1.2 ms\n"
        "\n"
        "FAILED  matmul[float16](64x128, 128x32)  torch:cpu against numpy\n"
        "  out: 3 of 2048 elements are off; worst at [0, 1]: got 1, expected 2 ± 0.5 (2.0 x allowed)\n"
        "  rule: float16 in, float32 accumulate, k=128 (operator matmul)\n"
        "  reproduce: optest run again\n"
        "\n"
        "skipped\n"
        "  1 × UNSUPPORTED: no float8\n"
        "\n"
        "  operator  passed  failed  skipped  reasons\n"
        "  matmul         1       1        -  1 VALUE\n"
        "  cast           -       -        1  1 UNSUPPORTED\n"
        "\n"
        "1 passed, 1 failed, 1 skipped in 0.41 s\n"
        "journal: .optest/runs/20260131T000000Z-ab/journal.jsonl\n"
    )


def test_quiet_has_summary_and_very_quiet_one_line(three: list[CaseResult]) -> None:
    quiet = run(three, io.StringIO(), verbosity=-1)
    assert quiet.startswith("skipped\n")
    assert "FAILED" not in quiet
    assert quiet.endswith("journal.jsonl\n")
    assert says_exactly(run(three, io.StringIO(), verbosity=-2), "reporting.passed_failed_skipped_in")


def test_all_well_needs_no_table(result: Make) -> None:
    assert says_exactly(run([result()], io.StringIO(), verbosity=-1), "reporting.passed_in_journal_optest")


def test_verbose_adds_rule_share_time_and_checks(result: Make, measure: Make) -> None:
    checks = (
        Check(name="inputs", state=CheckState.DONE),
        Check(name="unwritten", state=CheckState.NOT_POSSIBLE, detail="the backend allocates"),
    )
    measured = measure(worst_used=0.25, statistic=0.5, statistic_limit=1.25, max_ulp_error=0.9876)
    text = run([result(checks=checks, measures=(measured,))], io.StringIO(), verbosity=1)
    assert says(text, "reporting.out_elements_compared_of")
    assert "  operator  passed  reasons\n" in text


def test_refusals_that_passed_are_counted(result: Make) -> None:
    refused = replace(result(), verdict=Verdict(status=Status.PASSED, evidence=Evidence.RAISED_AS_EXPECTED))
    assert says(run([refused, result(), refused], io.StringIO()), "reporting.passed_calls_refused", count=2)
    assert lacks(run([result()], io.StringIO()), "reporting.passed_calls_refused", count=0)
    assert says(run([refused], io.StringIO(), verbosity=1), "reporting.evidence_raised_as_expected")


def test_colour_and_live_line_only_on_terminal(three: list[CaseResult], terminal: io.StringIO) -> None:
    assert "\x1b" not in run(three, io.StringIO())
    coloured = run(three, terminal, width=200)
    assert "\x1b[1;31mFAILED\x1b[0m  matmul" in coloured
    assert "\x1b[2K" in coloured


def test_terminal_without_colour_has_text_of_pipe(three: list[CaseResult], terminal: io.StringIO) -> None:
    shown = run(three, terminal, color=False, width=200)
    assert set(ANSI.findall(shown)) == {"\x1b[2K"}
    assert "━━━━━━━━────────────────  1/3" in shown
    remaining = re.sub(r"\r\x1b\[2K[^\n]*?(?=\r\x1b\[2K)", "", shown).replace("\r\x1b[2K", "")
    assert remaining == run(three, io.StringIO())


def test_live_line_is_rare_and_fits_terminal(result: Make, terminal: io.StringIO) -> None:
    wide = result(id="漢字" * 60)
    shown = run([wide] * 1000, terminal, color=False, width=50, clock=map((0.001).__mul__, count()).__next__)
    draws = [part for part in shown.split("\r\x1b[2K") if "━" in part or "─" in part]
    assert 5 <= len(draws) <= 25
    from rich.cells import cell_len

    assert all(cell_len(draw) < 50 for draw in draws)
    assert all("\n" not in draw for draw in draws)


def test_narrow_terminal_wraps_prose_but_no_commands(result: Make, measure: Make, terminal: io.StringIO) -> None:
    failed = result(reason=Reason.VALUE, measures=(measure(**OFF),))
    lines = ANSI.sub("", run([failed], terminal, width=60)).replace("\r", "").split("\n")
    long = [line for line in lines if len(line) > 60]
    assert [line.split(":")[0] for line in long] == ["  reproduce"]
    assert long[0].endswith("--backend torch")
    assert "    expected 2 ± 0.5" in lines


class AsciiStream(io.TextIOWrapper):
    def __init__(self, encoding: str = "ascii") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    def getvalue(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)  # type: ignore[attr-defined]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437"])
def test_a_stream_without_the_signs_gets_words(encoding: str, three: list[CaseResult], result: Make) -> None:
    odd = result(reason=Reason.RAISED, message="π 漢 ± × …", repro="optest run 'é' \ud800")
    text = run([*three, odd], AsciiStream(encoding))
    assert "2 +/- 0.5" in text if encoding == "ascii" else "± 0.5" in text or "+/- 0.5" in text
    assert "\\u6f22" in text


def test_the_bar_has_an_ascii_form(three: list[CaseResult]) -> None:
    class AsciiTerminal(AsciiStream):
        def isatty(self) -> bool:
            return True

    assert "========----------------  1/3" in run(three, AsciiTerminal(), width=100)


def test_large_run_prints_failures_and_progress(result: Make) -> None:
    results = [result()] * 100
    results[40] = result(reason=Reason.SHAPE, message="other shape")
    lines = run(results, io.StringIO(), clock=map((0.5).__mul__, count()).__next__).split("\n")
    assert not any("PASSED" in line for line in lines)
    assert "[ 41/100] FAILED  matmul[float16](64x128, 128x32)  SHAPE  1.2 ms" in lines
    progress = [line for line in lines if line.startswith("…")]
    assert 8 <= len(progress) <= 11
    assert progress[-1].startswith("… ")
    assert "1 failing" in progress[-1]
    assert "left" in progress[-1]


def test_skips_of_large_run_are_only_counted(result: Make) -> None:
    skip = result(reason=Reason.UNSUPPORTED, message="no kernel for gemm")
    text = run([skip] * 60 + [result()], io.StringIO())
    assert "SKIPPED" not in text
    assert says(text, "reporting.unsupported_no_kernel_for")
    assert run([skip] * 60, io.StringIO(), verbosity=1).count("SKIPPED") == 60
    assert run([skip] * 3, io.StringIO()).count("SKIPPED") == 3


def test_failure_blocks_are_capped_with_command_for_rest(result: Make) -> None:
    results = [result(reason=Reason.NAN, operator=f"op{number}", id=f"case {number}") for number in range(57)]
    text = run(results, io.StringIO())
    assert text.count("  reproduce:") == 20
    assert says(text, "reporting.and_more_groups_of_failures")
    assert run(results, io.StringIO(), verbosity=1).count("  reproduce:") == 57


@pytest.mark.parametrize("interrupted_at", [None, 2])
def test_the_smallest_calls_of_the_first_blocks(result: Make, interrupted_at: int | None) -> None:
    results = [result(reason=Reason.NAN, operator=f"op{number}", id=f"case {number}") for number in range(9)]
    asked: list[str] = []

    def shrink(failure: CaseResult) -> str:
        asked.append(failure.id)
        if len(asked) == interrupted_at:
            raise KeyboardInterrupt
        return f"smallest: that of {failure.id}"

    text = run(results, io.StringIO(), shrink=shrink)
    assert asked == [f"case {number}" for number in range(5 if interrupted_at is None else interrupted_at)]
    smallest = [line for line in text.splitlines() if "smallest" in line]
    assert smallest == [f"  smallest: that of {each}" for each in asked[: None if interrupted_at is None else -1]]
    assert text.count("  reproduce:") == 9


def test_skips_are_grouped_and_capped(result: Make) -> None:
    results = [result(reason=Reason.UNSUPPORTED, message=f"no {number}") for number in range(15)] * 2
    text = run(results, io.StringIO(), verbosity=-1)
    assert "  2 × UNSUPPORTED: no 0\n" in text
    assert says(text, "reporting.and_for_other_reasons")
    assert "no 12" not in text


def test_unfinished_run_counts_cases_not_run(result: Make) -> None:
    reporter = TerminalReporter(stream := io.StringIO(), verbosity=-2)
    reporter.on_start(INFO)
    reporter.on_case_result(result(), 0, 3)
    reporter.on_complete(RunSummary(total=3, finished=1, duration_s=75.2, interrupted=True, exit_status=130))
    assert says_exactly(stream.getvalue(), "reporting.interrupted_passed_not_run")


def test_nothing_ran(terminal: io.StringIO) -> None:
    assert "nothing ran in 0.41 s\n" in ANSI.sub("", run([], terminal))


def test_a_resumed_run_is_summed_up_whole(three: list[CaseResult]) -> None:
    report_run(TerminalReporter(stream := io.StringIO()), INFO, three, resumed=2, duration_s=0.1)
    assert says(stream.getvalue(), "reporting.passed_failed_skipped_in_2")
    assert says(stream.getvalue(), "reporting.again_optest_run_again")


def test_closed_pipe_does_not_end_run(three: list[CaseResult]) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    assert run(three, Gone()) == ""


def test_when_there_are_colours(terminal: io.StringIO) -> None:
    assert wants_color(terminal, no_color=False, variables={})
    assert not wants_color(terminal, no_color=True, variables={"FORCE_COLOR": "1"})
    assert not wants_color(terminal, no_color=False, variables={"NO_COLOR": "1", "FORCE_COLOR": "1"})
    assert wants_color(terminal, no_color=False, variables={"NO_COLOR": ""})
    assert not wants_color(terminal, no_color=False, variables={"TERM": "dumb"})
    assert not wants_color(io.StringIO(), no_color=False, variables={})
    assert wants_color(io.StringIO(), no_color=False, variables={"FORCE_COLOR": "1"})
    closed = io.StringIO()
    closed.close()
    assert not wants_color(closed, no_color=False, variables={})


def test_wrapped_line_keeps_coloured_word() -> None:
    stream = io.StringIO()
    Page(stream, color=True, width=30).line("FAILED  a name that is much longer than the line", "bad:6")
    assert stream.getvalue().startswith("\x1b[1;31mFAILED\x1b[0m  a name")
    assert stream.getvalue().count("\x1b[") == 2


@pytest.mark.parametrize("verbosity", [-1, 0, 1])
@pytest.mark.parametrize("reason", [Reason.UNSUPPORTED, Reason.RAISED])
def test_tested_code_cannot_issue_workflow_commands(result: Make, reason: Reason, verbosity: int) -> None:
    text = "x\n::error file=x::owned\n  ::stop-commands::t\r\n\t::add-mask::t\n##[error]x\n::"
    check = Check(name="::warning::", state=CheckState.NOTE, detail=text)
    status = Status.ERROR if reason is Reason.RAISED else Status.SKIPPED
    wrong = result(id="::debug::id", status=status, reason=reason, message=text, checks=(check,), repro="::notice::r")
    shown = run([wrong], io.StringIO(), verbosity=verbosity)
    assert not [line for line in shown.splitlines() if line.lstrip().startswith("::")]
    assert "##[" not in shown
    assert not [line for line in shown.splitlines() if line.startswith("\\")]


def test_progress_names_long_running_case(terminal: Any) -> None:
    stream = io.StringIO()
    log = TerminalReporter(stream, clock=lambda: 0.0)
    for seconds in (11.0, 29.0, 31.0, 45.0, 63.0, 64.0):
        log.on_wait("layer_norm/long/3[float32](2x65536)", seconds, 7, 100)
    log.on_wait("add/1", 40.0, 8, 100)
    lines = stream.getvalue().splitlines()
    assert [line.partition("running for ")[2] for line in lines] == ["31.0 s", "1 min 03 s", "40.0 s"]
    assert lines[0].startswith("… 7/100")
    assert says(lines[0], "reporting.layer_norm_long_float")
    TerminalReporter(terminal, width=100, clock=lambda: 0.0).on_wait("add/1", 11.0, 8, 100)
    assert says(terminal.getvalue(), "reporting.add_has_been_running")
