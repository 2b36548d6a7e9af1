"""Arguments of a captured call: what text spells, what it does not, and how the call reads."""

from __future__ import annotations

import pytest
from model_kit import TENSOR, call_of, file_of, problem_of, problems_of, said
from texts import says, says_exactly


@pytest.mark.parametrize(
    ("written", "text"),
    [
        *((each, each) for each in ("1", "'1'", "1.0", "'none'", "''", "[2, 32]", "['1', 1]", "'(ij)'")),
        *((each, each) for each in ("'(input0,)'", "'(9**9**9)'", "'bij,bjk->bik'", "torch.float16")),
        *((each, each) for each in ("torch.contiguous_format", "'torch.nn.Linear'", "-3.3895313892515355e+38")),
        ("12345678901234567890", "12345678901234567890"),
        *((f"'{each}'", each) for each in ("True", "None", "(2, 32)", "(2,)", "[2, 32]", "(1, 12, -1, 128)")),
        *((f"'{each}'", each) for each in ("inf", "-inf", "nan")),
        *((each, repr(each)) for each in ("mean", "float16", "cpus")),
        ("true", "True"),
        ("null", "None"),
        ("cuda:0", "device('cuda:0')"),
        ("cpu", "device('cpu')"),
        ("[torch.int64, cpu]", "[torch.int64, device('cpu')]"),
        (".inf", "inf"),
        ("-.inf", "-inf"),
        (".nan", "nan"),
    ],
)
def test_what_a_value_is(written: str, text: str) -> None:
    assert call_of(f"op: torch.f, inputs: [{{value: {written}}}]") == f"torch.f({text})"
    assert call_of(f"op: torch.f, kwmap: {{k: {written}}}") == f"torch.f(k={text})"
    assert call_of(f"op: torch.f, attrs: {{k: {written}}}") == f"torch.f(k={text})"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        *((f"'{each}'", each) for each in ("...", "1", "[1, (2, 3)]", "-inf")),
        ("'(Ellipsis, None, slice(None, None, None))'", "(..., None, slice(None, None, None))"),
        ("' (1, ) '", "(1,)"),
        ("'\"1\"'", "'1'"),
        ("'float(\"nan\")'", "nan"),
        ("'slice(3)'", "slice(None, 3, None)"),
        ("torch.bfloat16", "torch.bfloat16"),
        ("1+2j", "complex(1.0, 2.0)"),
        ("'torch.device(\"cuda\")'", "device('cuda')"),
    ],
)
def test_what_py_is(written: str, text: str) -> None:
    assert call_of(f"op: torch.f, inputs: [{{py: {written}}}]") == f"torch.f({text})"


@pytest.mark.parametrize(
    ("keyword", "text"),
    [
        ("dtype: fp16", "dtype=torch.float16"),
        ("dtype: float16", "dtype=torch.float16"),
        ("out_dtype: bf16", "out_dtype=torch.bfloat16"),
        ("dtype: torch.complex32", "dtype=torch.complex32"),
        ("dtype: null", "dtype=None"),
        ("dtype: 'None'", "dtype=None"),
        ("name: fp16", "name='fp16'"),
    ],
)
def test_keyword_dtype_accepts_all_dtype_words(keyword: str, text: str) -> None:
    for owner in ("attrs", "kwmap"):
        assert call_of(f"op: torch.f, {owner}: {{{keyword}}}") == f"torch.f({text})"


def test_unknown_dtype_word_names_its_path() -> None:
    problem = problem_of(file_of("- {name: a, op: torch.f, kwmap: {dtype: fp17}}"))
    assert problem.path == "$.cases[0].kwmap.dtype"
    assert problem.message == "unknown dtype 'fp17'"
    assert "float16" in problem.hint


@pytest.mark.parametrize("entry", ["{py: (slice(None), 2)}", "{value: (2, 3)}"])
def test_a_comma_that_begins_another_key_is_said(entry: str) -> None:
    assert "quote a value with commas" in problem_of(file_of(f"- {{name: a, op: torch.f, inputs: [{entry}]}}")).hint


@pytest.mark.parametrize("entry", ["inputs: [{value: {a: 1}}]", "kwmap: {k: {a: 1}}", "attrs: {k: {a: 1}}"])
def test_a_mapping_is_no_argument_wherever_it_stands(entry: str) -> None:
    assert says(problem_of(file_of(f"- {{name: a, op: torch.f, {entry}}}")).hint, "plan.no_call_of_torch")


def test_tensors_are_numbered_in_call_order() -> None:
    inputs = f"[{TENSOR}, {{tensor_list: [{{shape: [2]}}, {{shape: [3]}}]}}, {{value: 2}}, {TENSOR}]"
    call = call_of(f"op: torch.f, inputs: {inputs}, attrs: {{dim: -1}}, kwmap: {{out: null}}")
    assert call == "torch.f(input0, [input1, input2], 2, input3, dim=-1, out=None)"


def test_inputs_in_tuples_lists_and_keywords() -> None:
    inputs = f"[{TENSOR}, {{tuple: [{{py: slice(None)}}, {TENSOR}, {{list: [{{py: None}}, {TENSOR}]}}]}}]"
    call = call_of(f"op: torch.f, inputs: {inputs}, kwmap: {{mask: {TENSOR}, sizes: {{py: '(1, 2)'}}, dim: 1}}")
    assert says_exactly(call, "plan.torch_input_slice_none")


