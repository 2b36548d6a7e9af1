"""Words of a mapping for plain functions and the objects created before; every problem names its location."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from handmade import case_of
from texts import refusal

from optest.clib.library.binding import bind_case
from optest.clib.library.layouts import Gap
from optest.clib.library.mapping_file import read_mapping
from optest.clib.library.mapping_problems import unknown_names
from optest.errors import UsageError
from optest.operators import operators
from optest.spec import TensorSpec, dtype

FILE = """
version: 1
name: mine
library: [libmine.so]
{file}
operators:
  softmax: &soft
    functions: {{float32: mine_softmax, float64: mine_softmax}}
    dims: {dims}
    {entry}
    call: [{call}]
  log_softmax:
    <<: *soft
    functions: {{float32: mine_log_softmax, float64: mine_log_softmax}}
"""
DIMS = "{input: [n..., k], out: [m..., j]}"
CALL = "input:input, output:out"
MATRIX_DIMS = "{input: [m..., k], out: [m..., k]}"
MATRIX_CALL = "output:out, input:input, size:m, size:k, leading:input"
TENSOR = "tensor: {create: {function: t_new, arguments: [slot]}, destroy: t_end}"
STRUCT = "tensor: {struct: t, fields: {data: data, sizes: 'shape as int64_t[4] reversed'}}"
PLAN = "objects: {plan: {create: {function: p_new, arguments: [size:k]}, destroy: p_end}}"


def mapping(tmp_path: Path, *, file: str = "", entry: str = "", call: str = CALL, dims: str = DIMS) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE.format(file=file, entry=entry, call=call, dims=dims))
    read_mapping.cache_clear()
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"call": "object:plan"}, ":11: operators.softmax.call[0] is 'object:plan', but no object of that name"),
        ({"call": "object:plans", "entry": PLAN}, "did you mean plan? defined: plan"),
        ({"call": "descriptor:input"}, "call has descriptor:input, so the file (or the operator) should define tensor"),
        ({"call": "input:input as struct"}, "expected 'input:input', or 'input:input as tensor'"),
        ({"call": "workspace"}, "so the operator should name the function that returns its size, under workspace"),
        ({"call": "count:dim"}, "counts 'dim', which nothing passes as an array; arrays: none"),
        ({"call": "'size:k[0]'"}, "but only an attribute or a stride takes an index: 'attribute:padding[0] as int'"),
        ({"call": "'attribute:dim as word[]'"}, "or as an array: 'attribute:dim as int64_t[]'"),
        ({"call": "'shape:input as int64_t[] bytes'"}, "expected 'shape:input as int64_t[]' (with a length"),
        ({"call": "self"}, "'self', which is no role here"),
        ({"file": "tensor: {create: {function: f, arguments: [slto]}}"}, ":5: tensor.create.arguments[0] is 'slto',"),
        ({"file": "tensor: {struct: t, fields: {a: dims}}"}, ":5: tensor.fields.a is 'dims', which is no role of a te"),
        ({"file": "tensor: {destroy: f}"}, ":5: tensor should have either `create`, a function, or `st"),
        ({"file": "tensor: {struct: t, create: {function: f}}"}, "either `create`, a function, or `struct`"),
        ({"file": "tensor: {struct: t, field: {}}"}, "tensor: Object contains unknown field `field`; did you mean fie"),
        ({"entry": "objects: {p: {create: {function: f, functions: {float32: g}}}}"}, "should name one `function`, or"),
        ({"entry": "objects: {p: {create: {functions: {float32: g}}}}"}, "functions has no function for float64"),
        ({"entry": "objects: {p: {create: {function: f, arguments: [handel]}}}"}, "did you mean handle?"),
        ({"entry": "objects: {p: {create: {function: f, arguments: [handle]}}}"}, "so the file should define handle"),
        ({"entry": "objects: {p: {create: {function: f}, fields: {a: null}}}"}, "fields needs `struct`"),
        ({"entry": "workspace: {arguments: [slot]}"}, "operators.softmax.workspace.function is missing"),
        ({"entry": "workspace: {function: f, arguments: [slots]}"}, ":10: operators.softmax.workspace.arguments[0] is"),
        ({"entry": "dtypes_of: {input: [int33]}"}, ":10: operators.softmax.dtypes_of[...][0]: 'int33' is no dtype; d"),
        ({"entry": "dtypes_of: {inptu: [int32]}"}, "dtypes_of has 'inptu', but dims have input, out"),
        ({"call": "dtype:input"}, "passes dtypes, so dtypes in the file should name C's constant for float32"),
        ({"entry": "refuses: ['null']"}, "refuses needs status, the type that the functions return"),
        ({"entry": "refuses: [nul]", "file": "status: int"}, "refuses[0]: 'nul' is no kind of wrong call; did you"),
        ({"file": "status: {type: int, succes: [1]}"}, ":5: status: Object contains unknown field `succes`; did you m"),
        ({"file": "status: {message: {function: f, arguments: [code]}}"}, ":5: status.message.arguments[0] is 'code',"),
        ({"file": "status: {message: {}}"}, ":5: status.message.function is missing"),
        ({"file": "setup: [{function: f, arguments: [slot]}]"}, ":5: setup[0].arguments[0] is 'slot', which is no rol"),
        ({"file": TENSOR, "call": "input:input as tensor"}, "but tensor has no data; write descriptor:input, input:in"),
        ({"file": STRUCT, "call": "descriptor:input"}, "but tensor has data; write 'input:input as tensor', or output"),
        ({"file": "handle: {destroy: f}"}, ":5: handle.create.function is missing"),
        ({"file": "tensor: {struct: t, fields: {a: rows}}", "call": "input:input as tensor", "dims": "{input: [n]}"}, (
            "call has input as tensor, but input should have two dimensions in dims")),
        ({"entry": "choice: {dim: {0: 1}}"}, "did you mean choices? known: functions, dims"),
        ({"entry": "choices: {dim: {0: 1}}"}, "choices names 'dim', which call does not pass; it passes none"),
        ({"entry": "left_out: {dim: 1}"}, "left_out names 'dim', which call does not pass"),
        ({"entry": "same_layout: [input, output]"}, "same_layout has 'output', but dims have input, out"),
        ({"call": f"handle, {CALL}"}, "operators.softmax.call has handle, so the file should define handle"),
        ({"call": "handles"}, "which is no role here; did you mean handle?"),
        ({"call": "handle:input"}, "'handle:input', expected one of"),
        ({"call": "shape:input"}, "expected 'shape:input as int64_t[]'"),
        ({"call": "'strides:input as float[]'"}, "expected 'strides:input as int64_t[]'"),
        ({"call": "leading:input as bits"}, "or 'leading:input as bytes'"),
        ({"file": "handle: {create: {function: f, arguments: [slot, 1]}, destroy: g}"}, (
            "mine.yaml:5: handle.create.arguments[1] is '1', which is no role here; known: ")),
        ({"file": "handle: {create: {function: f, arguments: [slot, 'constant:1 as long']}, destroy: g}"}, (
            "handle.create.arguments[1] is 'constant:1 as long', expected 'constant:1 as scalar|float|double|int")),
        ({"dims": "{input: [2x], out: [m...]}"}, "'2x' should be a name such as m, n... for any number of dimensions,"),
    ],
)  # fmt: skip
def test_problems_name_their_location(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_mapping(mapping(tmp_path, **changes))
    assert message in str(caught.value)


def test_operator_inherits_keys(tmp_path: Path) -> None:
    read = read_mapping(mapping(tmp_path, entry="least: {k: 1}"))
    assert read.operators["log_softmax"][0].least == {"k": 1}
    assert read.operators["log_softmax"][0].functions["float32"] == "mine_log_softmax"


def test_tensor_objects_are_created_first(tmp_path: Path) -> None:
    call = "object:plan, descriptor:out, output:out, descriptor:input, input:input"
    (entry,) = read_mapping(mapping(tmp_path, file=TENSOR, entry=PLAN, call=call)).operators["softmax"]
    assert [each.name for each in entry.read.c_objects] == ["tensor out", "tensor input", "plan"]


def test_tensor_struct_holds_case_memory(tmp_path: Path) -> None:
    path = mapping(tmp_path, file=STRUCT, call="input:input as tensor, output:out as tensor")
    (entry,) = read_mapping(path).operators["softmax"]
    assert {role.key for role in entry.read.roles} == {"input:input", "output:out"}


def bound(path: Path, specs: dict[str, TensorSpec], **attributes: object) -> dict[str, object]:
    case = case_of(
        operators.get("softmax"), specs["input:input"], outputs=(specs["output:out"],), attributes=dict(attributes)
    )
    return {argument.text: value for argument, value in bind_case(case, read_mapping(path)).values.items()}


def spec(*shape: int, strides: tuple[int, ...] | None = None) -> TensorSpec:
    return TensorSpec(dtype=dtype("float32"), shape=shape, strides=strides)


def test_arrays_are_padded_in_front_and_reversed(tmp_path: Path) -> None:
    call = (
        "'shape:input as int64_t[4]', 'strides:input as int64_t[4] bytes', 'shape:input as int[4] reversed', "
        "'strides:input as size_t[4] reversed bytes', elements:input as bytes, dtype:input, input:input, output:out"
    )
    path = mapping(tmp_path, call=call, file="dtypes: {float32: T_F32, float64: T_F64}")
    values = bound(path, {"input:input": spec(3, 5, strides=(7, 1)), "output:out": spec(3, 5)})
    assert values == {
        "shape:input as int64_t[4]": (1, 1, 3, 5),
        "strides:input as int64_t[4] bytes": (84, 84, 28, 4),
        "shape:input as int[4] reversed": (5, 3, 1, 1),
        "strides:input as size_t[4] reversed bytes": (4, 28, 84, 84),
        "elements:input as bytes": 60,
        "dtype:input": "T_F32",
    }
    with refusal(Gap, "backends.input_which_has_dimensions"):
        bound(path, {"input:input": spec(2, 2, 2, 2, 2), "output:out": spec(2)})


def test_a_number_in_dims_is_that_size(tmp_path: Path) -> None:
    path = mapping(tmp_path, dims="{input: [n..., 3], out: [1...]}")
    assert bound(path, {"input:input": spec(4, 3), "output:out": spec(1, 1)}) == {}
    with refusal(Gap, "backends.cannot_take_input_which"):
        bound(path, {"input:input": spec(4, 4), "output:out": spec(1)})
    with refusal(Gap, "backends.cannot_take_out_which"):
        bound(path, {"input:input": spec(4, 3), "output:out": spec(2)})


def test_dtypes_of_sets_other_dtypes(tmp_path: Path) -> None:
    path = mapping(tmp_path, entry="dtypes_of: {out: [int32, same]}")
    for name in ("int32", "float32"):
        bound(path, {"input:input": spec(4, 3), "output:out": TensorSpec(dtype=dtype(name), shape=(4, 3))})
    with refusal(Gap, "backends.takes_tensors_of_one"):
        bound(path, {"input:input": spec(4, 3), "output:out": TensorSpec(dtype=dtype("int64"), shape=(4, 3))})


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["gsl", "volk"])
def test_example_mappings_have_no_problems(name: str) -> None:
    read = read_mapping(ROOT / "examples" / name / f"{name}.yaml")
    for operator, alternatives in read.operators.items():
        for entry in alternatives:
            assert unknown_names(entry, operators.get(operator)) == []


def test_documented_mappings_have_no_problems(tmp_path: Path) -> None:
    page = (ROOT / "docs/c-libraries/mapping.md").read_text()
    blocks = re.findall(r"```yaml\n(version: 1\nname: .*?)```", page, re.S)
    assert len(blocks) == 2
    for index, block in enumerate(blocks):
        path = tmp_path / f"{index}.yaml"
        path.write_text(block)
        for operator, alternatives in read_mapping(path).operators.items():
            for entry in alternatives:
                assert unknown_names(entry, operators.get(operator)) == []


@pytest.mark.parametrize("word", ["null", '"null"'])
def test_null_needs_no_quotes(tmp_path: Path, word: str) -> None:
    (entry,) = read_mapping(mapping(tmp_path, call=f"{word}, {CALL}")).operators["softmax"]
    assert entry.read.arguments[0].kind == "null"


def test_none_attribute_stays_none_in_when(tmp_path: Path) -> None:
    (entry,) = read_mapping(mapping(tmp_path, entry="when: {dim: [null, -1]}")).operators["softmax"]
    assert entry.when == {"dim": [None, -1]}


@pytest.mark.parametrize(
    ("dim", "is_last"), [(-1, True), (1, True), ([1], True), (0, False), (-2, False), (True, False)]
)
def test_last_matches_either_index_of_last_dimension(tmp_path: Path, dim: object, is_last: bool) -> None:
    path = mapping(tmp_path, entry="when: {dim: last}", dims=MATRIX_DIMS, call=MATRIX_CALL)
    specs = {"input:input": spec(4, 5), "output:out": spec(4, 5)}
    if is_last:
        assert bound(path, specs, dim=dim)["leading:input"] == 5
        return
    with refusal(Gap, "backends.has_no_dim_of"):
        bound(path, specs, dim=dim)


def test_same_layout_shares_the_passed_increment(tmp_path: Path) -> None:
    padded = {"input:input": spec(4, 5, strides=(7, 1)), "output:out": spec(4, 5, strides=(7, 1))}
    apart = {**padded, "output:out": spec(4, 5)}
    alike = mapping(tmp_path, entry="same_layout: [input, out]", dims=MATRIX_DIMS, call=MATRIX_CALL)
    assert bound(alike, padded)["leading:input"] == 7
    with refusal(Gap, "backends.in_one_layout_but"):
        bound(alike, apart)
    single = {"input:input": spec(1, 5, strides=(7, 1)), "output:out": spec(1, 5)}
    assert bound(alike, single)["size:k"] == 5, "a size of 1 has no step"


def test_distances_in_bytes_and_sizes_as_arrays(tmp_path: Path) -> None:
    arrays = "'shape:input as int64_t[]', 'strides:input as int64_t[]'"
    call = f"output:out, input:input, leading:out as bytes, ndim:input, {arrays}"
    path = mapping(tmp_path, dims=MATRIX_DIMS, call=call)
    given = TensorSpec(dtype=dtype("float32"), shape=(2, 3, 4), strides=(1, -9, 2), offset=18)
    values = bound(path, {"input:input": given, "output:out": spec(2, 3, 4)})
    assert list(values.values()) == [16, 3, (2, 3, 4), (1, -9, 2)]
