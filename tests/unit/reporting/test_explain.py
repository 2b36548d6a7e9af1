"""The words of a failure: one block for every reason, held against a file that people can read."""

from __future__ import annotations

from collections.abc import Callable
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
OFF = {
    "mismatched": 3,
    **WORST,
    "worst_ulp": 12.0,
    "worst_used": 3.0,
    "where": "all three lie in row 12, columns 29..31",
}
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


def blocks(result: Make, measure: Make) -> dict[str, CaseResult]:
    """A result for every reason, as the engine and the drivers make them, and for some that have two faces."""
    value = measure(**OFF)
    strict = RuleUsed(name="case", layer="case", text="rtol=0.001, atol=1e-05")
    said: dict[Reason, dict[str, Any]] = {
        Reason.VALUE: {"measures": (value,)},
        Reason.NAN: {
            "measures": (
                measure(
                    **{
                        **OFF,
                        "nonfinite_mismatched": 2,
                        "worst_actual": float("nan"),
                        "worst_ulp": None,
                        "worst_used": None,
                    }
                ),
            )
        },
        Reason.SHAPE: {"message": "output out has the shape 32x64, expected 64x32"},
        Reason.DTYPE: {"message": "output out is float32, expected float16"},
        Reason.MISSING_OUTPUT: {"message": "the backend returned no output 'indices'"},
        Reason.EXTRA_OUTPUT: {"message": "the backend returned 2 outputs, but should return 1"},
        Reason.NOTHING_COMPARED: {},
        Reason.INPUT_MUTATED: {
            "message": "1 of 8192 elements of input0 (a) were changed; the first at [0, 3]: 1.5 became 0.0",
            "details": {"input": "a", "index": [0, 3]},
        },
        Reason.OUT_OF_BOUNDS: {
            "message": "memory was written 2 bytes after the end of output out",
            "details": {"output": "out"},
        },
        Reason.READ_OUT_OF_BOUNDS: {"message": "memory was read after the end of input a"},
        Reason.UNWRITTEN: {"message": "16 of 2048 elements of output out were never written; the first at [63, 16]"},
        Reason.WORKSPACE: {"details": {"asked_bytes": 1024, "used_bytes": 2048}},
        Reason.STATE: {"message": "the second call gave another answer than the first"},
        Reason.NONDETERMINISTIC: {"message": "a second run gave other bits, but the backend declares itself invariant"},
        Reason.INVARIANT: {
            "message": "with element 0 of the batch alone: out: 32 of 2048 elements are off",
            "details": {"how": "with element 0 of the batch alone"},
        },
        Reason.LEAK: {"message": "4096 bytes were not given back"},
        Reason.SANITIZER: {
            "message": "heap-buffer-overflow",
            "details": {"stderr_tail": "==1==ERROR: AddressSanitizer"},
        },
        Reason.NOT_REFUSED: {"message": "the call was accepted, expected refused with ValueError"},
        Reason.WRONG_ERROR: {
            "message": "the call was refused with 'KeyError: x', expected refused with ValueError",
            "details": {"exception": "KeyError: x"},
        },
        Reason.WRONG_DEVICE: {"message": "output out lies on cpu, but should lie on cuda:0"},
        Reason.FALLBACK: {"message": "aten::addmm answered in place of my::matmul"},
        Reason.COMPILE: {
            "message": "the build step exited with status 1, but should exit with 0",
            "details": {"command": ["make"], "phase": "build", "stderr_tail": "matmul.c:3: error: expected ';'"},
        },
        Reason.SIGNAL: {"message": "the backend died of SIGSEGV", "details": SEGFAULT},
        Reason.EXIT_CODE: {
            "message": "the command exited with status 42, but should exit with 0",
            "details": {**COMMAND, "exit_code": 42, "stderr_tail": "boom\n", "stdout_tail": "ignored"},
        },
        Reason.DEADLINE: {
            "message": "the command did not end within 2 s and was killed",
            "details": {
                **COMMAND,
                "timeout_s": 2.0,
                "stderr_tail": "",
                "stdout_tail": "step 1\n",
                "strays": ["sleep (pid 7)"],
            },
        },
        Reason.OUT_OF_MEMORY: {
            "message": "the backend ran out of memory: MemoryError",
            "details": {"exception": "MemoryError"},
        },
        Reason.DEVICE_LOST: {"message": "cuda:0 stopped answering"},
        Reason.RAISED: {"message": "the backend raised ValueError: bad stride", "details": RAISED},
        Reason.UNSUPPORTED: {"message": "float16 is not implemented"},
        Reason.UNAVAILABLE: {"message": "torch is unavailable: pip install torch"},
        Reason.REFERENCE_FAILED: {
            "message": "the reference raised IndexError: 7",
            "details": {**RAISED, "exception": "IndexError: 7"},
        },
        Reason.BAD_CASE: {"message": "the generator returned 1 inputs, expected 2 arrays"},
        Reason.INTERNAL: {"message": "the comparison raised KeyError: 'x'"},
    }
    found = {reason.value: result(reason=reason, **said[reason]) for reason in Reason}
    whole = RuleUsed(name="exact", layer="operator", text="exact")
    integers = {"output": "sum", "dtype": "int32", "compared": 4, "mismatched": 4, "rule": whole}
    worst = {
        "worst_index": (0,),
        "worst_actual": 7,
        "worst_expected": 9,
        "worst_bound": 0.0,
        "worst_used": float("inf"),
    }
    found["VALUE, every element of an int output, exact"] = result(
        reason=Reason.VALUE, measures=(measure(**integers, **worst),)
    )
    found["VALUE, a scalar"] = result(
        reason=Reason.VALUE,
        measures=(measure(dtype="float32", compared=1, mismatched=1, **{**WORST, "worst_index": ()}, rule=strict),),
    )
    found["VALUE, the statistic alone"] = result(
        reason=Reason.VALUE, measures=(measure(**WORST, worst_used=0.4, statistic=2.31, statistic_limit=1.25),)
    )
    found["VALUE, one of two outputs"] = result(
        reason=Reason.VALUE, measures=(measure(output="fine", worst_used=0.1), measure(output="wrong", **OFF))
    )
    found["VALUE, and a check that failed"] = result(
        reason=Reason.VALUE,
        measures=(value,),
        checks=(Check(name="alias", state=CheckState.FAILED, detail="out shares memory with input a"),),
    )
    found["VALUE of a named duplicate, asked twice, in the second round"] = result(
        reason=Reason.VALUE, measures=(value,), id="tail", where="plan.yaml:12",
        identifier="matmul[float16](64x128, 128x32, alpha=2.0)", duplicate_of="matmul[float16](64x128, 128x32)",
        attempts=2, round=1,
    )  # fmt: skip
    found["XPASSED"] = result(status=Status.XPASSED, message="passed, but the plan expects failed: issue 12")
    found["SUSPECT"] = result(
        status=Status.SUSPECT, message="passed at attempt 2, after SIGNAL: signal SIGSEGV", attempts=2
    )
    found["UNCHECKED"] = result(status=Status.UNCHECKED, message="matmul has no reference", reference="none")
    found["RAISED, with much to say"] = result(
        reason=Reason.RAISED,
        message="the backend raised RuntimeError: first\n" + "\n".join(f"line {number}" for number in range(20)),
        details={"stderr_tail": "\n".join(f"err {number}" for number in range(30))},
    )
    found["STATE of a library that prints"] = result(
        reason=Reason.STATE,
        message="every call printed to standard output: 'tanh: done'",
        details={"printed": "tanh: done"},
    )
    found["EXIT_CODE of a library"] = result(
        reason=Reason.EXIT_CODE,
        status=Status.CRASHED,
        message="the backend ended its process with exit status 0",
        details={"exit_code": 0, "phase": "run", "stderr_tail": ""},
    )
    found["RAISED for a status"] = result(
        reason=Reason.RAISED,
        message="the library refused: xAdd returned 12 (X_BAD_STRIDES)",
        details={"exception": "StatusError: xAdd returned 12 (X_BAD_STRIDES)", "function": "xAdd",
                 "status": "X_BAD_STRIDES"},
    )  # fmt: skip
    found["BAD_CASE of a mapping"] = result(
        reason=Reason.BAD_CASE,
        message="mapping mine, operators.add.create has 5 arguments, but xCreateAdd should have 6\n"
        "  at x.h:10: void xCreateAdd(void * handle)\n  stated in mine.yaml:12",
        details={"mapping": "mine.yaml:12"},
    )
    found["SIGNAL of a library, with the frames of optest"] = result(
        reason=Reason.SIGNAL,
        message="the backend died of SIGABRT",
        details={"signal": "SIGABRT", "phase": "run", "stderr_tail": DUMP},
    )
    return found


