"""Words of a mapping for plain functions and the objects created before; every problem names its location."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from handmade import ADD, case_of
from texts import refusal

from optest.clib.library.binding import bind_case
from optest.clib.library.layouts import Gap
from optest.clib.library.mapping_file import read_mapping
from optest.clib.library.mapping_problems import unknown_names
from optest.errors import UsageError
from optest.operators import operators
from optest.spec import TensorSpec, TestCase, dtype

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


def file_of(folder: Path, text: str) -> Path:
    file = folder / "mine.yaml"
    file.write_text(text)
    read_mapping.cache_clear()
    return file


def mapping(tmp_path: Path, *, file: str = "", entry: str = "", call: str = CALL, dims: str = DIMS) -> Path:
    return file_of(tmp_path, FILE.format(file=file, entry=entry, call=call, dims=dims))


def softmax_entry(tmp_path: Path, **changes: str) -> Any:
    (entry,) = read_mapping(mapping(tmp_path, **changes)).operators["softmax"]
    return entry


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
    (entry,) = read_mapping(mapping(tmp_path, entry="least: {k: 1}")).operators["log_softmax"]
    assert (entry.least, entry.functions["float32"]) == ({"k": 1}, "mine_log_softmax")


def test_tensor_objects_and_structs(tmp_path: Path) -> None:
    call = "object:plan, descriptor:out, output:out, descriptor:input, input:input"
    entry = softmax_entry(tmp_path, file=TENSOR, entry=PLAN, call=call)
    assert [each.name for each in entry.read.c_objects] == ["tensor out", "tensor input", "plan"]
    entry = softmax_entry(tmp_path, file=STRUCT, call="input:input as tensor, output:out as tensor")
    assert {role.key for role in entry.read.roles} == {"input:input", "output:out"}


def bound(path: Path, given: TensorSpec, out: TensorSpec, **attributes: object) -> dict[str, object]:
    case = case_of(operators.get("softmax"), given, outputs=(out,), attributes=dict(attributes))
    return {argument.text: value for argument, value in bind_case(case, read_mapping(path)).values.items()}


def spec(*shape: int, strides: tuple[int, ...] | None = None, kind: str = "float32") -> TensorSpec:
    return TensorSpec(dtype=dtype(kind), shape=shape, strides=strides)


def test_arrays_are_padded_in_front_and_reversed(tmp_path: Path) -> None:
    call = (
        "'shape:input as int64_t[4]', 'strides:input as int64_t[4] bytes', 'shape:input as int[4] reversed', "
        "'strides:input as size_t[4] reversed bytes', elements:input as bytes, dtype:input, input:input, output:out"
    )
    path = mapping(tmp_path, call=call, file="dtypes: {float32: T_F32, float64: T_F64}")
    values = bound(path, spec(3, 5, strides=(7, 1)), spec(3, 5))
    assert values == {
        "shape:input as int64_t[4]": (1, 1, 3, 5),
        "strides:input as int64_t[4] bytes": (84, 84, 28, 4),
        "shape:input as int[4] reversed": (5, 3, 1, 1),
        "strides:input as size_t[4] reversed bytes": (4, 28, 84, 84),
        "elements:input as bytes": 60,
        "dtype:input": "T_F32",
    }
    with refusal(Gap, "backends.input_which_has_dimensions"):
        bound(path, spec(2, 2, 2, 2, 2), spec(2))


def test_dims_and_dtypes_limit_the_tensors(tmp_path: Path) -> None:
    path = mapping(tmp_path, dims="{input: [n..., 3], out: [1...]}")
    assert bound(path, spec(4, 3), spec(1, 1)) == {}
    with refusal(Gap, "backends.cannot_take_input_which"):
        bound(path, spec(4, 4), spec(1))
    with refusal(Gap, "backends.cannot_take_out_which"):
        bound(path, spec(4, 3), spec(2))
    path = mapping(tmp_path, entry="dtypes_of: {out: [int32, same]}")
    for name in ("int32", "float32"):
        bound(path, spec(4, 3), spec(4, 3, kind=name))
    with refusal(Gap, "backends.takes_tensors_of_one"):
        bound(path, spec(4, 3), spec(4, 3, kind="int64"))


ROOT = Path(__file__).parents[3]


def unknown_names_in(path: Path) -> list[str]:
    entries = [(operator, entry) for operator, all_of in read_mapping(path).operators.items() for entry in all_of]
    assert entries
    return [name for operator, entry in entries for name in unknown_names(entry, operators.get(operator))]


@pytest.mark.parametrize("name", ["gsl", "volk"])
def test_example_mappings_have_no_problems(name: str) -> None:
    assert unknown_names_in(ROOT / "examples" / name / f"{name}.yaml") == []


def test_documented_mappings_have_no_problems(tmp_path: Path) -> None:
    page = (ROOT / "docs/c-libraries/mapping.md").read_text()
    blocks = re.findall(r"```yaml\n(version: 1\nname: .*?)```", page, re.S)
    assert len(blocks) == 2
    for block in blocks:
        assert unknown_names_in(file_of(tmp_path, block)) == []


def test_null_is_read_as_null(tmp_path: Path) -> None:
    for word in ("null", '"null"'):
        assert softmax_entry(tmp_path, call=f"{word}, {CALL}").read.arguments[0].kind == "null"
    assert softmax_entry(tmp_path, entry="when: {dim: [null, -1]}").when == {"dim": [None, -1]}


@pytest.mark.parametrize(
    ("dim", "is_last"), [(-1, True), (1, True), ([1], True), (0, False), (-2, False), (True, False)]
)
def test_last_matches_either_index_of_last_dimension(tmp_path: Path, dim: object, is_last: bool) -> None:
    path = mapping(tmp_path, entry="when: {dim: last}", dims=MATRIX_DIMS, call=MATRIX_CALL)
    if is_last:
        assert bound(path, spec(4, 5), spec(4, 5), dim=dim)["leading:input"] == 5
        return
    with refusal(Gap, "backends.has_no_dim_of"):
        bound(path, spec(4, 5), spec(4, 5), dim=dim)


def test_same_layout_shares_the_passed_increment(tmp_path: Path) -> None:
    padded = spec(4, 5, strides=(7, 1))
    alike = mapping(tmp_path, entry="same_layout: [input, out]", dims=MATRIX_DIMS, call=MATRIX_CALL)
    assert bound(alike, padded, padded)["leading:input"] == 7
    with refusal(Gap, "backends.in_one_layout_but"):
        bound(alike, padded, spec(4, 5))
    assert bound(alike, spec(1, 5, strides=(7, 1)), spec(1, 5))["size:k"] == 5, "a size of 1 has no step"


def test_distances_in_bytes_and_sizes_as_arrays(tmp_path: Path) -> None:
    arrays = "'shape:input as int64_t[]', 'strides:input as int64_t[]'"
    call = f"output:out, input:input, leading:out as bytes, ndim:input, {arrays}"
    path = mapping(tmp_path, dims=MATRIX_DIMS, call=call)
    given = TensorSpec(dtype=dtype("float32"), shape=(2, 3, 4), strides=(1, -9, 2), offset=18)
    values = bound(path, given, spec(2, 3, 4))
    assert list(values.values()) == [16, 3, (2, 3, 4), (1, -9, 2)]


READERS = """
import os, threading
import msgspec, numpy, yaml
import optest.operators, optest.clib.ffi  # whatever takes long to import, but nothing that knows of mappings

