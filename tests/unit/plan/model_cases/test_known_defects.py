"""Defects of the YAML framework that this dialect comes from, and the tests that show that optest does not have them.

The numbers are those of the study of torch-spyre's framework at the RFC and after it. What no other test shows is
tested below.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from model_kit import cases_of, file_of

from optest.generators.random_tensors import RandomTensorGenerator
from optest.plan import parse_plan
from optest.spec import Reason, Status, Tolerance

TESTS = Path(__file__).parents[3]
HERE = "unit/plan/model_cases/test_known_defects.py"
INPUT = "unit/plan/model_cases/test_bad_input.py"
ARGUMENTS = "unit/plan/model_cases/test_model_arguments.py"
CONDITIONS = "unit/plan/model_cases/test_model_conditions.py"
SAVED = "unit/plan/model_cases/test_model_saved_tensors.py"
SHARED = "unit/plan/model_cases/test_shared_signatures.py"
TENSORS = "unit/plan/model_cases/test_model_tensors.py"
TRANSLATION = "unit/plan/model_cases/test_model_translation.py"
MODELS = "integration/test_model_cases.py"
PYTEST = "integration/test_pytest_plugin.py"
REASONS = "unit/core/test_every_reason.py"
CALLS = "unit/torch_calls/test_torch_calls.py"
COMPILED = "unit/torch_calls/test_compiled.py"
TABLE = "unit/reporting/test_model_table.py"
FIGURES = "test_shared_executions_are_counted_apart"

DEFECTS: dict[str, list[tuple[str, str]]] = {
    "1 one of default and defaults is silently ignored": [
        (TRANSLATION, "test_default_and_defaults_are_the_same_alone"),
        (INPUT, "test_a_fault_says_file_and_line_what_and_what_to_write"),
    ],
    "2 the dtype of a tensor has no effect, nor a part in the key": [
        (TENSORS, "test_the_dtype_of_a_tensor_goes_before_that_of_the_case_and_of_the_file"),
        (TENSORS, "test_per_tensor_dtype_decides_the_values"),
        (SHARED, "test_what_changes_the_call_is_executed_for_itself"),
    ],
    "3 presets are made contiguous, so that nothing is refused": [
        (TENSORS, "test_a_preset_has_the_shape_of_the_view_and_is_not_contiguous"),
        (CALLS, "test_strides_reach_the_call"),
        (MODELS, "test_the_template_of_the_rfc"),
    ],
    "4 randint gets floats and no dtype": [(TENSORS, "test_fills")],
    "5 file, py in a key, aten.view and logical_and are missing": [
        (SAVED, "test_a_file_input_is_what_the_file_says"),
        (SHARED, "test_values_that_look_alike_are_not_the_same"),
        (MODELS, "test_the_template_of_the_rfc"),
    ],
    "6 py is evaluated: powers, lambdas, repeats": [(ARGUMENTS, "test_py_is_parsed_and_never_evaluated")],
    "7 skip_if lacks in and subscripts, and a map is ignored": [
        (CONDITIONS, "test_what_holds"),
        (CONDITIONS, "test_a_map_a_list_and_a_text_leave_a_case_out"),
    ],
    "8 an unknown error type lets anything pass, and Ctrl-C too": [
        (TRANSLATION, "test_a_case_that_is_wrong_says_where_and_what_to_write"),
        (COMPILED, "test_a_refusal_stays_what_it_is"),
        (HERE, "test_an_interruption_is_not_the_expected_error"),
        (HERE, "test_a_device_that_does_not_refuse_fails_though_the_cpu_does"),
    ],
    "9 a difference of bool tensors fails within the comparison; bare asserts for tuples; no place": [
        (HERE, "test_bool_results_are_told_apart_with_their_place"),
        (HERE, "test_the_wrong_one_of_several_results_is_named"),
        (HERE, "test_a_wrong_number_that_is_no_tensor_is_found"),
    ],
    "10 an unknown op ends the whole session": [
        (CALLS, "test_unknown_name_is_bad_case"),
        (CALLS, "test_any_dotted_name_is_found_without_a_table"),
    ],
    "11a a key without dtype, stride and keywords": [(SHARED, "test_what_changes_the_call_is_executed_for_itself")],
    "11b a duplicate is a skip, also of a failure": [
        (TABLE, FIGURES),
        (MODELS, "test_a_wrong_backend_is_found_in_the_figures_of_each_model"),
        (PYTEST, "test_every_case_is_a_test_and_fails_in_optests_words"),
    ],
    "11c each worker of xdist knows its own duplicates alone": [
        (PYTEST, "test_under_xdist_nothing_runs_twice_and_duplicates_are_told"),
    ],
    "11d a case without stride ends in a KeyError": [
        (SHARED, "test_what_does_not_change_the_call_shares_its_execution")
    ],
    "11e the text '1' is the number": [(SHARED, "test_values_that_look_alike_are_not_the_same")],
    "12 selection is shown as thousands of skips": [
        (PYTEST, "test_an_item_is_selected_by_its_id_by_model_word_and_mark"),
    ],
    "13 lists are empty": [(PYTEST, "test_lists_need_no_torch")],
    "14 stride and storage_offset are recorded and ignored": [
        (TENSORS, "test_layouts"),
        (HERE, "test_a_captured_layout_is_rebuilt_in_its_storage_from_its_seed"),
        (HERE, "test_no_fill_forgets_the_layout_or_the_seed"),
    ],
    "15 bool inputs are all False, integers of rand all 0": [
        (TENSORS, "test_bool_draws_both_values_whatever_is_stated"),
        (TENSORS, "test_fills"),
    ],
    "16 a failed compilation falls back to eager": [
        (COMPILED, "test_what_is_not_compiled_is_a_fall_back"),
        (COMPILED, "test_compiler_failure_differs_from_call_error"),
    ],
    "17 the reference shares its buffers with what is tested": [
        (CALLS, "test_changed_input_and_result_are_compared"),
        (HERE, "test_what_the_device_writes_into_its_inputs_never_reaches_the_reference"),
    ],
    "18 one flat tolerance for all": [
        (CALLS, "test_dropped_product_fails_despite_file_tolerance"),
        (CALLS, "test_which_rules_judge"),
    ],
    "19 an xfail hides what passes, and crashes": [
        (HERE, "test_the_marks_skip_and_xfail_are_what_they_say"),
        (REASONS, "test_xfail_excuses_its_own_status_alone"),
        (REASONS, "test_xfail_never_excuses_a_crash"),
    ],
    "20 a crash takes all of pytest with it; a print is left in the loader": [
        (PYTEST, "test_a_real_crash_fails_its_item_and_the_run_goes_on"),
        (PYTEST, "test_lists_need_no_torch"),
    ],
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_defect_has_its_tests(defect: str) -> None:
    for file, name in DEFECTS[defect]:
        tree = ast.parse((TESTS / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"


def test_a_captured_layout_is_rebuilt_in_its_storage_from_its_seed() -> None:
    """A stride of 0 repeats one drawn element, an offset moves the view; the same seed gives the same bytes."""
    text = file_of("- {name: a, op: torch.sum, inputs: [{tensor: {shape: [5, 4], stride: [0, 1], storage_offset: 3}}]}")
    (first,), _ = RandomTensorGenerator().generate(cases_of(text)[0])
    (again,), _ = RandomTensorGenerator().generate(cases_of(text)[0])
    assert (first.shape, first.strides) == ((5, 4), (0, 4))
    assert (first == first[:1]).all()
    assert len(set(first[0].tolist())) == 4
    assert first.tobytes() == again.tobytes()


@pytest.mark.parametrize("init", ["rand", "randn", "uniform", "xavier"])
def test_no_fill_forgets_the_layout_or_the_seed(init: str) -> None:
    """xavier ignored both, and a stride drew anew outside the seed."""
    tensor = f"{{tensor: {{shape: [3, 4], stride: [1, 3], storage_offset: 2, init: {init}}}}}"
    text = file_of(f"- {{name: a, op: torch.sum, inputs: [{tensor}]}}")
    (first,), _ = RandomTensorGenerator().generate(cases_of(text)[0])
    (again,), _ = RandomTensorGenerator().generate(cases_of(text)[0])
    (other,), _ = RandomTensorGenerator().generate(
        cases_of(text.replace("model: m", "model: m\ndefault: {seed: 9}"))[0]
    )
    assert first.strides == (4, 12)
    assert (first == again).all()
    assert not (first == other).all()


def test_the_marks_skip_and_xfail_are_what_they_say() -> None:
    skipped, known, plain = cases_of(
        file_of(
            """
            - {name: a, op: torch.neg, inputs: [{tensor: {shape: [2]}}], mark: skip}
            - {name: b, op: torch.neg, inputs: [{tensor: {shape: [2]}}], marks: [xfail, slow]}
            - {name: c, op: torch.neg, inputs: [{tensor: {shape: [2]}}], mark: slow}
            """
        )
    )
    assert (skipped.skip is not None and skipped.skip.reason, skipped.xfail) == ("mark: skip", None)
    assert known.xfail is not None
    assert (known.xfail.status, known.xfail.reason) == (None, "mark: xfail")  # as pytest: failures and errors
    assert (plain.skip, plain.xfail) == (None, None)
    assert [each.tags for each in (skipped, known, plain)] == [
        ("model_m", "skip"), ("model_m", "xfail", "slow"), ("model_m", "slow"),
    ]  # fmt: skip


torch_calls = pytest.mark.torch


def verdict_of(case: str, change: object) -> object:
    """What a device gets that is torch but for ``change`` of its inputs and outputs."""
    pytest.importorskip("torch")
    from optest.core.runner import execute
    from optest.torch.eager import TorchBackend

    class Changed(TorchBackend):
        def run(self, case, inputs):  # type: ignore[no-untyped-def]
            return change(super().run, case, inputs)  # type: ignore[operator]

    (found,) = cases_of(file_of(case))
    return execute([found], Changed()).verdicts[0]


REFUSED = """
- name: a
  op: torch.view
  inputs: [{tensor: {shape: [2, 3]}}, {value: [4, 2]}]
  expects_error: {type: RuntimeError, match: invalid}
