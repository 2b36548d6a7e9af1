"""Files of model cases run on torch: what is right passes, what is wrong is found, in each model's own figures."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
import warm_python
from texts import says
from user_shell import user_environment

from optest.spec import CaseResult, Status
from optest.store import read_journal

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.torch]


def run(folder: Path, file: str, *more: str) -> tuple[dict[str, CaseResult], str]:
    """The results of a plan by case, and what was printed."""
    environment = user_environment(OPTEST_PLUGINS="faulty_torch", OPTEST_ISOLATE="none")
    ended = warm_python.run("optest", "run", "--plan", file, *more, cwd=folder, env=environment)
    text = ended.stdout + ended.stderr
    assert "Traceback" not in text, text
    journals = list((folder / ".optest" / "runs").glob("*/journal.jsonl"))
    assert len(journals) == 1, text
    return {result.id: result for result in read_journal(journals[0]).results}, text


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(textwrap.dedent(text))


def statuses(results: dict[str, CaseResult]) -> dict[str, str]:
    return {name: result.status.value for name, result in results.items()}


TEMPLATE = """
model: template
default: {dtype: fp16, seed: 123, rtol: 1.0e-3, atol: 1.0e-3}
cases:
  - name: add
    op: torch.add
    inputs: [{tensor: {shape: [4, 16, 8], init: randn}}, {tensor: {shape: [4, 16, 8], init: randn}}]
  - name: bools
    op: torch.logical_and
    inputs: [{tensor: {shape: [11, 6], dtype: bool}}, {tensor: {shape: [11, 6], dtype: bool}}]
  - name: different_dtypes
    op: torch.add
    inputs:
      - tensor: {shape: [11, 6], dtype: fp32, init: randn}
      - tensor: {shape: [11, 6], dtype: int64, init: randint, init_args: {high: 100}}
  - name: tensor_and_scalar
    op: torch.mul
    inputs: [{tensor: {shape: [1, 64], init: uniform, init_args: {low: -1.0, high: 1.0}}}, {value: 3.0}]
  - name: whole_numbers_and_scalar
    op: torch.mul
    inputs: [{tensor: {shape: [1, 64], init: randint, init_args: {low: 1, high: 100}}}, {value: 3}]
  - name: aten_view
    op: torch.ops.aten.view
    inputs: [{tensor: {shape: [1, 64]}}, {value: [2, 32]}]
  - name: softmax
    op: torch.nn.functional.softmax
    attrs: {dim: -1}
    inputs: [{tensor: {shape: [2, 4, 8], init: arange}}]
  - name: cat
    op: torch.cat
    attrs: {dim: -1}
    inputs: [{tensor_list: [{shape: [2, 3, 4], init: randn}, {shape: [2, 3, 5], init: randn}]}]
  - name: view_should_error_on_noncontig
    op: torch.view
    expects_error: {type: RuntimeError, match: view}
    inputs:
      - tensor: &sliced {shape: [2, 3, 8], preset: noncontig_slice, preset_args: {dim: 1, step: 2}}
      - value: [2, 24]
  - name: view_should_error_on_noncontig_167
    op: torch.view
    expects_error: {type: RuntimeError, match: view}
    inputs: [{tensor: *sliced}, {value: 32}, {value: -1}, {value: 2880}]
  - name: contiguous_from_transpose_view
    op: torch.contiguous
    inputs: [{tensor: {shape: [2, 3, 8], preset: transpose_view, preset_args: {dim0: 1, dim1: 2}}}]
  - name: skipped_elsewhere
    op: torch.rsqrt
    skip_if: [{expr: cfg.test_device.type == 'spyre' and dtype_str == 'fp16', reason: no such kernel yet}]
    inputs: [{tensor: {shape: [64, 16], init: rand}}]
  - name: getitem
    op: torch.getitem
    inputs: [{tensor: {shape: [32, 6], init: rand}}, {py: "(Ellipsis, None, slice(None, None, None))"}]
