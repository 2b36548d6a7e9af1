"""The words of a failure: one block for every reason, held against a file that people can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from texts import says, says_exactly

from optest.reporting.explain import explain, explanation_of, gist, headline, progress_text
from optest.reporting.json_report import build_report
from optest.spec import (
    BAD_STATUSES,
    CaseResult,
    Check,
    CheckState,
    Measure,
    Reason,
    RuleUsed,
    RunInfo,
    RunSummary,
    Status,
)

GOLDEN = Path(__file__).with_name("failure_blocks.txt")
Make = Callable[..., Any]

WORST = {"worst_index": (12, 31), "worst_actual": 0.1875, "worst_expected": 0.1904296875, "worst_bound": 0.00098}
ROW = "all three lie in row 12, columns 29..31"
OFF = {"mismatched": 3, **WORST, "worst_ulp": 12.0, "worst_used": 3.0, "where": ROW}
SEGFAULT = {"signal": "SIGSEGV", "stderr_tail": "loading kernel\nSegmentation fault (core dumped)\n", "phase": "run"}
RAISED = {
    "exception": "ValueError: bad stride",
    "exception_types": ["ValueError", "Exception"],
    "traceback_tail": '  File "my_backend.py", line 12, in run\n    launch(x)',
}
DUMP = """\
mine.c:12: add: Assertion `n % 8 == 0' failed.
Fatal Python error: Aborted

Current thread 0x00007fd4f65bcb80 (most recent call first):
  File "/home/me/mine.py", line 376 in launch
  File "/opt/lib/optest/clib/ffi/calls.py", line 60 in __call__
  File "/opt/lib/optest/clib/library/driver.py", line 140 in run
  File "<frozen runpy>", line 88 in _run_code

Extension modules: numpy._core._multiarray_umath, msgspec._core (total: 2)
"""
COMMAND = {"command": ["./run.sh", "-r", "cpu", "two words"], "phase": "run"}
MESSAGES = {
    Reason.SHAPE: "output out has the shape 32x64, expected 64x32",
    Reason.DTYPE: "output out is float32, expected float16",
    Reason.MISSING_OUTPUT: "the backend returned no output 'indices'",
    Reason.EXTRA_OUTPUT: "the backend returned 2 outputs, but should return 1",
    Reason.INPUT_MUTATED: "1 of 8192 elements of input0 (a) were changed; the first at [0, 3]: 1.5 became 0.0",
    Reason.OUT_OF_BOUNDS: "memory was written 2 bytes after the end of output out",
    Reason.READ_OUT_OF_BOUNDS: "memory was read after the end of input a",
    Reason.UNWRITTEN: "16 of 2048 elements of output out were never written; the first at [63, 16]",
    Reason.STATE: "the second call gave another answer than the first",
    Reason.NONDETERMINISTIC: "a second run gave other bits, but the backend declares itself invariant",
    Reason.INVARIANT: "with element 0 of the batch alone: out: 32 of 2048 elements are off",
    Reason.LEAK: "4096 bytes were not given back",
    Reason.SANITIZER: "heap-buffer-overflow",
    Reason.NOT_REFUSED: "the call was accepted, expected refused with ValueError",
    Reason.WRONG_ERROR: "the call was refused with 'KeyError: x', expected refused with ValueError",
    Reason.WRONG_DEVICE: "output out lies on cpu, but should lie on cuda:0",
    Reason.FALLBACK: "aten::addmm answered in place of my::matmul",
    Reason.COMPILE: "the build step exited with status 1, but should exit with 0",
    Reason.SIGNAL: "the backend died of SIGSEGV",
    Reason.EXIT_CODE: "the command exited with status 42, but should exit with 0",
    Reason.DEADLINE: "the command did not end within 2 s and was killed",
    Reason.OUT_OF_MEMORY: "the backend ran out of memory: MemoryError",
    Reason.DEVICE_LOST: "cuda:0 stopped answering",
    Reason.RAISED: "the backend raised ValueError: bad stride",
    Reason.UNSUPPORTED: "float16 is not implemented",
    Reason.UNAVAILABLE: "torch is unavailable: pip install torch",
    Reason.REFERENCE_FAILED: "the reference raised IndexError: 7",
    Reason.BAD_CASE: "the generator returned 1 inputs, expected 2 arrays",
    Reason.INTERNAL: "the comparison raised KeyError: 'x'",
}
DETAILS: dict[Reason, dict[str, Any]] = {
    Reason.INPUT_MUTATED: {"input": "a", "index": [0, 3]},
    Reason.OUT_OF_BOUNDS: {"output": "out"},
    Reason.WORKSPACE: {"asked_bytes": 1024, "used_bytes": 2048},
    Reason.INVARIANT: {"how": "with element 0 of the batch alone"},
    Reason.SANITIZER: {"stderr_tail": "==1==ERROR: AddressSanitizer"},
    Reason.WRONG_ERROR: {"exception": "KeyError: x"},
    Reason.COMPILE: {"command": ["make"], "phase": "build", "stderr_tail": "matmul.c:3: error: expected ';'"},
    Reason.SIGNAL: SEGFAULT,
    Reason.EXIT_CODE: {**COMMAND, "exit_code": 42, "stderr_tail": "boom\n", "stdout_tail": "ignored"},
    Reason.DEADLINE: {
        **COMMAND,
        "timeout_s": 2.0,
        "stderr_tail": "",
        "stdout_tail": "step 1\n",
        "strays": ["sleep (pid 7)"],
    },
    Reason.OUT_OF_MEMORY: {"exception": "MemoryError"},
    Reason.RAISED: RAISED,
    Reason.REFERENCE_FAILED: {**RAISED, "exception": "IndexError: 7"},
}


def blocks(result: Make, measure: Make) -> dict[str, CaseResult]:
    """A result for every reason, as the engine and the drivers make them, and for some that have two faces."""
    not_a_number = {"nonfinite_mismatched": 2, "worst_actual": float("nan"), "worst_ulp": None, "worst_used": None}
    measures = {Reason.VALUE: (measure(**OFF),), Reason.NAN: (measure(**{**OFF, **not_a_number}),)}
    found = {
        reason.value: result(
            reason=reason,
            message=MESSAGES.get(reason, ""),
            details=DETAILS.get(reason, {}),
            measures=measures.get(reason, ()),
        )
        for reason in Reason
    }

    def add(name: str, reason: Reason | None = None, message: str = "", *measures: Measure, **more: Any) -> None:
        found[name] = result(**({"reason": reason} if reason else {}), message=message, measures=measures, **more)

    strict = RuleUsed(name="case", layer="case", text="rtol=0.001, atol=1e-05")
    whole = RuleUsed(name="exact", layer="operator", text="exact")
    worst = {"worst_index": (0,), "worst_actual": 7, "worst_expected": 9, "worst_bound": 0.0}
    integers = measure(
        output="sum", dtype="int32", compared=4, mismatched=4, rule=whole, **worst, worst_used=float("inf")
    )
    scalar = measure(dtype="float32", compared=1, mismatched=1, **{**WORST, "worst_index": ()}, rule=strict)
    add("VALUE, every element of an int output, exact", Reason.VALUE, "", integers)
    add("VALUE, a scalar", Reason.VALUE, "", scalar)
    statistic = measure(**WORST, worst_used=0.4, statistic=2.31, statistic_limit=1.25)
    add("VALUE, the statistic alone", Reason.VALUE, "", statistic)
    fine, wrong = measure(output="fine", worst_used=0.1), measure(output="wrong", **OFF)
    add("VALUE, one of two outputs", Reason.VALUE, "", fine, wrong)
    alias = Check(name="alias", state=CheckState.FAILED, detail="out shares memory with input a")
    add("VALUE, and a check that failed", Reason.VALUE, "", measure(**OFF), checks=(alias,))
    add(
        "VALUE of a named duplicate, asked twice, in the second round", Reason.VALUE, "", measure(**OFF),
        id="tail", where="plan.yaml:12", identifier="matmul[float16](64x128, 128x32, alpha=2.0)",
        duplicate_of="matmul[float16](64x128, 128x32)", attempts=2, round=1,
    )  # fmt: skip
    add("XPASSED", message="passed, but the plan expects failed: issue 12", status=Status.XPASSED)
    retried = "passed at attempt 2, after SIGNAL: signal SIGSEGV"
    add("SUSPECT", message=retried, status=Status.SUSPECT, attempts=2)
    add("UNCHECKED", message="matmul has no reference", status=Status.UNCHECKED, reference="none")
    add(
        "RAISED, with much to say",
        Reason.RAISED,
        "the backend raised RuntimeError: first\n" + "\n".join(f"line {number}" for number in range(20)),
        details={"stderr_tail": "\n".join(f"err {number}" for number in range(30))},
    )
    prints = "every call printed to standard output: 'tanh: done'"
    add("STATE of a library that prints", Reason.STATE, prints, details={"printed": "tanh: done"})
    add(
        "EXIT_CODE of a library", Reason.EXIT_CODE, "the backend ended its process with exit status 0",
        status=Status.CRASHED, details={"exit_code": 0, "phase": "run", "stderr_tail": ""},
    )  # fmt: skip
    refused = "xAdd returned 12 (X_BAD_STRIDES)"
    add(
        "RAISED for a status", Reason.RAISED, f"the library refused: {refused}",
        details={"exception": f"StatusError: {refused}", "function": "xAdd", "status": "X_BAD_STRIDES"},
    )  # fmt: skip
    add(
        "BAD_CASE of a mapping",
        Reason.BAD_CASE,
        "mapping mine, operators.add.create has 5 arguments, but xCreateAdd should have 6\n"
        "  at x.h:10: void xCreateAdd(void * handle)\n  stated in mine.yaml:12",
        details={"mapping": "mine.yaml:12"},
    )
    aborted = {"signal": "SIGABRT", "phase": "run", "stderr_tail": DUMP}
    name = "SIGNAL of a library, with the frames of optest"
    add(name, Reason.SIGNAL, "the backend died of SIGABRT", details=aborted)
    return found


def text_of(found: dict[str, CaseResult]) -> str:
    """The blocks without their last line, which is the command of every one of them."""
    lines = {name: explain(each) for name, each in found.items()}
    assert {block.pop() for block in lines.values()} == {f"  reproduce: {found['SHAPE'].repro}"}
    return "\n\n".join(f"# {name}: " + "\n".join(block) for name, block in lines.items()) + "\n"


def test_blocks_are_those_of_golden_file(result: Make, measure: Make) -> None:
    """To change the words: write ``text_of(...)`` to the file and read it."""
    assert text_of(blocks(result, measure)) == GOLDEN.read_text(encoding="utf-8")


def test_json_has_derived_facts_of_block(result: Make, measure: Make) -> None:
    info = RunInfo(run_id="r1", started_at="", total=1, target="torch:cpu", seed=7)
    remedies = 0
    for failure in blocks(result, measure).values():
        if failure.status in BAD_STATUSES:
            summary = RunSummary.of([failure], total=1, duration_s=1.0)
            (case,) = build_report(info, [failure], summary)["cases"]
            derived = case["explanation"]
            texts = [derived["remedy"], *(hint for hints in derived["hints"].values() for hint in hints)]
            assert {f"  {text}" for text in texts if text} <= set(explain(failure))
            assert failure.verdict.message or derived["meaning"]
            remedies += bool(derived["remedy"])
    assert remedies > len(Reason) / 2


def test_output_before_crash_is_shown(result: Make) -> None:
    """Though the worker talked for long before, and Python says at the end where it stood."""
    chatter = "\n".join(f"loading kernel {number}" for number in range(60))
    lines = explain(result(reason=Reason.SIGNAL, message="x", details={"stderr_tail": f"{chatter}\n{DUMP}"}))
    assert "    loading kernel 0" in lines
    assert "    mine.c:12: add: Assertion `n % 8 == 0' failed." in lines
    assert says(lines, "reporting.file_home_me_mine")
    assert any(line.startswith("    … ") and line.endswith(" lines omitted") for line in lines)
    assert len(lines) < 30


