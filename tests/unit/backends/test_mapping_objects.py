"""What a mapping may say of things that are made before a plain function is called; anything else names its place."""

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
TENSOR = "tensor: {create: {function: t_new, arguments: [slot]}, destroy: t_end}"
STRUCT = "tensor: {struct: t, fields: {data: data, sizes: 'shape as int64_t[4] reversed'}}"
PLAN = "objects: {plan: {create: {function: p_new, arguments: [size:k]}, destroy: p_end}}"


def mapping(tmp_path: Path, *, file: str = "", entry: str = "", call: str = CALL, dims: str = DIMS) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE.format(file=file, entry=entry, call=call, dims=dims))
    read_mapping.cache_clear()
    return path


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"call": "object:plan"}, ":11: operators.softmax.call[0] is 'object:plan', but there is no such object yet; "),
        ({"call": "object:plans", "entry": PLAN}, "did you mean plan? objects above: plan"),
        ({"call": "descriptor:input"}, "call has descriptor:input, so the file (or the operator) should say how it"),
        ({"call": "input:input as struct"}, "expected 'input:input', or 'input:input as tensor'"),
        ({"call": "workspace"}, "so the operator should say how large it is, under workspace"),
        ({"call": "count:dim"}, "counts 'dim', which nothing passes as an array; arrays: none"),
        ({"call": "'size:k[0]'"}, "but only an attribute has numbers at places: 'attribute:padding[0] as int'"),
        ({"call": "'attribute:dim as word[]'"}, "or as an array: 'attribute:dim as int64_t[]'"),
        ({"call": "'shape:input as int64_t[] bytes'"}, "expected 'shape:input as int64_t[]' (with a length"),
        ({"call": "self"}, "'self', which is no role here"),
        ({"file": "tensor: {create: {function: f, arguments: [slto]}}"}, ":5: tensor.create.arguments[0] is 'slto',"),
        ({"file": "tensor: {struct: t, fields: {a: dims}}"}, ":5: tensor.fields.a is 'dims', which is no role of a te"),
        ({"file": "tensor: {destroy: f}"}, ":5: tensor should say how it is made: either `create`, a function, or `st"),
        ({"file": "tensor: {struct: t, create: {function: f}}"}, "either `create`, a function, or `struct`"),
        ({"file": "tensor: {struct: t, field: {}}"}, "tensor: Object contains unknown field `field`; did you mean fie"),
        ({"entry": "objects: {p: {create: {function: f, functions: {float32: g}}}}"}, "should name one `function`, or"),
        ({"entry": "objects: {p: {create: {functions: {float32: g}}}}"}, "create.functions has none for float64, whic"),
        ({"entry": "objects: {p: {create: {function: f, arguments: [handel]}}}"}, "did you mean handle?"),
        ({"entry": "objects: {p: {create: {function: f, arguments: [handle]}}}"}, "so the file should say how it is m"),
        ({"entry": "objects: {p: {create: {function: f}, fields: {a: null}}}"}, "are those of a struct, but no `struc"),
        ({"entry": "workspace: {arguments: [slot]}"}, "operators.softmax.workspace.function is missing"),
        ({"entry": "workspace: {function: f, arguments: [slots]}"}, ":10: operators.softmax.workspace.arguments[0] is"),
        ({"entry": "dtypes_of: {input: [int33]}"}, ":10: operators.softmax.dtypes_of[...][0]: 'int33' is no dtype; d"),
        ({"entry": "dtypes_of: {inptu: [int32]}"}, "dtypes_of has 'inptu', but dims have input, out"),
        ({"call": "dtype:input"}, "tells C dtypes, so the file should say what float32 is called there, under dtypes"),
        ({"entry": "refuses: ['null']"}, "refuses needs a status: the file should say what functions return, under st"),
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
        ({"dims": "{input: [2x], out: [m...]}"}, "'2x' should be a name such as m, n... for any number of dimensions,"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, stated: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_mapping(mapping(tmp_path, **stated))
    assert said in str(caught.value)


def test_an_operator_takes_over_the_keys_of_another(tmp_path: Path) -> None:
    read = read_mapping(mapping(tmp_path, entry="least: {k: 1}"))
    assert read.operators["log_softmax"][0].least == {"k": 1}
    assert read.operators["log_softmax"][0].functions["float32"] == "mine_log_softmax"


def test_things_are_made_of_tensors_first_then_in_their_order(tmp_path: Path) -> None:
    call = "object:plan, descriptor:out, output:out, descriptor:input, input:input"
    (entry,) = read_mapping(mapping(tmp_path, file=TENSOR, entry=PLAN, call=call)).operators["softmax"]
    assert [each.name for each in entry.read.c_objects] == ["tensor out", "tensor input", "plan"]


def test_a_tensor_as_a_struct_is_memory_of_the_case(tmp_path: Path) -> None:
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


def test_arrays_with_a_length_are_filled_in_front_and_turned_round(tmp_path: Path) -> None:
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


def test_other_dtypes_are_those_that_are_stated(tmp_path: Path) -> None:
    path = mapping(tmp_path, entry="dtypes_of: {out: [int32, same]}")
    for name in ("int32", "float32"):
        bound(path, {"input:input": spec(4, 3), "output:out": TensorSpec(dtype=dtype(name), shape=(4, 3))})
    with refusal(Gap, "backends.takes_tensors_of_one"):
        bound(path, {"input:input": spec(4, 3), "output:out": TensorSpec(dtype=dtype("int64"), shape=(4, 3))})


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["gsl", "volk"])
def test_the_mappings_of_the_examples_are_right(name: str) -> None:
    read = read_mapping(ROOT / "examples" / name / f"{name}.yaml")
    for operator, alternatives in read.operators.items():
        for entry in alternatives:
            assert unknown_names(entry, operators.get(operator)) == []


def test_the_mappings_of_the_documentation_are_right(tmp_path: Path) -> None:
    page = (ROOT / "docs/c-libraries/mapping.md").read_text()
    blocks = re.findall(r"```yaml\n(version: 1\nname: .*?)```", page, re.S)
    assert len(blocks) == 2
    for index, block in enumerate(blocks):
        path = tmp_path / f"{index}.yaml"
        path.write_text(block)
        for operator, alternatives in read_mapping(path).operators.items():
            for entry in alternatives:
                assert unknown_names(entry, operators.get(operator)) == []
