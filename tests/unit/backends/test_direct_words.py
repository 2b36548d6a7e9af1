"""The words of operators that are one C function: what a mapping may say, and that anything else names its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from handmade import case_of
from texts import refusal

from optest.clib.library.binding import bind_case
from optest.clib.library.layouts import Gap
from optest.clib.library.mapping_file import read_mapping
from optest.errors import UsageError
from optest.operators import operators
from optest.spec import TensorSpec, dtype

ENTRY = """
version: 1
name: mine
library: [libmine.so]
{file}
operators:
  softmax:
    functions: {{float32: mine_softmax}}
    dims: {{input: [m..., k], out: [m..., k]}}
    {entry}
    call: [{call}]
"""
CALL = "output:out, input:input, size:m, size:k, leading:input"


def mapping(tmp_path: Path, *, file: str = "", entry: str = "", call: str = CALL) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(ENTRY.format(file=file, entry=entry, call=call))
    read_mapping.cache_clear()
    return path


@pytest.mark.parametrize("word", ["null", '"null"'])
def test_null_needs_no_quotes(tmp_path: Path, word: str) -> None:
    (entry,) = read_mapping(mapping(tmp_path, call=f"{word}, {CALL}")).operators["softmax"]
    assert entry.read.arguments[0].kind == "null"


def test_an_attribute_that_is_none_stays_none_in_when(tmp_path: Path) -> None:
    (entry,) = read_mapping(mapping(tmp_path, entry="when: {dim: [null, -1]}")).operators["softmax"]
    assert entry.when == {"dim": [None, -1]}


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"entry": "choice: {dim: {0: 1}}"}, "did you mean choices? known: functions, dims"),
        ({"entry": "choices: {dim: {0: 1}}"}, "choices names 'dim', which call does not pass; it passes none"),
        ({"entry": "left_out: {dim: 1}"}, "left_out names 'dim', which call does not pass"),
        ({"entry": "same_layout: [input, output]"}, "same_layout has 'output', but dims have input, out"),
        ({"call": f"handle, {CALL}"}, "operators.softmax.call has handle, so the file should say how it is made"),
        ({"call": "handles"}, "which is no role here; did you mean handle?"),
        ({"call": "handle:input"}, "'handle:input', expected one of"),
        ({"call": "shape:input"}, "expected 'shape:input as int64_t[]'"),
        ({"call": "'strides:input as float[]'"}, "expected 'strides:input as int64_t[]'"),
        ({"call": "leading:input as bits"}, "or 'leading:input as bytes'"),
        (
            {"file": "handle: {create: {function: f, arguments: [slot, 1]}, destroy: g}"},
            "mine.yaml:5: handle.create.arguments[1] is '1', which is no role here; known: ",
        ),
        (
            {"file": "handle: {create: {function: f, arguments: [slot, 'constant:1 as long']}, destroy: g}"},
            "handle.create.arguments[1] is 'constant:1 as long', expected 'constant:1 as scalar|float|double|int",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, stated: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_mapping(mapping(tmp_path, **stated))
    assert said in str(caught.value)


def spec(*shape: int, strides: tuple[int, ...] | None = None) -> TensorSpec:
    return TensorSpec(dtype=dtype("float32"), shape=shape, strides=strides)


def bound(path: Path, specs: dict[str, TensorSpec], **attributes: object) -> dict[str, object]:
    case = case_of(
        operators.get("softmax"), specs["input:input"], outputs=(specs["output:out"],), attributes=dict(attributes)
    )
    return {str(argument): value for argument, value in bind_case(case, read_mapping(path)).values.items()}


@pytest.mark.parametrize(
    ("dim", "is_last"), [(-1, True), (1, True), ([1], True), (0, False), (-2, False), (True, False)]
)
def test_last_is_the_last_dimension_from_either_end(tmp_path: Path, dim: object, is_last: bool) -> None:
    path = mapping(tmp_path, entry="when: {dim: last}")
    specs = {"input:input": spec(4, 5), "output:out": spec(4, 5)}
    if is_last:
        assert bound(path, specs, dim=dim)["leading:input"] == 5
        return
    with refusal(Gap, "backends.has_no_dim_of"):
        bound(path, specs, dim=dim)


def test_what_is_told_of_one_tensor_goes_for_those_in_the_same_layout(tmp_path: Path) -> None:
    padded = {"input:input": spec(4, 5, strides=(7, 1)), "output:out": spec(4, 5, strides=(7, 1))}
    apart = {**padded, "output:out": spec(4, 5)}
    alike = mapping(tmp_path, entry="same_layout: [input, out]")
    assert bound(alike, padded)["leading:input"] == 7
    with refusal(Gap, "backends.in_one_layout_but"):
        bound(alike, apart)
    single = {"input:input": spec(1, 5, strides=(7, 1)), "output:out": spec(1, 5)}
    assert bound(alike, single)["size:k"] == 5, "a size of 1 has no step"


def test_distances_in_bytes_and_sizes_as_arrays(tmp_path: Path) -> None:
    path = mapping(
        tmp_path,
        call="output:out, input:input, leading:out as bytes, ndim:input, 'shape:input as int64_t[]', "
        "'strides:input as int64_t[]'",
    )
    given = TensorSpec(dtype=dtype("float32"), shape=(2, 3, 4), strides=(1, -9, 2), offset=18)
    values = bound(path, {"input:input": given, "output:out": spec(2, 3, 4)})
    assert values == {
        "leading:out": 16,
        "ndim:input": 3,
        "shape:input": (2, 3, 4),
        "strides:input": (1, -9, 2),
    }