def test_internal_error_shows_frames_of_optest(result: Make) -> None:
    lines = explain(result(reason=Reason.INTERNAL, message="x", details={"stderr_tail": DUMP}))
    assert any("optest/clib/ffi/calls.py" in line for line in lines)


def test_inconclusive_pass_has_no_hint_at_rounds(result: Make) -> None:
    """Rounds show what comes and goes; a tolerance that zeros meet is met by them in every round."""
    wide = "output0: the tolerance is so wide that an output of nothing but zeros passes too; set a smaller one"
    lines = explain(result(status=Status.SUSPECT, message=wide))
    assert f"  {wide}" in lines
    assert not any("--rounds" in line for line in lines)
    retried = explain(result(status=Status.SUSPECT, message="passed at attempt 2, after SIGNAL: x", attempts=2))
    assert says(retried, "reporting.suspect_run_it_alone")


@pytest.mark.parametrize(
    ("target", "word"), [("scene", "D.INOUT"), ("ffi:cpu", "of the mapping"), ("torch:cpu", "@optest.kernel")]
)
def test_remedy_names_backend(target: str, word: str, result: Make) -> None:
    (hint,) = (line for line in explain(result(target=target, reason=Reason.INPUT_MUTATED)) if "INPUT_MUTATED:" in line)
    assert word in hint