def text_of(found: dict[str, CaseResult]) -> str:
    return "\n\n".join(f"# {name}\n" + "\n".join(explain(each)) for name, each in found.items()) + "\n"


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
    ("actual", "expected", "entry", "is_shown"),
    [
        (0.0, 1.1e-38, "float32", True),
        (-0.0, -3e-45, "float32", True),
        (0.0, 1e-6, "float16", True),
        (0.0, 1.2e-38, "float32", False),
        (1e-40, 1.1e-38, "float32", False),
        (0.0, 0.5, "float32", False),
        (0, 1, "int32", False),
        ("nan", 1e-40, "float32", False),
    ],
)
def test_flushed_result_names_declaration(
    actual: Any, expected: Any, entry: str, is_shown: bool, result: Make, measure: Make
) -> None:
    off = {**OFF, "worst_actual": actual, "worst_expected": expected, "dtype": entry}
    text = "\n".join(explain(result(status=Status.FAILED, reason=Reason.VALUE, measures=(measure(**off),))))
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
def test_few_ulp_of_16_bits_hint_at_roundings(
    more: dict[str, Any], is_shown: bool, result: Make, measure: Make
) -> None:
    off = {**OFF, "dtype": "float16", "max_ulp_error": 3.0, "rule": "ulp", **more}
    off["rule"] = RuleUsed(name=off["rule"], layer="operator", text="")
    text = "\n".join(explain(result(status=Status.FAILED, reason=Reason.VALUE, measures=(measure(**off),))))
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
def test_nan_remedy_depends_on_side(
    actual: Any, expected: Any, operands: str, words: str, result: Make, measure: Make
) -> None:
    off = {**OFF, "worst_actual": actual, "worst_expected": expected}
    details = {"operands_there": operands} if operands else {}
    failed = result(status=Status.FAILED, reason=Reason.NAN, measures=(measure(**off),), details=details)
    (line,) = [line for line in explain(failed) if line.startswith("  NAN: ")]
    assert words in line


@pytest.mark.parametrize(
    ("spec", "word"),
    [(["float16", [4, 5]], "block"), (["float16", [4, 5], [1, 4], 0], "strided"), (["float16", []], "dimensions")],
)
def test_out_of_bounds_remedy_depends_on_layout(spec: list[Any], word: str, result: Make) -> None:
    failed = result(
        status=Status.FAILED,
        reason=Reason.READ_OUT_OF_BOUNDS,
        case={"inputs": [["a", "input0", spec]]},
        shapes={"input0": tuple(spec[1])},
    )
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
