"""Torch-spyre's ``test_suite_config``: its operator calls are model cases, everything else is named as not read."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.plan.model_cases.model_kit import cases_of, cases_of_document, problem_of, problems_of

from optest.plan import parse_plan
from optest.plan.dialects import Facts
from optest.spec import TestCase

TENSOR = (
    "{tensor: {shape: [2, 3], stride: [3, 1], storage_offset: 0, dtype: torch.float16, device: cuda:0, init: rand}}"
)
DTYPES = "supported_dtypes: [{name: half, precision: {atol: 0.5, rtol: 0.25}}, {name: int64, precision: {atol: 1}}]"


def suite(*items: str, test: str = "mode: xfail, tags: [model__mine]", head: str = DTYPES) -> str:
    """Return a file with one test entry that includes these calls, from line 8 on."""
    lines = [
        "test_suite_config:",
        f"  global: {{{head}, input_config: {{seed: 123}}}}",
        "  files:",
        "    - path: ${TORCH_DEVICE_ROOT}/tests/models/test_model_ops_v2.py",
        "      unlisted_test_mode: skip",
        "      tests:",
        f"        - {{names: ['TestSpyreModelOps::test_model_ops_db'], {test}, edits: {{ops: {{include: [",
        ",\n".join(f"            {{{each}}}" for each in items),
        "          ]}}}",
        "cases: []",
    ]
    return "\n".join(lines) + "\n"


def call(op: str, *args: str, kwargs: str = "", more: str = "") -> str:
    inner = f"args: [{', '.join(args)}]" + (f", kwargs: {kwargs}" if kwargs else "")
    return f"name: {op}, sample_inputs_func: {{{inner}}}{', ' + more if more else ''}"


def only(*items: str, **more: str) -> TestCase:
    (case,) = cases_of(suite(*items, **more))
    return case


def test_call_becomes_a_model_case() -> None:
    more = "description: 'L7', tags: [slow, torch.add.1]"
    case = only(call("torch.add", TENSOR, "{value: 1}", kwargs="{alpha: 2}", more=more))
    assert (case.name, case.seed, case.description) == ("mine::torch.add.1", 123, "L7")
    assert case.attributes["call"] == "torch.add(input0, 1, alpha=2)"
    assert {"model_mine", "model__mine", "slow", "torch.add.1"} <= set(case.tags)
    assert case.where == "m.yaml:8"


@pytest.mark.parametrize(
    ("mode", "strict", "skips"),
    [("xfail", False, False), ("xfail_strict", True, False), ("skip", None, True), ("mandatory_success", None, False)],
)
def test_modes_are_marks(mode: str, strict: bool | None, skips: bool) -> None:
    case = only(call("torch.neg", TENSOR), test=f"mode: {mode}")
    assert (case.xfail and case.xfail.strict, case.skip is not None) == (strict, skips)
    assert case.xfail is None or case.xfail.status is None
    assert case.name == "m::torch.neg.1"


def test_dtype_that_is_expected_to_fail() -> None:
    head = "supported_dtypes: [{name: float16, force_xfail: true}]"
    calls = call("torch.neg", TENSOR), call("torch.neg", "{value: 1}", TENSOR)
    cases = cases_of(suite(*calls, test="tags: [a]", head=head))
    assert all(each.xfail is not None and each.xfail.strict is False for each in cases)
    assert only(call("torch.neg", TENSOR), test="mode: skip", head=head).xfail is None


def tolerance(case: TestCase) -> tuple[float, float] | None:
    stated = [each.tolerance for each in case.tolerances]
    return (stated[-1].atol, stated[-1].rtol) if stated else None


def test_precision_follows_the_dtype_of_the_first_tensor() -> None:
    int64, bool_ = (TENSOR.replace("float16", each) for each in ("int64", "bool"))
    both = f"{{tensor_list: [{TENSOR[9:-1]}]}}"
    texts = [("torch.exp", TENSOR), ("torch.cat", both), ("torch.exp", int64), ("torch.exp", bool_)]
    halves, cat, whole, flags = cases_of(suite(*(call(*each) for each in texts)))
    assert tolerance(halves) == tolerance(cat) == (0.5, 0.25)
    assert tolerance(whole) == (1, 0.005)  # upstream's own default for the half that is missing
    assert tolerance(flags) is None


def test_arguments_are_read_as_upstream_reads_them() -> None:
    text = suite(
        call("torch.to", TENSOR, "{value: cpu}"),
        call("torch.getitem", TENSOR, "{py: '(None, slice(None, None, None))'}"),
        call("torch.sum", TENSOR, kwargs="{dim: '(0, 1)', keepdim: 'True', dtype: float32}"),
        call("torch.where", TENSOR.replace("float16", "bool"), kwargs=f"{{input: {TENSOR}, other: '2'}}"),
        call("torch.nn.functional.gelu", TENSOR, kwargs="{approximate: tanh}"),
        call("torch.new_ones", TENSOR, "{value: '(3,)'}", more="kwargs: {dtype: half, device: 'cuda:0'}"),
        call("torch.neg", TENSOR.replace("[3, 1]", "null")),
    )
    got = [each.attributes["call"].partition("(")[2] for each in cases_of(text)]
    assert got == [
        "input0, device('cpu'))",
        "input0, (None, slice(None, None, None)))",
        "input0, dim=(0, 1), keepdim=True, dtype=torch.float32)",
        "input0, input=input1, other=2)",
        "input0, approximate='tanh')",
        "input0, (3,), dtype=torch.half, device=device('cuda:0'))",
        "input0)",
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("operator.__add__", "torch.add"),
        ("operator.__matmul__", "torch.matmul"),
        ("operator.__getitem__", "torch.getitem"),
        ("_operator.setitem", "torch.setitem"),
        ("float", "torch.float"),
        ("torch.aten.view", "torch.view"),
        ("torch.nn.gelu", "torch.nn.functional.gelu"),
        ("torch.nn.scaled_dot_product_attention", "torch.nn.functional.scaled_dot_product_attention"),
    ],
)
def test_names_of_its_registry_are_known(written: str, meant: str) -> None:
    case = only(call(written, TENSOR, more=f"tags: ['{written}.7']"))
    assert case.attributes["call"] == f"{meant}(input0)"
    assert case.name == f"mine::{written}.7"


def test_tensor_list_as_subscript_is_tuple() -> None:
    index = "{shape: [2], dtype: int64, init: randint, init_args: {high: 2}}"
    case = only(call("torch.getitem", TENSOR, f"{{tensor_list: [{index}, {index}]}}"))
    assert case.attributes["call"] == "torch.getitem(input0, (input1, input2))"


def test_variables_of_paths_are_expanded(tmp_path: Path) -> None:
    import numpy as np

    np.save(tmp_path / "w.npy", np.ones((2, 3), np.float16))
    file = "init: file, init_args: {path: '${ROOT}/w.npy'}"
    item = call("torch.neg", f"{{tensor: {{shape: [2, 3], dtype: float16, {file}}}}}")
    (case,) = cases_of(suite(item), facts=Facts(environment={"ROOT": str(tmp_path)}))
    assert case.inputs[0].fill.parameters["path"] == str(tmp_path / "w.npy")
    problem = problem_of(suite(item))
    assert "ROOT" in problem.message
    assert problem.path.endswith("include[0].sample_inputs_func.args[0].tensor.init_args.path")


def test_cases_of_several_models_in_one_file() -> None:
    text = suite(call("torch.neg", TENSOR)).replace("cases: []\n", "")
    other = "\n".join(text.splitlines()[6:]).replace("model__mine", "model__yours").replace("xfail", "skip")
    first, second = cases_of(text + other + "\n")
    assert (first.name, second.name) == ("mine::torch.neg.1", "yours::torch.neg.1")
    assert ("model_mine" in second.tags, "model_yours" in second.tags) == (False, True)
    assert (first.xfail is None, second.skip is None) == (False, False)


OTHER_TESTS = """
test_suite_config:
  labels: [core]
  files:
    - path: ${TORCH_ROOT}/test/test_modules.py
      tests:
        - names: '*TestModule*::test_forward'
          edits:
            modules: {include: [{name: A, module_path: a.A, forward_inputs: [{args: [{tensor: {stride: null}}]}]}]}
            dtypes: {exclude: [{name: float16}]}
    - path: ${TORCH_DEVICE_ROOT}/tests/distributed/test_gather.py
      unlisted_test_mode: mandatory_success
    - path: ${TORCH_ROOT}/test/test_ops.py
      tests:
        - {names: [TestCommon::test_out], mode: xfail, edits: {ops: {include: [{name: add}], exclude: [{name: mul}]}}}
  global:
    supported_dtypes: [float16, {name: complex32, description: x}]
    supported_ops: [add, {name: mul, force_xfail: true}]
