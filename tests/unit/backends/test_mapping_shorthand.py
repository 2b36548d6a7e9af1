"""``create`` and ``run`` of a mapping are short for a function with an object; messages name what was written."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from handmade import ADD, case_of, spec
from texts import refusal

from optest.clib.library.binding import bind_case
from optest.clib.library.layouts import Gap
from optest.clib.library.mapping_file import read_mapping
from optest.errors import UsageError
from optest.spec import TestCase

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


def file_of(folder: Path, text: str) -> Path:
    file = folder / "mine.yaml"
    file.write_text(text)
    read_mapping.cache_clear()
    return file


def test_shorthand_and_full_form_are_equal(tmp_path: Path) -> None:
    typed = HEAD.replace("TYPES", "'shape as size_t[]', 'strides as ptrdiff_t[]'")
    (short,) = read_mapping(file_of(tmp_path, HEAD.replace("TYPES", "shape, strides") + PROTOCOL + SHORT)).operators[
        "add"
    ]
    (whole,) = read_mapping(file_of(tmp_path, typed + WHOLE)).operators["add"]
    assert short.tensor == whole.tensor
    assert [each.object_key or str(each) for each in short.read.passed] == [
        each.object_key or str(each) for each in whole.read.passed
    ]
    assert short.read.roles == whole.read.roles
    assert (
        short.read.brief_objects
        == whole.read.brief_objects
        == {f"object:tensor {x}" for x in ("out", "input", "other")}
    )
    assert msgspec.structs.replace(short, name="", objects={}) == msgspec.structs.replace(whole, objects={})


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
    text = HEAD.replace("TYPES", "shape, strides") + PROTOCOL + SHORT
    assert old in text
    with pytest.raises(UsageError) as caught:
        read_mapping(file_of(tmp_path, text.replace(old, new, 1)))
    assert message in str(caught.value)


def test_function_without_dims_needs_shapes(tmp_path: Path) -> None:
    typed = HEAD.replace("TYPES", "'shape as size_t[]', 'strides as ptrdiff_t[]'")
    untold = WHOLE.replace("descriptor:input, ", "").replace('"descriptor:other?"', "")
    with refusal(UsageError, "backends.operators_add_dims_should"):
        read_mapping(file_of(tmp_path, typed + untold))


def case_of_add(*shape: int) -> TestCase:
    like = spec("float32", *shape)
    return case_of(ADD, like, like, outputs=(like,))


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 1, 5)])
def test_tensors_of_any_rank_pass_shapes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    typed = HEAD.replace("TYPES", "'shape as size_t[]', 'strides as ptrdiff_t[]'")
    told = []
    for text in (HEAD.replace("TYPES", "shape, strides") + PROTOCOL + SHORT, typed + WHOLE):
        bound = bind_case(case_of_add(*shape), read_mapping(file_of(tmp_path, text)))
        told.append((bound.function, {argument.text: value for argument, value in bound.values.items()}))
    assert told[0] == told[1]
    assert told[0][1]["shape:out as size_t[]"] == shape
    assert told[0][1]["dtype:input"] == "F32"


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
    typed = HEAD.replace("TYPES", "'shape as size_t[]', 'strides as ptrdiff_t[]'").replace("F32}", "F32, float64: F64}")
    changes = text.replace("    dtypes: [float32]\n", f"    {promise}\n")
    with pytest.raises(Gap) as caught:
        bind_case(case_of_add(2, 3, 4), read_mapping(file_of(tmp_path, typed + changes)))
    assert message in str(caught.value)