"""


def test_the_template_of_the_rfc(tmp_path: Path) -> None:
    """The view of 167 is refused for another reason than the one that the file asks for."""
    write(tmp_path, template=TEMPLATE)
    results, text = run(tmp_path, "template.yaml", "--backend", "torch")
    found = statuses(results)
    wrong = "template::view_should_error_on_noncontig_167"
    assert {name for name, status in found.items() if status != "passed"} == {wrong}
    assert len(found) == 13
    verdict = results[wrong].verdict
    assert verdict.reason is not None
    assert verdict.reason.name == "WRONG_ERROR"
    assert says(verdict.message, "integration.shape_is_invalid_for")
    assert says(verdict.message, "integration.the_case_expects_the")
    assert verdict.message in text
    assert says(text, "integration.it_is_the_case")
    assert "template.yaml:" in text


MODEL = """
model: first
default: {dtype: fp16, seed: 1, rtol: 1.0e-2, atol: 1.0e-2}
cases:
  - name: add_
    op: torch.add_
    inputs: [{tensor: {shape: [4, 8], init: randn}}, {tensor: {shape: [4, 8], init: randn}}]
  - name: setitem
    op: torch.setitem
    inputs: [{tensor: {shape: [6, 4], init: randn}}, {py: "(slice(None, None, 2), 1)"}, {value: 5}]
  - name: masked_fill_
    op: torch.masked_fill_
    inputs: [{tensor: {shape: [8, 8], init: randn}}, {tensor: {shape: [8, 8], dtype: bool}}, {value: -3.0e4}]
  - name: masked_select
    op: torch.masked_select
    inputs: [{tensor: {shape: [8, 8], init: randn}}, {tensor: {shape: [8, 8], dtype: bool}}]
  - name: embedding
    op: torch.nn.functional.embedding
    inputs:
      - tensor: {shape: [3, 5], dtype: int64, init: randint, init_args: {low: 0, high: 10}}
      - tensor: {shape: [10, 4], dtype: bf16, init: randn}
  - name: attention
    op: torch.nn.functional.scaled_dot_product_attention
    inputs:
      - tensor: {shape: [1, 2, 5, 8], init: randn}
      - tensor: {shape: [1, 2, 5, 8], init: randn}
      - tensor: {shape: [1, 2, 5, 8], init: randn, stride: [80, 8, 16, 1]}
    kwmap: {attn_mask: 'None', dropout_p: 0.0, is_causal: true}
  - name: to
    op: torch.to
    inputs: [{tensor: {shape: [2, 3], init: randn}}, {value: torch.float32}]
    kwmap: {copy: true, memory_format: 'None'}
  - name: max
    op: torch.max
    inputs: [{tensor: {shape: [4, 9], init: randn}}]
    kwmap: {dim: -1}
  - name: matmul
    op: torch.matmul
    inputs: [{tensor: {shape: [4, 300], dtype: bf16}}, {tensor: {shape: [300, 3], dtype: bf16, stride: [1, 300]}}]
  - name: expanded
    op: torch.sum
    inputs: [{tensor: {shape: [5, 4], stride: [0, 1], storage_offset: 7, init: randn}}, {value: '(0,)'}]
  - name: size
    op: torch.Tensor.size
    inputs: [{tensor: {shape: [5, 4]}}, {value: 1}]
  - name: unsqueezed
    op: torch.unsqueeze
    inputs: [{tensor: {shape: [5, 4]}}, {value: 1}]
    skip_if: device == 'cpu'
  - name: einsum
    op: torch.einsum
    inputs: [{value: 'ij,jk->ik'}, {tensor: {shape: [4, 8]}}, {tensor: {shape: [8, 3], init: eye}}]
"""
NATIVE = """
backend: torch
include: [first.yaml, second.yaml]
cases:
  - op: torch.add
    name: native
    dtypes: float32
    shapes: {input0: 3x4, input1: 4}
    attributes: {call: "torch.add(input0, input1, alpha=2)"}
  - op: torch.nn.functional.softmax
    name: native softmax
    dtypes: float32
    shapes: {input0: {shape: [3, 4], strides: [1, 3]}}
    attributes: {call: "torch.nn.functional.softmax(input0, -1)"}