def test_a_summary_does_not_end_with_a_colon(result: Make) -> None:
    failed = result(
        status=Status.ERROR, reason=Reason.COMPILE, message="k.cpp does not compile:\n  k.cpp:7: error: z\n  z"
    )
    assert gist(failed) == progress_text(failed) == "COMPILE: k.cpp does not compile: k.cpp:7: error: z"


def test_block_fits_screen_and_ends_with_command(result: Make, measure: Make) -> None:
    for name, each in blocks(result, measure).items():
        lines = explain(each)
        assert len(lines) <= 40, name
        assert lines[-1].startswith("  reproduce: optest run"), name
        assert not any("\n" in line for line in lines), name


def test_backend_text_has_no_controls(result: Make) -> None:
    nasty = "\x1b[2J\x07\r\u202eevil\x9b31m\ud800"
    said = result(
        reason=Reason.RAISED,
        message=nasty,
        id=nasty,
        target=nasty,
        repro=nasty,
        details={"stderr_tail": nasty, nasty: nasty, "command": [nasty], "strays": [nasty], "exception": nasty + "x"},
        checks=(Check(name="c", state=CheckState.FAILED, detail=nasty),),
    )
    for line in (*explain(said), headline(said), progress_text(said)):
        assert not set(line) & set("\x1b\x07\r\u202e\x9b\ud800"), line


