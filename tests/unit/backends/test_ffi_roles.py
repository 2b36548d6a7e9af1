"""The words of a C library's mapping: what is a role, what fits a prototype, and that anything else is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from handmade import case_of, spec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from texts import says

from optest.clib.ffi.signatures import CKind, CType, Header, Parameter, Prototype
from optest.clib.library.arguments import (
    ELEMENTS,
    IN_MAKING,
    NAMED,
    NUMBERS,
    PLAIN,
    Words,
    literal,
    parse_arguments,
    wrong_argument,
)
from optest.clib.library.attributes import attribute_values
from optest.clib.library.binding import bind_case, unsupported_reason
from optest.clib.library.case_tensors import NO_REQUEST, generate_inputs, output_specs
from optest.clib.library.drift import drift_of_arguments
from optest.clib.library.mapping_file import mapping_path, read_mapping
from optest.clib.library.mapping_problems import unknown_names
from optest.errors import UsageError
from optest.operators import operators
from optest.registry import load_object
from optest.spec import TestCase

MAKING = Words(plain=(*PLAIN, *IN_MAKING), objects=("plan",))
BUILT_IN = mapping_path("infiniop", ".")

INT = CType(kind=CKind.INT, size=4, spelling="int")
SIZE = CType(kind=CKind.UINT, size=8, spelling="size_t")
FLOAT = CType(kind=CKind.FLOAT, size=4, spelling="float")
DOUBLE = CType(kind=CKind.FLOAT, size=8, spelling="double")
ENUM = CType(kind=CKind.ENUM, size=4, spelling="device_t")
VOID = CType(kind=CKind.VOID, size=0, spelling="void")


def pointer(pointee: CType, **further: Any) -> CType:
    return CType(kind=CKind.POINTER, size=8, spelling=f"{pointee.spelling} *", pointee=pointee, **further)


ROLES = (
    "handle, input:a, input:bias?, output:out, tensor:min, descriptor:a, scalar:alpha as double, count:padding, "
    "attribute:eps as float, attribute:padding as size_t[], attribute:padding as ptrdiff_t[3], constant:0, "
    "constant:0 as int, constant:-1.5e3 as float, constant:SOME_NAME as int"
)


@pytest.mark.parametrize("text", ROLES.split(", "))
def test_words_that_are_roles(text: str) -> None:
    assert wrong_argument(text, MAKING) == ""
    (argument,) = parse_arguments((text,))
    assert str(argument) in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hanlde", "did you mean handle?"),
        ("inputs:a", "did you mean input?"),
        ("input", "expected one of"),
        ("handle:a", "expected one of"),
        ("input:", "expected one of"),
        ("input:a as float", "expected 'input:a', or 'input:a as tensor'"),
        ("output:out?", "only an input is optional (`?`)"),
        ("input:a-b", "'a-b' should be a name"),
        ("attribute:eps", "'attribute:eps as scalar|float|double|int|bool', or as an array"),
        ("strides:a[0]", "but one stride is 'stride:a[0]', all of them are 'strides:a as ptrdiff_t[]'"),
        ("stride:a", "but one stride is 'stride:a[0]'"),
        ("stride:a[0]", "but dims should list the dimensions of a"),
        ("attribute:eps as flaot", "did you mean float?"),
        ("attribute:eps as size_t", "or as an array: 'attribute:eps as int64_t[]'"),
        ("attribute:pads as sizet[]", "did you mean size_t?"),
        ("attribute:pads as size_t[0]", "one element or more"),
        ("scalar:alpha as float[2]", "expected 'scalar:alpha as float|double|int|bool'"),
        ("constant:1.5 as int", "should be a number, or the name of one"),
        ("constant:0 as long", "or an enumerator without a type"),
    ],
)
def test_wrong_roles_name_the_reason(text: str, message: str) -> None:
    assert message in wrong_argument(text, MAKING)


_MARKS = (":", "?", " as ", "[", "]", "[2]", "[]", "a", "0", "-1", ".", "\n", "é", "²")
_PIECES = st.sampled_from([*NAMED, *PLAIN, *NUMBERS, *ELEMENTS, *_MARKS])


@given(st.one_of(st.lists(_PIECES, max_size=8).map("".join), st.text(max_size=30)))
@settings(max_examples=100)
def test_any_text_is_role_or_problem(text: str) -> None:
    message = wrong_argument(text, MAKING)
    assert isinstance(message, str)
    if not message:
        (argument,) = parse_arguments((text,))
        assert argument.kind in MAKING.kinds
        assert (argument.name != "") == (argument.kind in NAMED)
        assert argument.key
        assert argument.array is None or argument.array.element in ELEMENTS
        return
    assert message.startswith(("which is no role here", "but", "expected", "so the operator"))


_NODES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 300), st.floats(allow_nan=False), st.text(max_size=8), _PIECES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=6,
)
_NAMES = st.sampled_from(("input", "weight", "bias", "out", "std", "cos", "position_ids", "a", "c", "eps", "alpha"))
_MORE_NAMES = st.one_of(_NAMES, st.sampled_from(("interleaved", "padding", "normalized_shape", "statistics", "dtype")))
_VALUES = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.floats(allow_nan=False),
    st.sampled_from(("lowest", "highest", "input[-1]", "out[7]", "out.dtype", "float32", "same", "trans_a", "x")),
    st.tuples(st.integers(-9, 9), st.integers(-9, 9)).map(list),
)
_LIKELY = st.dictionaries(
    _MORE_NAMES,
    st.one_of(
        _VALUES,
        st.lists(_VALUES, max_size=2),
        st.dictionaries(st.one_of(st.booleans(), st.integers(0, 2), _MORE_NAMES), _VALUES, max_size=2),
        st.fixed_dictionaries({"of": _NAMES, "dim": st.integers(-5, 5), "dtype": st.sampled_from(("int64", "int8"))}),
    ),
    min_size=1,
    max_size=2,
)
"""What has the right form more often than not."""
_KEYS = (
    *("create", "run", "dtypes", "dtypes_of", "ranks", "in_place", "refuses", "choices", "left_out", "implied"),
    *("always", "arange", "swapped", "starts_as", "broadcasts", "workspace", "layouts", "no_such_key"),
)


def case_of_call(operator: str, *shapes: tuple[int, ...], **attributes: Any) -> TestCase:
    descriptor = operators.get(operator)
    specs = [spec("float32", *shape) for shape in shapes]
    bound = descriptor.bind(attributes)
    infer: Any = load_object(str(descriptor.infer))
    padded = [*specs, *[None] * (len(descriptor.tensors.inputs) - len(specs))]
    return case_of(descriptor, *specs, attributes=bound, outputs=tuple(infer(padded, bound)))


CASES = {
    "gemm": case_of_call("gemm", (3, 5), (5, 4), (3, 4)),
    "layer_norm": case_of_call("layer_norm", (2, 5), (5,), (5,), normalized_shape=[5]),
    "rope": case_of_call("rope", (2, 3, 4), (3, 2), (3, 2)),
    "conv2d": case_of_call("conv2d", (1, 2, 5, 5), (3, 2, 2, 2), padding=1),
}
_FRAME = yaml.safe_load(BUILT_IN.read_text())


def mapping_of(folder: Path, text: str) -> Path:
    file = folder / "own.yaml"
    file.write_text(text, encoding="utf-8")
    read_mapping.cache_clear()
    return file


def heir_of(folder: Path, text: str) -> Any:
    """Return a mapping that extends infiniop."""
    return read_mapping(mapping_of(folder, f"extends: infiniop\n{text}"))


def changed_entry(folder: Path, operator: str, **changes: Any) -> Path:
    entries = {operator: {**_FRAME["operators"][operator], **changes}}
    return mapping_of(folder, yaml.safe_dump({**_FRAME, "operators": entries}, allow_unicode=True))


def test_always_is_read_in_canonical_form(tmp_path: Path) -> None:
    """A single number for a list of them, as everywhere else."""
    file = changed_entry(tmp_path, "layer_norm", always={"normalized_shape": 5, "statistics": True})
    (entry,) = read_mapping(file).operators["layer_norm"]
    outputs = output_specs(CASES["layer_norm"], entry, (), NO_REQUEST)
    assert [spec.shape for spec in outputs.values()] == [(2, 5), (2, 5), (2,)]


@pytest.mark.heavy
@given(key=st.sampled_from(_KEYS), node=st.one_of(_NODES, _LIKELY, _LIKELY), operator=st.sampled_from([*CASES]))
@settings(
    max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
def test_any_mapping_is_read_or_refused(tmp_path: Path, key: str, node: Any, operator: str) -> None:
    """Never another exception; and an entry that is read can be held against the operator."""
    file = changed_entry(tmp_path, operator, **{key: node})
    message = ""
    try:
        mapping = read_mapping(file)
        (entry,) = mapping.operators[operator]
        if unknown_names(entry, operators.get(operator)):
            return
        case = CASES[operator]
        if unsupported_reason(case, mapping) is None:
            generate_inputs(case, entry, bind_case(case, mapping).specs)
            attribute_values(entry, case)
    except UsageError as error:
        message = str(error)
    assert not message or str(file) in message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("count:padding", "count:paddings", "operators.conv1d counts 'paddings', which nothing passes as an array"),
        ("choices: {interleaved:", "choices: {interleave:", "names 'interleave', which call does not pass"),
        ("left_out: {min: lowest,", "left_out: {mim: lowest,", "names 'mim', which call does not pass"),
        ("implied: {normalized_shape: ['input[-1]']}", "implied: {normalized_shape: ['input[last]']}", "'input[last]'"),
        (
            "arange: {position_ids: {of: input, dim: -2, dtype: int64}}",
            "arange: {position_ids: {of: input, dim: -2, dtype: int65}}",
            "did you mean int64?",
        ),
        ("layouts: {out: rows}", "layouts: {out: columns}", "layouts"),
        ('indexes: {position_ids: "cos[0]"}', "indexes: {position_ids: cos}", "a tensor's dimension, as in cos[0]"),
    ],
)
def test_unused_keys_are_problems(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = BUILT_IN.read_text().replace("    name: Add\n", "    name: Add\n    layouts: {out: rows}\n")
    assert old in text
    with pytest.raises(UsageError) as refused:
        read_mapping(mapping_of(tmp_path, text.replace(old, new, 1)))
    assert message in str(refused.value)
    assert "own.yaml" in str(refused.value)


@pytest.mark.parametrize("mapping", ["infiniop", "infiniop-2026-08"])
def test_built_in_mappings_name_what_operators_have(mapping: str) -> None:
    entries = read_mapping(mapping_path(mapping, ".")).operators
    unknown = {name: unknown_names(entry, operators.get(name)) for name, (entry,) in entries.items()}
    assert {name: problems for name, problems in unknown.items() if problems} == {}


def test_a_mapping_extends_another(tmp_path: Path) -> None:
    text = "name: own\noperators: {relu: null, sub: {name: Sub2, create: [slot], run: [stream]}}\n"
    mapping, base = heir_of(tmp_path, text), read_mapping(BUILT_IN)
    assert (mapping.name, mapping.operators["sub"][0].name) == ("own", "Sub2")
    assert mapping.operators.keys() == base.operators.keys() - {"relu"}
    assert mapping.dtypes == base.dtypes
    for extended, message in (
        ("gone.yaml", r"own\.yaml, extends: there is no mapping .*gone\.yaml"),
        ("own.yaml", "extends itself"),
    ):
        with pytest.raises(UsageError, match=message):
            read_mapping(mapping_of(tmp_path, f"extends: {extended}\n"))


@pytest.mark.parametrize("layout", ["dense", "rows", "matrix"])
def test_layouts_that_a_library_needs(tmp_path: Path, layout: str) -> None:
    relu = f"{{name: Relu, create: [slot], run: [input:input], layouts: {{input: {layout}, out: rows}}}}"
    mapping = heir_of(tmp_path, f"operators: {{relu: {relu}}}\n")

    def takes(*strides: int, out: tuple[int, int] = (3, 1)) -> bool:
        case = case_of(operators.get("relu"), spec("float32", 2, 3, strides=strides), outputs=(spec("float32", 2, 3),))
        return unsupported_reason(case, mapping, [("out", out, 0)]) is None

    assert takes(3, 1)
    assert takes(5, 1) == (layout != "dense")
    assert takes(1, 2) == (layout == "matrix")
    assert not takes(6, 2)
    assert not takes(3, 1, out=(1, 2))


def test_unknown_names_come_with_the_nearest() -> None:
    for mapped, operator, texts in (
        ("rope", "softmax", ("backends.softmax_has_no_input", "backends.softmax_has_no_attribute")),
        ("conv1d", "max_pool2d", ("backends.max_pool_has_no",)),
    ):
        (entry,) = read_mapping(BUILT_IN).operators[mapped]
        message = "\n".join(unknown_names(entry, operators.get(operator)))
        for text in texts:
            assert says(message, text)


@pytest.mark.parametrize(
    ("text", "type_", "message"),
    [
        ("attribute:n as int", INT, ""),
        ("attribute:n as int", SIZE, ""),
        ("attribute:n as int", FLOAT, "should be an integer"),
        ("attribute:n as float", DOUBLE, "should be a float"),
        ("scalar:n as double", DOUBLE, ""),
        ("scalar:n as float", INT, "should be a float"),
        ("constant:1 as int", pointer(VOID), "an integer's width is unknown for void *"),
        ("count:n", SIZE, ""),
        ("count:n", FLOAT, "count:n should be an integer"),
        ("tensor:min", pointer(VOID), ""),
        ("tensor:min", INT, "tensor:min should be a pointer"),
        ("attribute:n as size_t[2]", pointer(VOID), ""),
        ("attribute:n as size_t[]", pointer(SIZE), ""),
        ("attribute:n as size_t[]", pointer(FLOAT), "should be an array of float"),
        ("attribute:n as size_t[]", SIZE, "should be an array of size_t"),
        ("input:a?", pointer(VOID), ""),
        ("input:a?", SIZE, "should be a pointer"),
        ("device", ENUM, ""),
        ("slot", pointer(VOID), ""),
        ("stream", INT, "should be a pointer"),
    ],
)
def test_drift_names_argument_and_role(text: str, type_: CType, message: str) -> None:
    prototype = Prototype(name="f", result=INT, parameters=(Parameter(name="x", type=type_),), where="f.h:1")
    found = drift_of_arguments("mapping m, operators.a.run", parse_arguments((text,)), prototype, None, Header())
    assert message in found
    assert [part in found for part in ("argument 1 (x) of f", "f.h:1")] == [bool(message)] * 2
    assert bool(found) == bool(message)


@given(st.floats(allow_nan=False, allow_infinity=False, width=32), st.integers(-(2**40), 2**40))
def test_literals(number: float, whole: int) -> None:
    assert literal(repr(number), "float") == number
    assert literal(str(whole), "int") == whole
    assert literal("NAME", "int") is None
    assert literal("1.5", "int") is None


@pytest.mark.parametrize(
    ("operator", "status", "tensor", "is_gap"),
    [
        ("add", "BAD_TENSOR_STRIDES", spec("float32", 4, 5, strides=(7, 1)), False),
        ("gemm", "BAD_TENSOR_STRIDES", spec("float32", 4, 5, strides=(7, 1)), False),
        ("gemm", "BAD_TENSOR_STRIDES", spec("float32", 4, 5, strides=(1, 4)), False),
        ("gemm", "BAD_TENSOR_STRIDES", spec("float32", 4, 5, strides=(14, 2)), True),
        ("gemm", "BAD_TENSOR_STRIDES", spec("float32", 1, 1, strides=(0, 0)), True),
        ("gemm", "BAD_TENSOR_STRIDES", spec("float32", 4, 0, strides=(0, 1)), False),
        ("gemm", "BAD_TENSOR_STRIDES", spec("float32", 1, 5, strides=(9, 1)), False),
        ("rms_norm", "BAD_TENSOR_STRIDES", spec("float32", 4, 1, strides=(1, 13)), True),
        ("rms_norm", "BAD_TENSOR_STRIDES", spec("float32", 4, 5, strides=(7, 1)), False),
        ("random_sample", "BAD_TENSOR_STRIDES", spec("float32", 1, strides=(0,)), True),
        ("random_sample", "BAD_TENSOR_STRIDES", spec("int64"), False),
        ("attention", "BAD_TENSOR_STRIDES", spec("float32", 5, 4, 1, strides=(4, 1, 13)), True),
        ("rope", "BAD_TENSOR_STRIDES", spec("float32", 3, 1, strides=(1, 13)), True),
        ("rope", "BAD_TENSOR_STRIDES", spec("float32", 3, 4, strides=(7, 1)), True),
        ("layer_norm", "BAD_TENSOR_STRIDES", spec("float32", 4, 5, strides=(1, 4)), False),
        ("add", "BAD_TENSOR_DTYPE", spec("bfloat16", 4), False),
        ("add", "BAD_TENSOR_DTYPE", spec("int8", 4), True),
        ("swiglu", "BAD_TENSOR_DTYPE", spec("bfloat16", 4), True),
        ("paged_caching", "BAD_TENSOR_DTYPE", spec("int64", 4), False),
        ("add", "NOT_IMPLEMENTED", spec("float32", 4), True),
        ("add", "BAD_PARAM", spec("float32", 4), False),
        ("2026-08 dot", "BAD_TENSOR_STRIDES", spec("float32", 1, strides=(0,)), True),
        ("2026-08 dot", "BAD_TENSOR_STRIDES", spec("float32", 4, strides=(2,)), True),
        ("2026-08 dot", "BAD_TENSOR_STRIDES", spec("float32", 4), False),
        ("2026-08 take", "BAD_TENSOR_STRIDES", spec("float32", 4, strides=(2,)), False),
        ("2026-08 scatter", "BAD_TENSOR_SHAPE", spec("float32", 4), True),
        ("2026-08 index_add", "BAD_TENSOR_SHAPE", spec("float32", 4), False),
        ("2026-08 add_rms_norm", "BAD_TENSOR_STRIDES", spec("float32", 4, 1, strides=(1, 13)), True),
    ],
)
def test_status_is_gap_only_outside_promises(operator: str, status: str, tensor: Any, is_gap: bool) -> None:
    month, _, name = operator.rpartition(" ")
    mapping = read_mapping(mapping_path(f"infiniop-{month}" if month else "infiniop", "."))
    entry = mapping.operators[name][0]
    assert mapping.is_unsupported(entry, f"INFINI_STATUS_{status}", [tensor]) is is_gap


def test_operator_overrides_unsupported_of_file(tmp_path: Path) -> None:
    relu_text = "{unsupported: {8: strided, 9: [float64]}, name: Relu, create: [handle], run: []}"
    mapping = heir_of(tmp_path, f"unsupported: [7]\noperators:\n  relu: {relu_text}\n")
    (relu,), (tanh,) = mapping.operators["relu"], mapping.operators["tanh"]
    dense, strided = spec("float64", 4), spec("float32", 4, strides=(2,))
    found = {each: tuple(mapping.is_unsupported(relu, each, [x]) for x in (dense, strided)) for each in (7, 8, 9)}
    assert found == {7: (False, False), 8: (False, True), 9: (True, False)}
    assert mapping.is_unsupported(tanh.__class__(call=tanh.call), 7, [dense])


def test_started_input_is_not_passed_as_well(tmp_path: Path) -> None:
    """A kernel that ignores its input would pass, as the output starts with what it should have read."""
    relu = "{name: Relu, starts_as: {output: out, input: input}, create: [handle, output:out, input:input], run: []}"
    with pytest.raises(UsageError, match=r"write in_place: \[input\]"):
        heir_of(tmp_path, f"operators:\n  relu: {relu}\n")
    for name in ("index_add", "index_copy"):
        (entry,) = read_mapping(mapping_path("infiniop-2026-08", ".")).operators[name]
        assert (entry.starts, entry.in_place) == ((), ("input",))