"""


def test_note_lists_unread_parts_by_file() -> None:
    document = parse_plan(OTHER_TESTS.encode(), "other.yaml")
    assert cases_of_document(document) == []
    assert [each.partition(": ")[0] for each in document.notes] == [f"other.yaml:{line}" for line in (5, 11, 13)]
    expected = [("modules (1)", "edits.dtypes"), ("test_gather.py",), ("operators without inputs (1)", "ops.exclude")]
    for note, parts in zip(document.notes, expected, strict=True):
        assert [part for part in parts if part not in note] == []


@pytest.mark.parametrize(
    ("wrong", "line", "path", "said"),
    [
        (("mode: xfail", "mode: xfial"), 7, "files[0].tests[0].mode", "xfail"),
        (("edits:", "edit:"), 7, "files[0].tests[0].edit", "edits"),
        (("names:", "nams:"), 7, "files[0].tests[0].nams", "names"),
        (("name: half", "name: hlaf"), 2, "global.supported_dtypes[0].name", "half"),
        (("atol: 0.5", "atol: -1"), 2, "global.supported_dtypes[0].precision.atol", "at least 0"),
        (("seed: 123", "sed: 123"), 2, "global.input_config.sed", "seed"),
        (("shape: [2, 3]", "shap: [2, 3]"), 8, "{CALL}.sample_inputs_func.args[0].tensor.shap", "shape"),
        (("torch.neg", "neg ative"), 8, "{CALL}.name", "dotted"),
        (("args:", "arg:"), 8, "{CALL}.sample_inputs_func.arg", "args"),
        (("stride: [3, 1]", "stride: [1]"), 8, "{CALL}.sample_inputs_func.args[0].tensor.stride", "stride"),
        *(
            (("model__mine", tag), 7, "files[0].tests[0].tags[0]", "expected a model or a mark")
            for tag in ("model__", '"model__ , "', '"   "', '"one,\\ntwo"', '"model__a\\tb"', "pytest.mark.skipif")
        ),
    ],
)  # fmt: skip
def test_fault_has_line_and_path_in_file(wrong: tuple[str, str], line: int, path: str, said: str) -> None:
    text = suite(call("torch.neg", TENSOR))
    assert text.count(wrong[0])
    problem = problem_of(text.replace(wrong[0], wrong[1], 1))
    path = path.replace("{CALL}", "files[0].tests[0].edits.ops.include[0]")
    assert (problem.line, problem.path) == (line, f"$.test_suite_config.{path}")
    assert said in f"{problem.message} {problem.hint}"


def test_keyword_argument_in_both_levels_is_refused() -> None:
    both = call("torch.sum", TENSOR, kwargs="{dim: 0}", more="kwargs: {keepdim: true}")
    assert only(both).attributes["call"] == "torch.sum(input0, keepdim=True, dim=0)"
    (problem,) = problems_of(suite(both.replace("keepdim: true", "dim: 1")))
    assert problem.path.endswith("include[0].sample_inputs_func.kwargs.dim")


def test_repeated_calls_have_distinct_names() -> None:
    twice = call("torch.neg", TENSOR, more="tags: [torch.neg.1]")
    names = [each.name for each in cases_of(suite(twice, twice, call("torch.neg", TENSOR)))]
    assert len(set(names)) == 3
    assert names[0] == "mine::torch.neg.1"


def test_included_file_takes_another_name(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(suite(call("torch.neg", TENSOR)))
    document = parse_plan(b"include: [{file: m.yaml, model: renamed}]\n", str(tmp_path / "all.yaml"))
    assert [each.name for each in cases_of_document(document)] == ["renamed::torch.neg.1"]


def test_traces_of_torch_are_named() -> None:
    for text, what in (('{"schema": "1", "nodes": []}', "ExecutionTrace"), ('{"traceEvents": []}', "Chrome trace")):
        problem = problem_of(text, file="t.json")
        assert (problem.line, what in problem.message) == (1, True)