"""


def test_two_models_and_native_cases_in_one_plan(tmp_path: Path) -> None:
    write(tmp_path, plan=NATIVE, first=MODEL, second=MODEL.replace("model: first", "model: second"))
    results, text = run(tmp_path, "plan.yaml")
    found = statuses(results)
    left_out = {"first::unsqueezed", "second::unsqueezed"}
    assert {name for name, status in found.items() if status != "passed"} == left_out, text
    assert {found[name] for name in left_out} == {"skipped"}
    assert len(found) == 28
    for name, result in results.items():
        shared = result.duplicate_of
        if name.startswith("second::") and name not in left_out:
            assert shared == name.replace("second", "first"), name
        else:
            assert shared is None, name
    compared = {name: [measure.compared for measure in result.verdict.measures] for name, result in results.items()}
    assert compared["first::add_"] == [32, 32]  # what it returns, and what it changed
    assert compared["first::setitem"] == [24]
    assert compared["first::max"] == [4, 4]
    assert compared["first::size"] == [1]
    assert 10 < compared["first::masked_select"][0] < 54  # both values were drawn
    assert compared["second::max"] == [4, 4]


FAULTY = """
model: {model}
default: {{dtype: fp32, seed: 1, rtol: 1.0e-3, atol: {atol}}}
cases:
  - {{name: value, op: torch.add, marks: fault_value, inputs: [&a {{tensor: {{shape: [4, 8], init: randn}}}}, *a]}}
  - {{name: zeros, op: torch.mul, marks: fault_zeros, inputs: [*a, {{value: 2}}]}}
  - {{name: dtype, op: torch.softmax, marks: fault_dtype, inputs: [*a, {{value: -1}}]}}
  - {{name: shape, op: torch.relu, marks: fault_shape, inputs: [*a]}}
  - {{name: order, op: torch.split, marks: fault_order, inputs: [*a, {{value: 2}}]}}
  - {{name: missing, op: torch.chunk, marks: fault_missing, inputs: [*a, {{value: 2}}]}}
  - {{name: returned, op: torch.neg_, marks: fault_returned, inputs: [*a]}}
  - {{name: unchanged, op: torch.exp_, marks: fault_unchanged, inputs: [*a]}}
  - {{name: layout, op: torch.contiguous, marks: fault_layout,
     inputs: [{{tensor: {{shape: [4, 8], init: randn, stride: [1, 4]}}}}]}}
  - {{name: bool, op: torch.logical_or, marks: fault_value,
     inputs: [&b {{tensor: {{shape: [4, 8], dtype: bool}}}}, *b]}}
  - {{name: integer, op: torch.argmax, marks: fault_integer, inputs: [*a], kwmap: {{dim: 1}}}}
  - {{name: size, op: torch.Tensor.size, marks: fault_integer, inputs: [*a, {{value: 0}}]}}
  - {{name: matmul, op: torch.matmul, marks: fault_value,
     inputs: [{{tensor: {{shape: [4, 32], init: randn}}}}, {{tensor: {{shape: [32, 4], init: randn}}}}]}}
  - {{name: accepted, op: torch.view, marks: fault_accepts, expects_error: {{type: RuntimeError, match: invalid}},
     inputs: [*a, {{value: 5}}]}}
  - {{name: honest, op: torch.sub, inputs: [*a, {{value: 2}}]}}
"""
REASONS = {
    "value": "VALUE",
    "zeros": "VALUE",
    "dtype": "DTYPE",
    "shape": "SHAPE",
    "order": "VALUE",
    "missing": "MISSING_OUTPUT",
    "returned": "VALUE",
    "unchanged": "VALUE",
    "layout": "VALUE",
    "bool": "VALUE",
    "integer": "VALUE",
    "size": "VALUE",
    "matmul": "VALUE",
    "accepted": "NOT_REFUSED",
    "honest": "passed",
}


def test_model_table_shows_failures_of_wrong_backend(tmp_path: Path) -> None:
    """The second model allows what one fault does: its copy of that case passes, though the execution is shared."""
    write(
        tmp_path,
        plan="backend: faulty_torch\ninclude: [one.yaml, other.yaml]\n",
        one=FAULTY.format(model="one", atol="1.0e-3"),
        other=FAULTY.format(model="other", atol="0.1"),
    )
    results, text = run(tmp_path, "plan.yaml")
    found = {
        name: result.reason.name if result.reason is not None else result.status.value
        for name, result in results.items()
    }
    assert found == {
        **{f"one::{name}": reason for name, reason in REASONS.items()},
        **{f"other::{name}": reason for name, reason in {**REASONS, "value": "passed"}.items()},
    }, text
    assert {result.duplicate_of for name, result in results.items() if name.startswith("one")} == {None}
    assert all(results[f"other::{name}"].duplicate_of == f"one::{name}" for name in REASONS)
    assert "skipped" not in text


GRADIENTS = """
model: trained
default: {dtype: fp32, seed: 1, rtol: 1.0e-3, atol: 1.0e-3, grad: true}
cases:
  - {name: mul, op: torch.mul, inputs: [&a {tensor: {shape: [4, 8], init: randn}}, {tensor: {shape: [8]}}]}
  - {name: wrong, seed: 2, op: torch.mul, marks: fault_value, inputs: [*a, {tensor: {shape: [8]}}]}
  - {name: in_place, op: torch.add_, inputs: [*a, *a]}
  - {name: index, op: torch.getitem, inputs: [*a, {py: "([0, 0, 3],)"}]}
  - {name: index_wrong, seed: 2, op: torch.getitem, marks: fault_integer, inputs: [*a, {py: "([0, 0, 3],)"}]}
  - {name: linear, op: torch.nn.functional.linear, inputs: [*a, {tensor: {shape: [5, 8]}}]}
  - {name: none, op: torch.argmax, inputs: [*a]}
  - {name: refused, op: torch.view, expects_error: {type: RuntimeError, match: invalid}, inputs: [*a, {value: 5}]}
  - {name: forward, op: torch.mul, grad: false, inputs: [*a, {value: 2}]}
