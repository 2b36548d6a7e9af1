"""A file of model cases as a plan: what its cases become, and what is said of a file that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from model_kit import TENSOR, cases_of, cases_of_document, file_of, problem_of, problems_of, said, write
from texts import says_exactly

from optest.errors import PlanError
from optest.plan import open_plan, parse_plan
from optest.spec import ExpectedError, TestCase, Tolerance
from optest.torch.model_cases.schema import InputEntry, ModelCase, TensorEntry
from optest.torch.model_cases.translation import slug

CASE = f"{{name: a, op: torch.abs, inputs: [{TENSOR}]"


def test_a_case_is_a_case_of_a_plan() -> None:
    text = """\
model: gpt-oss-20b
default: {dtype: fp16, seed: 123, rtol: 1.0e-3, atol: 1.0e-2}
cases:
  - name: add.1
    op: torch.add
    inputs: [{tensor: {shape: [4, 8], init: randn}}, {value: 2}]
    kwmap: {alpha: 3}
    description: |
      modeling_gpt_oss.py:138 in forward
    marks: [constant, constant, bf16]
    mark: slow
    rtol: 0.5
    seed: 7
    expects_error: {type: RuntimeError, match: view}
  - name: neg.1
    op: torch.neg
    inputs: [{tensor: {shape: [4]}}]