def read_by_two():
    from optest.clib.library.mapping_file import mapping_path, read_mapping
    both = threading.Barrier(2)
    def read():
        both.wait()
        read_mapping(mapping_path("infiniop", ""))
    threads = [threading.Thread(target=read) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

died = 0
for _ in range(60):
    child = os.fork()
    if child == 0:
        read_by_two()
        os._exit(0)
    died += os.waitpid(child, 0)[1] != 0
print(died, "of 60 died")
"""


"""One process in nine died of SIGSEGV where msgspec got to know the types in both threads."""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.heavy
def test_two_threads_can_read_first_mapping() -> None:
    done = subprocess.run([sys.executable, "-c", READERS], capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout == "0 of 60 died\n", done.stderr


HEAD = """
version: 1
name: mine
library: [libmine.so]
status: int
dtypes: {float32: F32}
handle: {create: {function: h_new, arguments: [slot]}, destroy: h_end}
tensor: {create: {function: t_new, arguments: [slot, ndim, TYPES, dtype]}, destroy: t_end}
"""


PROTOCOL = 'protocol: {create: "new_{name}", workspace: "size_{name}", run: "run_{name}", destroy: "end_{name}"}\n'


SHORT = """
operators:
  add:
    name: Add
    dtypes: [float32]
    create: [handle, slot, output:out, input:input, "input:other?"]
    run: [descriptor, workspace, workspace_size, output:out, input:input, "input:other?", stream]
"""


WHOLE = """
operators:
  add:
    function: run_Add
    dtypes: [float32]
    objects:
      descriptor:
        create: {function: new_Add, arguments: [handle, slot, descriptor:out, descriptor:input, "descriptor:other?"]}
        destroy: end_Add
        copies: true
    workspace: {function: size_Add, arguments: [object:descriptor, slot]}
    call: [object:descriptor, workspace, workspace_size, output:out, input:input, "input:other?", stream]
"""


SHORT_FILE = HEAD.replace("TYPES", "shape, strides") + PROTOCOL + SHORT
TYPED = HEAD.replace("TYPES", "'shape as size_t[]', 'strides as ptrdiff_t[]'")


def test_shorthand_needs_what_full_form_needs(tmp_path: Path) -> None:
    (short,) = read_mapping(file_of(tmp_path, SHORT_FILE)).operators["add"]
    (whole,) = read_mapping(file_of(tmp_path, TYPED + WHOLE)).operators["add"]
    passed, whole_passed = ([each.object_key or str(each) for each in x.read.passed] for x in (short, whole))
    assert passed == whole_passed
    assert (short.tensor, short.read.roles) == (whole.tensor, whole.read.roles)
    brief = {f"object:tensor {x}" for x in ("out", "input", "other")}
    assert short.read.brief_objects == whole.read.brief_objects == brief
    assert msgspec.structs.replace(short, name="", objects={}) == msgspec.structs.replace(whole, objects={})
    untold = WHOLE.replace("descriptor:input, ", "").replace('"descriptor:other?"', "")
    with refusal(UsageError, "backends.operators_add_dims_should"):
        read_mapping(file_of(tmp_path, TYPED + untold))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("input:input, \"input:other?\"]", "inptu:input]", ":15: operators.add.create[3] is 'inptu:input', which is"),
        ("[descriptor, workspace", "[description, workspace", ":16: operators.add.run[0] is 'description', whi"),
        ("    create: [handle, slot,", "    craete: [handle, slot,", ":12: operators.add: O"),
        ("    name: Add\n", "    name: Add\n    call: [stream]\n", "add: Object contains unknown field `create`"),
        ("    name: Add\n", "    name: Add\n    dims: {input: n}\n", ":14: operators.add.dims[...]: Expected `arra"),
        (PROTOCOL, "", "operators.add has create and run, so the file should define protocol"),
        ("run_{name}", "run", "protocol.run is 'run', but should contain {name}"),
    ],
)  # fmt: skip
def test_problems_name_the_written_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SHORT_FILE
    with pytest.raises(UsageError) as caught:
        read_mapping(file_of(tmp_path, SHORT_FILE.replace(old, new, 1)))
    assert message in str(caught.value)


def case_of_add(*shape: int) -> TestCase:
    like = spec(*shape)
    return case_of(ADD, like, like, outputs=(like,))


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 1, 5)])
def test_tensors_of_any_rank_pass_shapes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    calls = []
    for text in (SHORT_FILE, TYPED + WHOLE):
        call = bind_case(case_of_add(*shape), read_mapping(file_of(tmp_path, text)))
        calls.append((call.function, {argument.text: value for argument, value in call.values.items()}))
    assert calls[0] == calls[1]
    assert calls[0][1]["shape:out as size_t[]"] == shape
    assert calls[0][1]["dtype:input"] == "F32"


@pytest.mark.parametrize("text", [PROTOCOL + SHORT, WHOLE])
@pytest.mark.parametrize(
    ("promise", "message"),
    [
        ("ranks: {input: [1, 2]}", "run_Add takes no input of 3 dimensions"),
        ("dtypes: [float64]", "there is no function for float32; there is run_Add for float64"),
        ("when: {alpha: 1}", "run_Add has no alpha of None"),
    ],
)
def test_promises_apply_to_both_forms(tmp_path: Path, text: str, promise: str, message: str) -> None:
    typed = TYPED.replace("F32}", "F32, float64: F64}")
    changes = text.replace("    dtypes: [float32]\n", f"    {promise}\n")
    with pytest.raises(Gap) as caught:
        bind_case(case_of_add(2, 3, 4), read_mapping(file_of(tmp_path, typed + changes)))
    assert message in str(caught.value)