"""


@torch_calls
def test_an_interruption_is_not_the_expected_error() -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    found = verdict_of(REFUSED.replace("RuntimeError", "Exception"), interrupted)
    assert (found.status, found.reason) == (Status.FAILED, Reason.WRONG_ERROR)  # type: ignore[attr-defined]


@torch_calls
def test_a_device_that_does_not_refuse_fails_though_the_cpu_does() -> None:
    found = verdict_of(REFUSED, lambda run, case, inputs: [inputs[0]])
    assert (found.status, found.reason) == (Status.FAILED, Reason.NOT_REFUSED)  # type: ignore[attr-defined]
    assert verdict_of(REFUSED, lambda run, case, inputs: run(case, inputs)).status is Status.PASSED  # type: ignore[attr-defined]


@torch_calls
def test_bool_results_are_told_apart_with_their_place() -> None:
    def flipped(run, case, inputs):  # type: ignore[no-untyped-def]
        (output,) = run(case, inputs)
        output = output.copy()
        output[2, 1] = not output[2, 1]
        return [output]

    case = "- {name: a, op: torch.logical_not, inputs: [{tensor: {shape: [4, 3], dtype: bool}}]}"
    found = verdict_of(case, flipped)
    assert found.reason is Reason.VALUE  # type: ignore[attr-defined]
    (measure,) = found.measures  # type: ignore[attr-defined]
    assert (measure.mismatched, measure.worst_index) == (1, (2, 1))


@torch_calls
def test_the_wrong_one_of_several_results_is_named() -> None:
    def second_off(run, case, inputs):  # type: ignore[no-untyped-def]
        first, second, *rest = run(case, inputs)
        return [first, second + 1, *rest]

    case = "- {name: a, op: torch.split, inputs: [{tensor: {shape: [6, 4], init: randn}}, {value: 2}]}"
    found = verdict_of(case, second_off)
    assert found.reason is Reason.VALUE  # type: ignore[attr-defined]
    assert [each.mismatched for each in found.measures] == [0, 8, 0]  # type: ignore[attr-defined]


@torch_calls
def test_a_wrong_number_that_is_no_tensor_is_found() -> None:
    case = "- {name: a, op: torch.numel, inputs: [{tensor: {shape: [6, 4]}}]}"
    found = verdict_of(case, lambda run, case, inputs: [each + 1 for each in run(case, inputs)])
    assert found.reason is Reason.VALUE  # type: ignore[attr-defined]
    assert verdict_of(case, lambda run, case, inputs: run(case, inputs)).status is Status.PASSED  # type: ignore[attr-defined]


@torch_calls
def test_what_the_device_writes_into_its_inputs_never_reaches_the_reference() -> None:
    """In-place calls would else be compared with themselves."""

    def spoilt(run, case, inputs):  # type: ignore[no-untyped-def]
        outputs = run(case, inputs)
        for each in inputs:
            each[...] = 0
        return [each * 0 for each in outputs]

    case = "- {name: a, op: torch.add_, inputs: [{tensor: {shape: [4, 3]}}, {value: 1.0}], rtol: 1.0e-3, atol: 1.0e-3}"
    assert verdict_of(case, spoilt).reason is Reason.VALUE  # type: ignore[attr-defined]


def test_the_file_of_the_rfcs_sample_is_read_with_its_defaults() -> None:
    """It says defaults, which its own loader did not read: neither its seed nor its atol had an effect."""
    document = parse_plan(b"model: gpt-oss\ndefaults: {dtype: fp16, seed: 123, atol: 1.0e-2}\n" + CASES, "gpt.yaml")
    assert document.seed == 123
    assert document.defaults["tolerance"].every == Tolerance(atol=1.0e-2)


CASES = b"cases:\n  - {name: mul_ok, op: torch.mul, inputs: [{tensor: {shape: [1, 64]}}, {value: 2}]}\n"