"""
    first, second = cases_of(text)
    assert (first.id, first.descriptor.name, first.seed) == ("gpt-oss-20b::add.1", "torch.add", 7)
    assert first.attributes["call"] == "torch.add(input0, 2, alpha=3)"
    assert first.description == "modeling_gpt_oss.py:138 in forward"
    assert first.tags == ("model_gpt_oss_20b", "slow", "constant", "bf16")
    assert first.expects_error == ExpectedError(type="RuntimeError", match="view")
    assert (second.seed, second.tags) == (123, ("model_gpt_oss_20b",))
    last = [case.tolerances[-1].tolerance for case in (first, second)]
    assert [(each.rtol, each.atol) for each in last] == [(0.5, 0.01), (0.001, 0.01)]


def test_default_and_defaults_are_the_same_alone() -> None:
    """The RFC of the dialect says defaults, of which its own loader read neither the seed nor atol."""
    for key in ("default", "defaults"):
        (case,) = cases_of(f"model: m\n{key}: {{dtype: bf16, seed: 5, atol: 1.0e-2}}\ncases: [{CASE}}}]\n")
        assert (case.dtypes[0].name, case.seed) == ("bfloat16", 5)
        assert [each.tolerance for each in case.tolerances] == [Tolerance(atol=1.0e-2)]


def test_several_marks_in_one_text_are_several() -> None:
    """A mark with a comma or a space in it could be selected by no ``-m``."""
    (case,) = cases_of(file_of(f"- {CASE}, mark: 'slow, nightly', marks: [pytest.mark.x, y z]}}"))
    assert case.tags == ("model_m", "slow", "nightly", "x", "y", "z")


def test_slugs() -> None:
    assert slug("Qwen2.5-7B-Instruct") == "qwen2_5_7b_instruct"
    assert slug("--") == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "model: m\ndefault: {dtype: fp16}\ndefaults: {dtype: bf16}\nCASES",
            "m.yaml:3 $.defaults: default and defaults are both set, expected one of them\n    remove one of them",
        ),
        ("model: m\ncases: []\n", "m.yaml:2 $.cases: cases is [], expected at least one entry"),
        ("model: m\n", "m.yaml:1 $.cases: the key cases is missing\n    cases: [{name: add.1, op: torch.add"),
        ("model: m\ncases: {name: a}\n", "m.yaml:2 $.cases: cases is {name: 'a'}, expected a list\n    cases: [{name"),
        ("model:\nCASES", "m.yaml:1 $.model: model is null, expected text\n    model: gpt-oss-20b"),
        ("model: 3\nCASES", 'm.yaml:1 $.model: model is 3, expected text\n    write "3" in quotes'),
        ("model: m\nmodle: n\nCASES", "m.yaml:2 $.modle: unknown key 'modle' of the file\n    did you mean mod"),
        ("model: m\ninclude: [b.yaml]\nCASES", "$.include: unknown key 'include' of the file\n    known keys: mod"),
        ("model: m\nop: x\nCASES", "$.op: unknown key 'op' of the file\n    it is a key of a case"),
        ("model: m\ndefault: {dtpye: x}\nCASES", "unknown key 'dtpye' of the defaults\n    did you mean dtype?"),
        ("model: m\ndefault: {shape: [2]}\nCASES", "'shape' of the defaults\n    it is a key of a tensor"),
        ("model: m\ndefault: [1]\nCASES", "m.yaml:2 $.default: default is [1], expected a mapping\n    default:"),
        ("model: m\ndefault: {dtype: fp17}\nCASES", "m.yaml:2 $.default.dtype: unknown dtype 'fp17'\n    known"),
        ("model: m\ndefaults: {seed: -1}\nCASES", "$.defaults.seed: seed is -1, expected at least 0\n    s"),
        ("model: m\ndefaults: {rtol: .nan}\nCASES", "$.defaults.rtol: rtol is nan, expected a finite"),
        (
            f"model: m\ncases: [{CASE}}}, 3]\n",
            "m.yaml:2 $.cases[1]: case 1 is 3, expected a mapping\n    - {name: add.1",
        ),
    ],
)
def test_invalid_file_names_path_and_remedy(text: str, told: str) -> None:
    assert told in said(text.replace("CASES", f"cases: [{CASE}}}]\n"))


@pytest.mark.parametrize(
    ("entry", "place", "message"),
    [
        ("op: torch.abs", ".name", "the key name is missing\n    name: add.1"),
        ("name: a", ".op", "the key op is missing\n    op: torch.add"),
        ("name: 3, op: torch.abs", ".name", 'name is 3, expected text\n    write "3" in quotes if it is text'),
        ('name: "a\\nb", op: torch.abs', ".name", "expected text without control characters\n    name: add.1"),
        ("name: a, op: 'os.system(1)'", ".op", "expected a dotted name of torch's\n    op: torch.add"),
        ("name: a, op: torch.", ".op", "op is 'torch.', expected a dotted name"),
        ("name: a, op: 'torch.add; 1'", ".op", "expected a dotted name of torch's"),
        ("ABS, input: []", ".input", "unknown key 'input' of a case\n    did you mean inputs?"),
        ("ABS, shape: []", ".shape", "unknown key 'shape' of a case\n    it is a key of a tensor"),
        ("ABS, tensor: {}", ".tensor", "unknown key 'tensor' of a case\n    it is a key of an input"),
        ("ABS, model: x", ".model", "unknown key 'model' of a case\n    it is a key of the file"),
        ("ABS, zzz: x", ".zzz", "unknown key 'zzz' of a case\n    known keys: dtype, seed, rtol"),
        ("ABS, inputs: [{tensr: {}}]", ".inputs[0].tensr", "of an input\n    did you mean tensor?"),
        ("ABS, inputs: [{shape: [2]}]", ".inputs[0].shape", "of an input\n    it is a key of a tensor"),
        ("ABS, dtype: fp17", ".dtype", "unknown dtype 'fp17'"),
        ("ABS, marks: 3", ".marks", 'marks is 3, expected text\n    write "3" in quotes'),
        ("ABS, mark: ' , '", ".mark", "expected a word"),
        (
            "ABS, marks: [a, skipif]",
            ".marks[1]",
            "the mark skipif cannot have a condition here; write skip_if\n    skip_if: {expr: ",
        ),
        ("ABS, marks: [a, '']", ".marks[1]", "item 1 is '', expected a word"),
        ('ABS, mark: "a\\nb"', ".mark", "expected a word"),
        ("ABS, mark: {}", ".mark", "the mark is {}, expected at least one entry"),
        ("ABS, mark: {skip: null}", ".mark.skip", "skip is null, expected text"),
        ("ABS, mark: {skip: ' '}", ".mark.skip", "skip is ' ', expected a word"),
        ("ABS, expects_error: RuntimeError", ".expects_error", ", expected a mapping\n    expects_error"),
        ("ABS, expects_error: {}", ".expects_error", "expects_error is {}, expected at least one entry"),
        ("ABS, expects_error: {match: ''}", ".expects_error.match", "match is '', expected a word"),
        ("ABS, expects_error: {mach: x}", ".expects_error.mach", "did you mean match?"),
        ("ABS, expects_error: {type: RuntimError}", ".expects_error.type", "did you mean RuntimeError?"),
        ("ABS, expects_error: {type: SystemExit}", ".expects_error.type", "expected one of Arith"),
        ("ABS, expects_error: {type: BaseException}", ".expects_error.type", "expected one of Arith"),
    ],
)
def test_invalid_case_names_path_and_remedy(entry: str, place: str, message: str) -> None:
    entry = entry.replace("ABS", "name: a, op: torch.abs")
    found = said(file_of(f"- {{name: z, op: torch.neg, inputs: [{TENSOR}]}}\n- {{{entry}}}"))
    assert found.startswith(f"m.yaml:4 $.cases[1]{place}: ")
    assert message in found


def test_unknown_torch_name_fails_only_its_case() -> None:
    """One slip in a file of hundreds: the others run."""
    first, second = cases_of(file_of(f"- {CASE}}}\n- {{name: b, op: F.relu, inputs: [{TENSOR}]}}"))
    assert first.descriptor.name == "torch.abs"
    assert (second.descriptor.name, second.attributes["call"]) == ("torch.F.relu", "F.relu(input0)")


def test_all_problems_are_reported_once() -> None:
    text = """\