def test_many_outputs_are_cut_off_with_their_names(result: Make, measure: Make) -> None:
    many = tuple(measure(output=f"out{number}", **OFF) for number in range(9))
    text = "\n".join(explain(result(reason=Reason.VALUE, measures=many)))
    assert "out5: 3 of" in text
    assert "out6: 3 of" not in text
    assert says(text, "reporting.and_outputs_more_out")


@pytest.mark.parametrize(
    ("dtype", "actual", "expected", "is_shown"),
    [
        ("float32", 0.0, 1.1e-38, True),
        ("float32", -0.0, -3e-45, True),
        ("float16", 0.0, 1e-6, True),
        ("float32", 0.0, 1.2e-38, False),
        ("float32", 1e-40, 1.1e-38, False),
        ("float32", 0.0, 0.5, False),
        ("int32", 0, 1, False),
        ("float32", "nan", 1e-40, False),
    ],
)
def test_flushed_result_names_declaration(off_by: Make, dtype: str, actual: Any, expected: Any, is_shown: bool) -> None:
    text = off_by(dtype=dtype, worst_actual=actual, worst_expected=expected)
    assert ('Numerics(denormals="flush")' in text) == is_shown, text


@pytest.mark.parametrize(
    ("more", "is_shown"),
    [
        ({}, True),
        ({"dtype": "bfloat16", "rule": "composed"}, True),
        ({"dtype": "float32"}, False),
        ({"rule": "accumulate"}, False),
        ({"rule": "tolerance"}, False),
        ({"max_ulp_error": 100.0}, False),
        ({"max_ulp_error": None}, False),
        ({"nonfinite_mismatched": 1}, False),
        ({"mismatched": 0}, False),
    ],
)
def test_few_ulp_of_16_bits_hint_at_roundings(off_by: Make, more: dict[str, Any], is_shown: bool) -> None:
    off = {"dtype": "float16", "max_ulp_error": 3.0, "rule": "ulp", **more}
    text = off_by(**{**off, "rule": RuleUsed(name=off["rule"], layer="operator", text="")})
    assert (f'Numerics(accumulator="{off["dtype"]}")' in text) == is_shown, text