"""
OF_GRADIENTS = {
    "mul": "passed",
    "wrong": "VALUE",
    "in_place": "passed",
    "index": "passed",
    "index_wrong": "VALUE",
    "linear": "passed",
    "none": "passed",
    "refused": "passed",
}


@pytest.mark.parametrize("compiler", [[], pytest.param(["--compile-backend", "aot_eager"], marks=pytest.mark.heavy)])
@pytest.mark.heavy
def test_gradients_by_file_or_command_line(tmp_path: Path, compiler: list[str]) -> None:
    stated, asked = tmp_path / "stated", tmp_path / "asked"
    for folder, text in ((stated, GRADIENTS), (asked, GRADIENTS.replace(", grad: true", ""))):
        folder.mkdir()
        write(folder, plan="backend: faulty_torch\ninclude: [trained.yaml]\n", trained=text)
    by_file, text = run(stated, "plan.yaml", *compiler)
    by_flag, _ = run(asked, "plan.yaml", "--backward", *compiler)
    for results in (by_file, by_flag):
        found = {
            name.removeprefix("trained::"): each.reason.name if each.reason is not None else each.status.value
            for name, each in results.items()
        }
        assert found == {**OF_GRADIENTS, "forward": "passed"}, text
    outputs = {name: [each.output for each in result.verdict.measures] for name, result in by_file.items()}
    assert outputs["trained::mul"] == ["output0", "grad.exists", "grad.input0", "grad.input1"]
    assert outputs["trained::forward"] == ["output0"]
    assert [each.output for each in by_flag["trained::forward"].verdict.measures][-1] == "grad.input0"
    assert says(text, "integration.grad_input_of_elements")
    assert by_file["trained::mul"].key == by_flag["trained::mul"].key
    again = next(word for word in by_flag["trained::wrong"].repro.split() if word.endswith(".yaml"))
    assert '"grad": true' in (asked / again).read_text()


@pytest.mark.heavy
def test_inductor_leaves_no_files_and_is_timed(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    write(tmp_path, small="model: small\ncases: [{name: a, op: torch.sin, inputs: [{tensor: {shape: [4, 8]}}]}]\n")
    asked = ["small.yaml", "--compile-backend", "inductor", "--report", "json", "--durations", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        results, text = run(tmp_path, *asked)
    (result,) = results.values()
    assert result.status is Status.PASSED, text
    assert list(temporary.iterdir()) == []
    (compiled,) = (tmp_path / ".optest" / "runs").glob("*/compiled")
    assert any(compiled.rglob("*.so"))
    assert result.timings.compile_s is not None
    assert result.timings.run_s is not None
    assert result.timings.compile_s > result.timings.run_s
    assert "(compiler " in text
    (report,) = (tmp_path / ".optest" / "runs").glob("*/*report*.json")
    assert json.loads(report.read_text())["cases"][0]["timings"]["compile_s"] == result.timings.compile_s


def test_missing_device_feature_is_noted(tmp_path: Path) -> None:
    tensor = "{tensor: {shape: [2, 3], device: 'spyre:0', device_layout: {stride_map: [3, 1]}}}"
    write(tmp_path, captured=f"model: m\ncases:\n  - {{name: a, op: torch.neg, inputs: [{tensor}]}}\n")
    write(tmp_path, both="include: [captured.yaml]\n")
    results, text = run(tmp_path, "both.yaml")
    assert statuses(results) == {"m::a": "passed"}
    assert says(text, "integration.note_captured_yaml_device")