model: m
default: {dtype: fp17} # $.default.dtype
cases:
  - name: a
    op: torch.abs
    inputs:
      - tensor: {shape: [2], init: rndn} # $.cases[0].inputs[0].tensor.init
      - py: foo() # $.cases[0].inputs[1].py
  - name: a # $.cases[1].name
    op: torch.neg
    inputs: [{tensor: {shape: [2], dtype: zz}}]
    skip_if: nope
  - {name: c, op: torch.abs, opp: 1} # $.cases[2].opp
  - {name: d, op: torch.abs}
"""
    noted = [(number, line.partition(" # ")[2]) for number, line in enumerate(text.splitlines(), 1) if " # " in line]
    assert [(each.line, each.path) for each in problems_of(text)] == noted
    again = text.replace("  - name: a #", "  - name: b #").replace("fp17", "fp16")
    assert (11, "$.cases[1].inputs[0].tensor.dtype") in [(each.line, each.path) for each in problems_of(again)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"model: m\ncases: [{CASE}, marks: no}}]\n", "marks is no, and YAML 1.1 reads it as a boolean"),
        ("model: m\ncases: [{name: a, op: torch.abs, inputs: [{value: 010}]}]\n", "value is 010"),
        (
            "model: m\ncases: [{name: a, op: torch.abs, inputs: [{value: !!python/object:os.system x}]}]\n",
            "is not allowed",
        ),
    ],
)
def test_yaml_traps_are_reported(text: str, told: str) -> None:
    problem = problem_of(text)
    assert told in problem.message
    assert problem.line == 2


ONE = f"model: one\ncases: [{CASE}}}]\n"


def test_two_files_of_one_model_in_one_plan(tmp_path: Path) -> None:
    path = write(tmp_path, plan="include: [a.yaml, b.yaml, c.yaml]\n", a=ONE, b="\n" + ONE, c=ONE.replace("one", "two"))
    (problem,) = open_plan(path).problems
    assert (problem.file, problem.line, problem.path) == (f"{tmp_path}/b.yaml", 2, "$.model")
    assert says_exactly(problem.message, "plan.the_model_is_called", tmp_path=tmp_path)
    assert says_exactly(problem.hint, "plan.give_it_another_name")
    (tmp_path / "plan.yaml").write_text("include: [a.yaml, {file: b.yaml, model: one-2}, c.yaml]\n")
    document = open_plan(path)
    assert document.problems == ()
    assert [case.id for case in cases_of_document(document)] == ["one::a", "one-2::a", "two::a"]
    assert [case.tags for case in cases_of_document(document)] == [("model_one",), ("model_one_2",), ("model_two",)]


@pytest.mark.parametrize(
    ("include", "where", "message"),
    [
        ("[{file: a.yaml, modle: x}]", "$.include[0].modle", "unknown key 'modle' of an included file"),
        ("[{model: x}]", "$.include[0]", "item 0 of include is {model: 'x'}, expected {file: FILE, model: NAME}"),
        ("[{file: a.yaml, model: 7}]", "$.include[0].model", "model of item 0 of include is 7, expected a name"),
        ("[7]", "$.include[0]", "item 0 of include is 7, expected the name of a file"),
    ],
)
def test_what_an_included_file_may_say(include: str, where: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, plan=f"include: {include}\n", a=ONE)
    assert [(each.path, each.message, each.line) for each in open_plan(path).problems] == [(where, message, 1)]


def test_a_plan_has_no_model_to_rename(tmp_path: Path) -> None:
    path = write(tmp_path, plan="include: {file: n.yaml, model: x}\n", n="cases: [{op: relu, shapes: {input0: 2}}]\n")
    (problem,) = open_plan(path).problems
    assert (problem.path, problem.line) == ("$.include.model", 1)
    assert says_exactly(problem.message, "plan.yaml_is_given_the", tmp_path=tmp_path)


def test_files_of_several_models_in_one_plan(tmp_path: Path) -> None:
    entry = "{op: torch.neg, shapes: {input0: 2x3}, attributes: {call: torch.neg(input0)}, name: n}"
    native = f"seed: 1\ncases: [{entry}]\n"
    path = write(tmp_path, plan="include: [a.yaml, b.yaml, n.yaml]\n", a=ONE, b=ONE.replace("one", "two"), n=native)
    document = open_plan(path)
    assert document.problems == ()
    cases = cases_of_document(document)
    assert [case.id for case in cases] == ["one::a", "two::a", "n"]
    assert cases[0].key == cases[1].key
    assert [case.tags for case in cases] == [("model_one",), ("model_two",), ()]


def test_invalid_file_does_not_affect_others(tmp_path: Path) -> None:
    path = write(tmp_path, plan="include: [a.yaml, b.yaml]\n", a="model: one\ncases: []\n", b=ONE.replace("one", "two"))
    document = open_plan(path)
    assert [(each.file, each.line) for each in document.problems] == [(f"{tmp_path}/a.yaml", 2)]
    assert [case["name"] for each in document.family() for case in each.cases] == ["two::a"]


WORDS = st.sampled_from(
    ["torch.add", "fp16", "bool", "int64", "zz", "rand", "randint", "data", "eye", "file", "x.pt", "1", "(1, 2)",
     "(", "noncontig_slice", "transpose_view", "expand_view", "dim", "high", "path", "RuntimeError",
     "device == 'cpu'", "a()",
     "no", "010", "", "~", "\\0", "ü", "torch.", "None", "cpu", "input0", "slice(1)", "9**9**9"]
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers(-3, 5) | st.floats() | st.integers() | WORDS
KEYS = st.sampled_from(
    [*ModelCase.__annotations__, *InputEntry.__annotations__, *TensorEntry.__annotations__, "low", "high", "value",
     "path", "dim", "step", "base_shape", "expr", "reason", "type", "match", "zzz"]
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
TENSORS = st.fixed_dictionaries(
    {"shape": st.lists(st.integers(0, 4), max_size=3)},
    optional={
        "dtype": st.sampled_from(["fp16", "bool", "int8", "complex64"]) | VALUES,
        "stride": st.lists(st.integers(0, 4), max_size=3) | VALUES,
        "storage_offset": st.integers(0, 4) | VALUES,
        "init": st.sampled_from(["rand", "randint", "data", "full", "eye", "xavier", "arange", "file"]) | VALUES,
        "init_args": st.dictionaries(KEYS, SCALARS, max_size=2) | VALUES,
        "preset": st.sampled_from(["noncontig_slice", "transpose_view", "expand_view"]) | VALUES,
        "preset_args": st.dictionaries(KEYS, SCALARS, max_size=2) | VALUES,
    },
)
KINDS = {"tensor": TENSORS, "tensor_list": st.lists(TENSORS, max_size=2), "value": VALUES, "py": WORDS, "file": WORDS}
INPUTS = st.one_of(*(st.fixed_dictionaries({key: value}) for key, value in KINDS.items()), VALUES)
CASES = st.builds(
    lambda case, more: {**case, **more},
    st.fixed_dictionaries(
        {"name": st.sampled_from("abcd"), "op": st.just("torch.add"), "inputs": st.lists(INPUTS, max_size=3)},
        optional={"kwmap": st.dictionaries(KEYS, VALUES, max_size=2)},
    ),
    st.just({}) | st.dictionaries(KEYS, VALUES, max_size=2),
)


def outcome(data: object) -> list[TestCase] | None:
    """Cases, or None for problems that all have a place. Anything else that is raised fails the test."""
    try:
        return cases_of(yaml.safe_dump(data, allow_unicode=True), file="fuzz.yaml")
    except PlanError as error:
        problems = error.problems
    assert problems
    assert all(each.message and each.file == "fuzz.yaml" and each.line for each in problems), problems
    return None


@given(st.lists(CASES, min_size=1, max_size=3), st.just({}) | st.dictionaries(KEYS, VALUES, max_size=2))
@settings(max_examples=40, deadline=None)
@example([{"name": "a", "op": "torch.add", "inputs": [{"value": "\ud7ff"}]}], {})
@example(
    [{"name": "a", "op": "torch.add", "inputs": [{"tensor": {"shape": [], "init": "data", "init_args": None}}]}], {}
)
def test_any_cases_are_read_or_reported(cases: list[object], default: dict[str, object]) -> None:
    outcome({"model": "m", "default": default, "cases": cases})


@given(st.dictionaries(st.sampled_from(["model", "default", "defaults", "cases", "zzz"]), VALUES))
@settings(max_examples=40, deadline=None)
def test_any_top_level_is_read_or_reported(top: dict[str, object]) -> None:
    outcome({"model": "m", **top})


def test_device_layout_is_ignored_with_note() -> None:
    layout = "device_layout: {device_size: [2, 64], stride_map: [64, 1], device_dtype: fp16}"
    text = file_of(f"""
        - {{name: a, op: torch.neg, inputs: [{{tensor: {{shape: [2, 3], {layout}}}}}]}}
        - {{name: b, op: torch.cat, inputs: [{{tensor_list: [{{shape: [2, 3], {layout}}}, {{shape: [2, 3]}}]}}]}}
        - {{name: c, op: torch.neg, inputs: [{{tensor: {{shape: [2, 3]}}}}]}}
    """)
    document = parse_plan(text.encode(), "m.yaml")
    assert document.notes == (
        "m.yaml: device_layout of 2 tensors is not used: torch lays tensors out by shape and stride",
    )
    laid_out, _, plain = cases_of_document(document)
    assert laid_out.inputs == plain.inputs
    assert parse_plan(file_of(f"- {{name: a, op: torch.neg, inputs: [{TENSOR}]}}").encode(), "m.yaml").notes == ()


def test_the_property_sees_cases_and_not_problems_alone() -> None:
    assert outcome({"model": "m", "cases": [{"name": "a", "op": "torch.add", "inputs": [{"tensor": {"shape": [2]}}]}]})