@pytest.mark.parametrize(
    ("actual", "expected", "operands", "words"),
    [
        (2.0, "nan", "input 2.0, other nan", "NaN got lost"),
        ("inf", "nan", "", "NaN got lost"),
        ("nan", 0.0, "input nan", "a number for this NaN operand"),
        ("nan", 0.0, "input nano", "division by zero"),
        ("nan", 0.0, "", "division by zero"),
    ],
)
def test_nan_remedy_depends_on_side(off_by: Make, actual: Any, expected: Any, operands: str, words: str) -> None:
    details = {"operands_there": operands} if operands else {}
    text = off_by(Reason.NAN, details, worst_actual=actual, worst_expected=expected)
    (line,) = [line for line in text.splitlines() if line.startswith("  NAN: ")]
    assert words in line


@pytest.fixture
def off_by(result: Make, measure: Make) -> Make:
    """The block of a failure whose measure is OFF with changes."""

    def block(reason: Reason = Reason.VALUE, details: Mapping[str, str] = {}, **changes: Any) -> str:
        return "\n".join(explain(result(reason=reason, measures=(measure(**{**OFF, **changes}),), details=details)))

    return block


@pytest.mark.parametrize(
    ("spec", "word"),
    [(["float16", [4, 5]], "block"), (["float16", [4, 5], [1, 4], 0], "strided"), (["float16", []], "dimensions")],
)
def test_out_of_bounds_remedy_depends_on_layout(spec: list[Any], word: str, result: Make) -> None:
    layout = {"case": {"inputs": [["a", "input0", spec]]}, "shapes": {"input0": tuple(spec[1])}}
    failed = result(reason=Reason.READ_OUT_OF_BOUNDS, **layout)
    (line,) = [line for line in explain(failed) if line.startswith("  READ_OUT_OF_BOUNDS: ")]
    assert word in line
    remedy = explanation_of(failed, always_fails=True).remedy
    assert "block" in remedy, "a layout that other failing cases have not is no cause"


def test_measure_without_numbers_is_counted(result: Make, measure: Make) -> None:
    bare: Measure = measure(mismatched=5)
    assert says(explain(result(reason=Reason.VALUE, measures=(bare,))), "reporting.out_of_elements_are")


def test_value_failure_without_measures_has_message(result: Make) -> None:
    assert "  a custom check failed" in explain(result(reason=Reason.VALUE, message="a custom check failed"))


def test_later_wrong_call_is_named(result: Make, measure: Make) -> None:
    said = {"message": "with 2 threads: out: 3 of 2048 elements are off", "details": {"how": "with 2 threads"}}
    found = result(reason=Reason.VALUE, measures=(measure(**OFF),), **said)
    assert says_exactly(explain(found)[1], "reporting.not_in_every_call")
    assert gist(found).startswith("VALUE: with 2 threads: out: 3 of 2048 elements are off")
    assert "\n".join(explain(found)).count("with 2 threads") == 1
    named = result(reason=Reason.STATE, measures=(measure(**OFF),), **said)
    assert "\n".join(explain(named)).count("with 2 threads") == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"status": Status.FAILED, "reason": Reason.VALUE, "message": "x"}, "VALUE"),
        ({"status": Status.SKIPPED, "message": "needs two devices"}, "needs two devices"),
        ({"reason": Reason.UNSUPPORTED, "message": "no float8\nat all"}, "UNSUPPORTED: no float8"),
    ],
)
def test_brief_has_reason_or_message(changes: dict[str, Any], said: str, result: Make) -> None:
    assert progress_text(result(**changes)) == said
