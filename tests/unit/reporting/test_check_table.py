"""The report of a check: operators in lines, failures told once for all that are alike."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import xmlschema
from reporting_kit import report_run, run_info, summary_of
from texts import says, says_exactly

from optest.api.baseline import offers
from optest.reporting.check_summary import operator_lines
from optest.reporting.check_table import CheckReporter
from optest.reporting.failure_groups import failure_groups
from optest.reporting.junit import junit_text
from optest.reporting.markdown import markdown_text
from optest.spec import CaseResult, Reason, Status

Make = Callable[..., Any]
INFO = run_info(seed=0, options={"command": "check", "tier": "parity"})


def printed(results: Sequence[CaseResult], *, resumed: int = 0, missing: int = 0, **options: Any) -> str:
    reporter = CheckReporter(stream := io.StringIO(), **{"color": False, **options})
    report_run(reporter, INFO, results, resumed=resumed, missing=missing, interrupted=bool(missing))
    return stream.getvalue()


def case(result: Make, id_: str, *more: Any, **changes: Any) -> CaseResult:
    """A result with the operator of its id, ``add/1``, and perhaps its reason and message."""
    further = dict(zip(("reason", "message"), more, strict=False))
    return result(id=id_, operator=id_.partition("/")[0], **further, **changes)  # type: ignore[no-any-return]


def ids_of(results: Sequence[CaseResult]) -> list[list[str]]:
    return [[each.id for each in (group.first, *group.others)] for group in failure_groups(results)]


def several(result: Make, measure: Make) -> list[CaseResult]:
    def of(id_: str, **more: Any) -> CaseResult:
        return case(result, id_, tags=(f"set:{id_.split('/')[1]}", "tier:parity"), **more)

    def off(used: float) -> dict[str, Any]:
        return {"reason": Reason.VALUE, "measures": (measure(mismatched=3, worst_used=used),)}

    gap = {"reason": Reason.UNSUPPORTED, "message": "no float16 here\nmore"}
    return [
        of("add/ordinary/1"),
        of("add/layouts/1"),
        of("add/refused/1"),
        of("sum/ordinary/1"),
        of("sum/layouts/1", **off(2.0)),
        of("sum/layouts/2", **off(7.0)),
        of("sum/layouts/3", **off(3.0)),
        of("sum/special/1", reason=Reason.NAN),
        of("sum/dtypes/1", **gap),
        of("sum/special/2", status=Status.XFAILED, reason=Reason.VALUE),
        of("relu/ordinary/1", **gap),
        of("relu/ordinary/2", **gap),
        of("exp/ordinary/1", reason=Reason.SIGNAL),
    ]


def test_one_line_for_each_operator(result: Make, measure: Make) -> None:
    text = printed(several(result, measure))
    lines = {line.split()[0]: " ".join(line.split()) for line in text.splitlines() if line.startswith("  ")}
    assert says_exactly(lines["operator"], "reporting.operator_passed_gaps_expected")
    assert lines["add"] == "add 3 - - -"
    assert says_exactly(lines["sum"], "reporting.sum_failed_in_layouts")
    assert says_exactly(lines["relu"], "reporting.relu_nothing_ran_unsupported")
    assert says_exactly(lines["exp"], "reporting.exp_failed_in_ordinary")


def test_operators_without_kernel_share_row(result: Make) -> None:
    gap = Reason.UNSUPPORTED
    results = [case(result, f"op{n}/{set_}", gap, "no kernel yet") for n in range(9) for set_ in "ab"]
    results += [case(result, "one", gap, "another"), case(result, "add")]
    text = printed(results)
    rows = [" ".join(line.split()) for line in text.splitlines() if line.startswith("  ")]
    assert rows[1:] == [
        "add 1 - - -",
        "one - 1 - - no case ran: UNSUPPORTED: another",
        "9 operators - 18 - - no case ran: UNSUPPORTED: no kernel yet",
    ]
    assert says(text, "reporting.of_operators_nothing_ran")
    assert "  op3" in printed(results, verbosity=1)


def test_skips_are_not_among_passes(result: Make, measure: Make) -> None:
    text = printed(several(result, measure))
    assert says(text, "reporting.cases_of_operators_on")
    assert says(text, "reporting.cases_skipped_as_unsupported")
    assert says(text, "reporting.unsupported_no_float_here")
    assert says(text, "reporting.of_operator_nothing_ran")


def test_skip_reasons_with_different_values_are_merged(result: Make) -> None:
    said = "f cannot take a, which has strides [{}, 2], but one of them should be 1"
    gaps = [case(result, f"add/layouts/{at}", Reason.UNSUPPORTED, said.format(at)) for at in (5, 5, 7)]
    assert says(printed([*gaps, case(result, "add")]), "reporting.unsupported_cannot_take_which")
    assert says(printed(gaps), "reporting.nothing_ran_unsupported_cannot")


def test_similar_failures_have_one_block(result: Make, measure: Make) -> None:
    results = several(result, measure)
    assert ids_of(results) == [
        ["sum/layouts/2", "sum/layouts/1", "sum/layouts/3"],
        ["exp/ordinary/1"],
        ["sum/special/1"],
    ], "one block for each operator before a second"
    text = printed(results)
    assert text.count("FAILED  sum/layouts/") == 1
    assert says(text, "reporting.and_more_like_it")
    assert text.count("  reproduce: optest run") == 3
    assert "CRASHED  exp/ordinary/1" in text


def raised(result: Make, id_: str, said: str, frames: str) -> CaseResult:
    details = {"exception": said, "traceback_tail": frames}
    return case(result, id_, Reason.RAISED, f"the backend raised {said}", tags=("set:ordinary",), details=details)


def test_exception_of_one_line_is_one_group(result: Make) -> None:
    here = '  File "mine.py", line 9, in run\n    f(x)\n  File "mine.py", line 3, in f'
    there, elsewhere = here.replace("line 9", "line 8"), here.replace("line 3", "line 4")
    results = [
        raised(result, "add/ordinary/1", "TypeError: no int8", here),
        raised(result, "add/ordinary/2", "ValueError: another", here),
        raised(result, "mul/ordinary/1", "TypeError: no int16", there),
        raised(result, "sub/ordinary/1", "TypeError: no int8", elsewhere),
        raised(result, "sum/ordinary/1", "TypeError: no int8", ""),
        raised(result, "tan/ordinary/1", "TypeError: no int8", ""),
    ]
    assert ids_of(results) == [
        ["add/ordinary/1", "mul/ordinary/1"],
        ["sum/ordinary/1", "tan/ordinary/1"],
        ["sub/ordinary/1"],
        ["add/ordinary/2"],
    ]
    assert says(printed(results), "reporting.and_more_like_it_of")


def test_exceptions_are_grouped_regardless_of_shapes(result: Make) -> None:
    frame, library = (
        '  File "a.py", line 3, in f\n    m, k = x.shape',
        '\n  File "/v/site-packages/np.py", line 7, in g',
    )
    fourth, fifth = frame.replace("3", "4") + library, frame.replace("3", "5")
    said = [
        ("not enough values to unpack (expected 2, got 1)", frame),
        ("too many values to unpack (expected 2)", frame),
        ("operands could not be broadcast together with shapes (5,1) (7,3) ", fourth),
        ("operands could not be broadcast together with shapes (2,1,5) (7,) (7,3) ", fourth),
        ("shapes differ: (3, 5) and ()", fifth),
        ("shapes differ: () and (3,)", fifth),
        ("only dense tensors", fifth),
        ("only dense tensors", frame.replace("a.py", "b.py")),
        ("operands could not be broadcast", '  File "b.py", line 4' + library),
    ]
    results = [raised(result, f"mul/{n}", f"ValueError: {text}", at) for n, (text, at) in enumerate(said)]
    found = sorted(sorted(int(id_[-1]) for id_ in ids) for ids in ids_of(results))
    assert found == [[0, 1], [2, 3], [4, 5], [6], [7], [8]], "other words, and other files, apart"


def test_failures_of_one_reason_are_grouped_by_text(result: Make) -> None:
    def ended(number: int, code: int, last: str, **more: Any) -> CaseResult:
        details = {"exit_code": code, "stderr_tail": f"starting {number}\n{last}\n"}
        said = f"run.sh exited with status {code}"
        return case(result, f"add/{number}", Reason.EXIT_CODE, said, details=details, **more)

    def accepted(number: int, description: str = "", **details: str) -> CaseResult:
        said = "the call was accepted, expected refused with Exception"
        return case(result, f"add/{number}", Reason.NOT_REFUSED, said, description=description, details=details)

    other = {"backend": "command", "case": {"backend_config": {"command": {"command": "bash other.sh"}}}}
    results = [
        ended(1, 5, "/tmp/a/in/x.bin: too short"),
        ended(2, 5, "/tmp/b/in/x.bin: too short"),
        ended(3, 5, "no device"),
        ended(4, 7, "x.bin: too short"),
        ended(5, 5, "x.bin: too short", **other),
        accepted(6, "output c with stride 0"),
        accepted(7, "output c with stride 0"),
        accepted(8, "output c in the memory of a"),
        accepted(9, why="other is 5x6, expected 4 rows"),
        accepted(10, why="other is 7x6, expected 3 rows"),
        *(case(result, f"add/{n}", shapes={"input0": (n,)}) for n in range(20, 40)),
    ]
    numbers = [sorted(int(id_[4:]) for id_ in ids) for ids in ids_of(results)]
    assert numbers == [[1, 2], [3], [4], [5], [6, 7], [9, 10], [8]]
    assert "output c with stride 0" in printed(results, block_limit=None)
    patterns = [group.pattern for group in failure_groups(results)[4:]]
    assert patterns == ["", "", ""], "what is wrong with the call says which they are"


STRIDED = {"case": {"inputs": [["a", "input0", ["float32", [4, 4], [1, 4], 0], "randn", {}]]}}


def test_blocks_are_in_order_of_urgency(result: Make) -> None:
    of = partial(case, result)
    results = [
        of("add/0", Reason.NOT_REFUSED, "accepted"),
        *(of(f"add/{n}", Reason.RAISED, "two dimensions only") for n in (1, 2, 3)),
        of("add/4", Reason.READ_OUT_OF_BOUNDS, "beside an input", **STRIDED),
        of("add/5", Reason.UNWRITTEN, "never written"),
        *(of(f"add/{n}", Reason.NAN, "") for n in (6, 7)),
        of("mul/1", Reason.RAISED, "no float16"),
        of("sub/1", Reason.STATE, "a stream"),
    ]
    firsts = [ids[0] for ids in ids_of(results)]
    assert firsts == ["add/6", "sub/1", "mul/1", "add/5", "add/4", "add/1", "add/0"]


def test_rare_failures_come_after_common_ones(result: Make) -> None:
    def of(name: str, count: int, reason: Reason, *said: str, **more: Any) -> list[CaseResult]:
        details = {"diagnosis": said} if said else {"traceback_tail": 'File "k.py", line 1'}
        ids = [f"{name}{place}" for place in range(count)]
        return [result(id=each, reason=reason, message=name, details=details, **more) for each in ids]

    results = [
        *of("raised", 40, Reason.RAISED),
        *of("shape", 1, Reason.SHAPE, "as if the last 1 of 2 were left out"),
        *of("masked", 3, Reason.VALUE, "as if a query saw masked keys"),
        *of("grouped", 12, Reason.VALUE, "as if head h read head h % 2", **STRIDED),
        *of("unknown", 4, Reason.VALUE),
    ]
    firsts = [ids[0] for ids in ids_of(results)]
    assert firsts == ["grouped0", "unknown0", "masked0", "shape0", "raised0"]
    assert ids_of(results[40:44])[0][0] == "masked0", "a wrong shape comes after wrong values"


def test_block_limit_limits_groups(result: Make) -> None:
    results = [case(result, f"op{n}", Reason.NAN) for n in range(9)]
    text = printed(results, block_limit=4)
    assert text.count("  reproduce: ") == 4
    assert says(text, "reporting.and_more_groups_of")
    assert printed(results, block_limit=4, verbosity=1).count("  reproduce: ") == 9


def test_failing_check_of_one_function_fits_screen(result: Make) -> None:
    of, why = partial(case, result), "\n".join(["it is wrong"] + ["more"] * 6)
    results = [
        *(of(f"add/{n}", Reason.SHAPE, f"{'abcdefghijkl'[n]} {why}") for n in range(12)),
        *(of(f"add/g{n}", Reason.UNSUPPORTED, f"no {'x' * n}") for n in range(9)),
    ]
    text = printed(results)
    assert len(text.splitlines()) <= 60
    assert 3 <= text.count("  reproduce: ") < 8
    assert says(text, "reporting.more_groups_of_failures")
    assert "\nadd: 12 SHAPE" in text, "the table is out of sight"
    assert printed(results, block_limit=None).count("  reproduce: ") == 12
    wide = [of(f"op{n}/1", Reason.SHAPE, f"op{n}: {why}") for n in range(9)]
    assert printed([*results, *wide]).count("FAILED  op") == 9, "each operator has its block"


def test_quiet_omits_passed_operators(result: Make, measure: Make) -> None:
    text = printed(several(result, measure), verbosity=-1)
    assert "  reproduce:" not in text
    assert "  add" not in text
    assert "failed in layouts 3" in text
    assert len(printed(several(result, measure), verbosity=-2).splitlines()) == 3


def test_check_of_only_skips_fails(result: Make) -> None:
    results = [result(reason=Reason.UNSUPPORTED, message="no kernel", tags=("set:ordinary",))]
    assert "nothing passed" in printed(results)
    assert summary_of(results).exit_status == 5


def test_unchecked_case_is_no_pass(result: Make) -> None:
    (line,) = operator_lines([result(status=Status.UNCHECKED, tags=("set:ordinary",))])
    assert (line.passed.total(), line.unchecked.total(), line.ran) == (0, 1, True)
    assert "1 not compared" in printed([result(status=Status.UNCHECKED)])


def test_lines_of_afterwards_precede_summary(result: Make) -> None:
    text = printed([result()], color=True, afterwards=lambda results, _: [(f"{len(results)} seen", "bad")])
    assert "\x1b[1;31m1 seen" in text
    assert says(text, "reporting.case_of_operator_on")


def test_interrupted_check_counts_cases_not_run(result: Make) -> None:
    assert says(printed([result()], missing=2), "reporting.interrupted_cases_of_operator")


def test_results_of_resumed_check_are_counted(result: Make) -> None:
    assert "2 passed" in printed([result(), result()], resumed=1)


def test_markdown_of_check_has_table_of_operators(result: Make, measure: Make) -> None:
    results = several(result, measure)
    text = markdown_text(INFO, results[::-1], summary_of(results))
    lines = text.splitlines()
    assert says_exactly(lines[0], "reporting.optest_check_cases_of")
    table = [line for line in lines[: lines.index("") + 40] if line.startswith("| ")]
    assert table[:6] == [
        "| operator | passed | skipped | expected | failed |  |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
        "| sum | 1 | 1 | 1 | 4 | failed in layouts 3, special 1; expected in special 1; skipped in dtypes 1 |",
        "| exp |  |  |  | 1 | failed in ordinary 1 |",
        "| add | 3 |  |  |  |  |",
        "| relu |  | 2 |  |  | no case ran: UNSUPPORTED: no float16 here |",
    ]
    assert says(lines, "reporting.skipped_unsupported_no_float")
    assert text.count("<details><summary>FAILED") == 2
    assert says(text, "reporting.summary_failed_value_sum")
    assert says(text, "reporting.and_more_like_it_sum")


def test_markdown_counts_cases_of_omitted_groups(result: Make, measure: Make) -> None:
    results = several(result, measure)
    summary = summary_of(results)
    whole = len(markdown_text(INFO, results, summary).encode())
    assert says(markdown_text(INFO, results, summary, max_bytes=whole), "reporting.failure_of_left_out")
    assert says(markdown_text(INFO, results, summary, max_bytes=1000), "reporting.failures_of_left_out")


def test_junit_of_check_has_suite_per_operator(result: Make, measure: Make) -> None:
    results = several(result, measure)
    text = junit_text(INFO, results[::-1], summary_of(results))
    xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd")).validate(text)
    root = ET.fromstring(text.encode())
    suites = {suite.attrib["name"]: suite for suite in root}
    assert list(suites) == ["optest run", "add", "exp", "relu", "sum"]
    counts = {name: suites["sum"].attrib[name] for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "7", "failures": "4", "errors": "0", "skipped": "2"}
    totals = [sum(int(suite.attrib[name]) for suite in root) for name in ("tests", "failures", "errors")]
    assert totals == [13, 4, 1]
    property_values = {each.attrib["value"] for each in suites["sum"].iter("property")}
    assert says(property_values, "reporting.failed_in_layouts_special")
    texts = {case.attrib["name"]: case[0].text for case in suites["sum"].iter("testcase") if len(case)}
    assert "worst" not in str(texts["sum/layouts/1"])
    like, reproduce = str(texts["sum/layouts/1"]).splitlines()[1:]
    assert says_exactly(like, "reporting.fails_like")
    assert reproduce == f"  reproduce: {results[4].repro}"
    assert says(str(texts["sum/layouts/2"]), "reporting.and_more_like_it")
    assert says(str(texts["sum/layouts/2"]), "reporting.of_elements_are_off")


def test_skipped_operator_lists_all_reasons(result: Make) -> None:
    whys = ["no float16 here", "no float16 here", "no negative strides"]
    text = printed([result(id=f"relu/{at}", reason=Reason.UNSUPPORTED, message=why) for at, why in enumerate(whys)])
    assert says(text, "reporting.nothing_ran_unsupported_no")
    assert "2 × UNSUPPORTED: no float16 here" in text
    assert "1 × UNSUPPORTED: no negative strides" in text


def test_expectation_is_offered_if_all_dtypes_near(result: Make, measure: Make) -> None:
    def off(operator: str, dtype: str, ulp: float) -> CaseResult:
        wrong = measure(dtype=dtype, mismatched=3, max_ulp_error=ulp)
        return case(result, f"{operator}/{dtype}", Reason.VALUE, "", dtypes=(dtype,), measures=(wrong,))

    near = [off("softmax", "float16", 1.2), off("softmax", "bfloat16", 0.7), off("batch_norm", "bfloat16", 0.65)]
    (first, second) = offers([*near, off("batch_norm", "float32", 1.3e6)], "mine")
    assert "op: softmax, dtype: float16" in first
    assert "op: softmax, dtype: bfloat16" in second


def test_shared_diagnosis_is_one_group_within_file(result: Make) -> None:
    def of(operator: str, module: str) -> CaseResult:
        config = {"backend_config": {"function": {operator: f"{module}:{operator}"}}}
        details = {"diagnosis": ["every element of out is 0.0"]}
        return case(result, operator, Reason.VALUE, "", backend="function", case=config, details=details)

    names = ("relu", "tanh", "sigmoid")
    assert len(ids_of([of(name, "kernels") for name in names])) == 1
    assert len(ids_of([of(name, f"kernels.{name}") for name in names])) == 3


def test_groups_have_operator_family_reason_and_circumstance(result: Make) -> None:
    """Faults of memory differ in bytes; conv1d and conv2d are one; what is of no operator comes first."""

    of = partial(case, result)
    shapes = {"input0": (4, 4)}
    strided = {"shapes": shapes, **STRIDED}
    dense = {"shapes": shapes, "case": {"inputs": [["a", "input0", ["float32", [4, 4]], "randn", {}]]}}
    wrong = {**dense, "case": {**dense["case"], "expects_error": ["Exception"]}}
    beyond, read = Reason.OUT_OF_BOUNDS, Reason.READ_OUT_OF_BOUNDS
    results = [
        of("add/1", beyond, "3 bytes behind output out", **dense),
        of("add/2", beyond, "in a gap of input a", **dense),
        of("add/3", beyond, "in a gap of output out", **strided),
        of("conv1d/1", read, "0 bytes behind input a", **strided),
        of("conv2d/1", read, "element [0, 0] depends on it", **strided),
        of("mul/1", Reason.SIGNAL, "died at 0x55f2", description="NULL for input a", **wrong),
        of("mul/2", Reason.SIGNAL, "died", description="NULL for input b", **wrong),
        of("mul/3", Reason.SIGNAL, "died at 0x55f2", **dense),
        of("mul/4", Reason.SIGNAL, "died at 0x7fff00", **dense),
        of("relu/1", Reason.STATE, "a device stays selected", tags=("set:session",)),
        of("relu/2", Reason.NOT_REFUSED, "accepted", description="dtype float64 of output out"),
        of("relu/3", Reason.NOT_REFUSED, "accepted", description="dtype int8 of output out"),
    ]
    assert [(ids[0], len(ids)) for ids in ids_of(results)] == [
        ("relu/1", 1),
        ("conv1d/1", 2),
        *(("add/1", 2), ("mul/3", 2), ("relu/2", 2)),
        *(("add/3", 1), ("mul/1", 2)),
    ]


def test_refused_calls_do_not_change_patterns(result: Make) -> None:
    def accepted(id_: str, **more: Any) -> CaseResult:
        return case(result, id_, Reason.NOT_REFUSED, "the call was accepted", shapes={"input0": (4, 5)}, **more)

    shapes = {"input0": (4, 8)}
    passed = [case(result, f"add/p{n}", shapes=shapes, dtypes=("float32",)) for n in range(9)]
    refused = [accepted(f"add/{n}", description="output out with stride 0") for n in (1, 2)]
    by_itself = accepted("add/3", details={"why": "add is not defined for bool"})
    failed = [case(result, f"add/{n}", Reason.SHAPE, shapes=shapes, dtypes=("float16",)) for n in (4, 5, 6)]
    text = printed([*passed, *refused, by_itself, *failed])
    assert says(text, "reporting.wrong_on_purpose_output")
    assert text.count("add is not defined for bool") == 1, "not once more as `why`"
    assert says(text, "reporting.wrong_on_purpose_add")
    assert "the last size" not in text
    assert says(text, "reporting.fails_only_in_float")


def test_report_of_several_operators_ends_with_reasons(result: Make) -> None:
    reasons = enumerate([Reason.SHAPE, Reason.DTYPE, Reason.SHAPE])
    failed = [case(result, f"{name}/{n}", reason, "x") for n, reason in reasons for name in ("add", "mul")]
    assert "\nadd: 2 SHAPE, 1 DTYPE\nmul: 2 SHAPE, 1 DTYPE\n" in printed(failed, block_limit=None)