def test_a_call_without_tensors_and_one_without_anything() -> None:
    assert call_of("op: torch.arange, inputs: [{value: 3}]") == "torch.arange(3)"
    assert call_of("op: torch.is_grad_enabled") == "torch.is_grad_enabled()"
    assert call_of("op: torch.cat, inputs: [{tensor_list: []}]") == "torch.cat([])"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("9**9**9", "9 ** 9 ** 9 is computed"),
        ("'a' * 1000000000", "is computed"),
        ("'lambda x: 1'", "lambda x: 1 is a function"),
        ("().__class__.__bases__", "() is no name"),
        ("torch.__builtins__", "is an attribute"),
        ("__import__('os').system('true')", "is a call"),
        ("open('/etc/passwd')", "is a call"),
        ("'[x for x in (1, 2)]'", "is a comprehension"),
        ("'f\"{1}\"'", "is an f-string"),
        ("'(x := 1)'", "is an assignment"),
        ("'(*a, 1)'", "*a is a starred value"),
        ("'{1: 2}'", "is a dict"),
        ("''", "no Python value"),
        ("'1 +'", "no Python value"),
        ("nope", "nope is a name"),
        ("input0", "'input0' names a tensor; write tensors under the key tensor"),
        ("'(1, [input0])'", "names a tensor"),
        ("slice(input0)", "names a tensor"),
        (f"'{'-' * 3000}1'", "nested too deeply"),
        (f"'0x{'f' * 200}'", "has 800 bits"),
    ],
)
def test_py_is_parsed_and_never_evaluated(written: str, message: str) -> None:
    text = file_of(f"- {{name: a, op: torch.f, inputs: [{TENSOR}, {{py: {quoted(written)}}}]}}")
    found = said(text)
    assert found.startswith("m.yaml:3 $.cases[0].inputs[1].py: py is not a literal: ")
    assert message in found
    assert found.endswith("\n    py: (Ellipsis, None, slice(None, 2))")


def quoted(written: str) -> str:
    """What is no plain word in YAML quote a value with commas."""
    return written if written.startswith("'") and written.endswith("'") else '"' + written.replace('"', '\\"') + '"'


@pytest.mark.parametrize(
    ("entry", "place", "message"),
    [
        ("inputs: [{value: {a: 1}}]", "inputs[0].value", "the value is {a: 1}, expected a scalar, a list or text"),
        ("inputs: [{value: [1, {a: 1}]}]", "inputs[0].value", "the value is {a: 1}"),
        ("kwmap: {dim: {a: 1}}", "kwmap.dim", "the value is {a: 1}"),
        ("attrs: {dim: 1}, kwmap: {dim: 1}", "kwmap.dim", "dim is both in attrs and in kwmap"),
        ("kwmap: {9x: 1}", "kwmap['9x']", "'9x' cannot be the name of a keyword argument"),
        ("attrs: {a-b: 1}", "attrs.a-b", "'a-b' cannot be the name of a keyword argument"),
        ("attrs: {lambda: 1}", "attrs.lambda", "'lambda' cannot be the name"),
        ("attrs: {'x=1, y': 1}", "attrs['x=1, y']", "cannot be the name of a keyword argument"),
        ("attrs: {dïm: 1}", "attrs.dïm", "cannot be the name of a keyword argument"),
        ("attrs: [1]", "attrs", "attrs is [1], expected a mapping"),
        ("kwmap: dim", "kwmap", "kwmap is 'dim', expected a mapping"),
        ("inputs: {value: 1}", "inputs", "inputs is {value: 1}, expected a list"),
        ("inputs: [3]", "inputs[0]", "item 0 is 3, expected a mapping"),
        ("inputs: [{py: 3}]", "inputs[0].py", "py is 3, expected text"),
        ("inputs: [{tensor: 3}]", "inputs[0].tensor", "tensor is 3, expected a mapping"),
        ("inputs: [{tensor_list: {shape: [2]}}]", "inputs[0].tensor_list", "expected a list"),
        ("inputs: [{file: 3}]", "inputs[0].file", "file is 3, expected text"),
        ("inputs: [{}]", "inputs[0]", "the input has no key, expected exactly one of tensor, tensor_list"),
        ("inputs: [{py: '1', value: 1}]", "inputs[0]", "the input has py and value, expected exactly one"),
        (f"inputs: [{{value: [{', '.join(['123456789'] * 9_500)}]}}]", "inputs", "the call has 104,"),
        ("inputs: [{tuple: [{tensor: {shape: [2], shp: 2}}]}]", "inputs[0].tuple[0].tensor.shp", "unknown key 'shp'"),
        ("inputs: [{tuple: [{tensr: {shape: [2]}}]}]", "inputs[0].tuple[0].tensr", "unknown key 'tensr' of an input"),
        ("inputs: [{list: [{py: 'f()'}]}]", "inputs[0].list[0].py", "py is not a literal"),
        ("kwmap: {mask: {tensor: {shape: [2], init: rnd}}}", "kwmap.mask.tensor.init", "init is 'rnd'"),
        ("kwmap: {mask: {tensor: {shape: [2], shp: [2]}}}", "kwmap.mask.tensor.shp", "unknown key 'shp' of a tensor"),
    ],
)  # fmt: skip
def test_invalid_argument_names_path_and_remedy(entry: str, place: str, message: str) -> None:
    found = said(file_of(f"- {{name: a, op: torch.f, {entry}}}"))
    assert found.startswith(f"m.yaml:3 $.cases[0].{place}: ")
    assert message in found


def test_every_wrong_input_of_a_case_is_told() -> None:
    inputs = "[{py: foo()}, {value: {a: 1}}, {tensor_list: [{shape: [2], init: x}, {shape: [2], dtype: y}]}]"
    found = problems_of(file_of(f"- name: a\n  op: torch.f\n  inputs:\n    {inputs}"))
    paths = ("[0].py", "[1].value", "[2].tensor_list[0].init", "[2].tensor_list[1].dtype")
    assert [(each.line, each.path) for each in found] == [(6, f"$.cases[0].inputs{path}") for path in paths]
