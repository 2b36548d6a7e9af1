"""Tensors of model cases: dtypes, layouts, presets and fills, as the plan gets them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_kit import case_of, cases_of, file_of, said

from optest.generators.random_tensors import RandomTensorGenerator
from optest.plan.values import Misfit
from optest.spec import Argument, Fill, TensorSpec, contiguous_strides
from optest.torch.model_cases.tensors import dtype_of, strides_of_preset


def argument_of(tensor: str, **more: Any) -> Argument:
    """The one input of a case with this tensor."""
    (argument,) = case_of(f"op: torch.f, inputs: [{{tensor: {{{tensor}}}}}]", **more).inputs
    return argument


def drawn(tensor: str) -> np.ndarray:
    (array,), _ = RandomTensorGenerator().generate(case_of(f"op: torch.f, inputs: [{{tensor: {{{tensor}}}}}]"))
    return array


def refused(tensor: str) -> tuple[str, str]:
    """Where and what is said of a tensor that cannot be."""
    found = said(file_of(f"- {{name: a, op: torch.f, inputs: [{{tensor: {{{tensor}}}}}]}}"))
    start, _, rest = found.partition(".tensor")
    assert start == "m.yaml:3 $.cases[0].inputs[0]"
    place, message = rest.split(": ", 1)
    return place.removeprefix("."), message


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("fp16", "float16"), ("float16", "float16"), ("torch.float16", "float16"), ("half", "float16"),
        ("bf16", "bfloat16"), ("torch.bfloat16", "bfloat16"), ("fp32", "float32"), ("float", "float32"),
        ("fp64", "float64"), ("double", "float64"), ("int64", "int64"), ("long", "int64"), ("int", "int32"),
        ("bool", "bool"), ("torch.bool", "bool"), ("uint8", "uint8"), ("complex64", "complex64"),
        ("torch.float8_e4m3fn", "float8_e4m3fn"),
    ],
)  # fmt: skip
def test_dtypes_by_all_their_words(word: str, name: str) -> None:
    assert dtype_of(word).name == name
    assert argument_of(f"shape: [2], dtype: {word}").spec.dtype.name == name


def test_tensor_dtype_overrides_case_and_file() -> None:
    entry = "op: torch.f, {more} inputs: [{{tensor: {{shape: [2]}}}}, {{tensor: {{shape: [2], dtype: int8}}}}]"
    text = file_of(f"- {{name: a, {entry.format(more='')}}}\n- {{name: b, {entry.format(more='dtype: bf16,')}}}")
    found = [
        [each.name for each in case.dtypes]
        for case in cases_of(text.replace("cases:", "default: {dtype: fp16}\ncases:"))
    ]
    assert found == [["float16", "int8"], ["bfloat16", "int8"]]
    assert [each.name for each in cases_of(text)[0].dtypes] == ["float32", "int8"]


@pytest.mark.parametrize(
    ("tensor", "shape", "strides", "offset"),
    [
        ("shape: []", (), None, 0),
        ("shape: [2, 3]", (2, 3), None, 0),
        ("shape: [0, 3]", (0, 3), None, 0),
        ("shape: [2, 3], stride: [3, 1]", (2, 3), None, 0),
        ("shape: [2, 3], stride: [3, 1], storage_offset: 4", (2, 3), (3, 1), 4),
        ("shape: [2, 3], storage_offset: 4", (2, 3), (3, 1), 4),
        ("shape: [2, 3], stride: [1, 2]", (2, 3), (1, 2), 0),
        ("shape: [2, 3], stride: [0, 1]", (2, 3), (0, 1), 0),
        ("shape: [2, 3], stride: [1, 1]", (2, 3), (1, 1), 0),
        ("shape: [2, 3], device: 'cuda:0', device_layout: {stride_map: [1]}", (2, 3), None, 0),
    ],
)
def test_layouts(tensor: str, shape: tuple[int, ...], strides: tuple[int, ...] | None, offset: int) -> None:
    spec = argument_of(tensor).spec
    assert (spec.shape, spec.offset) == (shape, offset)
    assert (spec.strides or contiguous_strides(shape)) == (strides or contiguous_strides(shape))


PRESETS = {
    "noncontig_slice, preset_args: {dim: 1, step: 2}": (48, 16, 1),
    "noncontig_slice, preset_args: {dim: 0, step: 3}": (72, 8, 1),
    "noncontig_slice, preset_args: {dim: -1, step: 2}": (48, 16, 2),
    "noncontig_slice, preset_args: {step: 4}": (96, 32, 4),
    "noncontig_slice": (48, 16, 2),
    "transpose_view": (8, 16, 1),
    "transpose_view, preset_args: {dim0: 1, dim1: 2}": (24, 1, 3),
    "transpose_view, preset_args: {dim0: -1, dim1: 0}": (1, 2, 6),
    "expand_view": (0, 8, 1),
    "expand_view, preset_args: {base_shape: [1, 3, 1]}": (0, 1, 0),
    "expand_view, preset_args: {base_shape: [2, 1, 8]}": (8, 0, 1),
    "expand_view, preset_args: {base_shape: [8]}": (0, 0, 1),
    "expand_view, preset_args: {base_shape: []}": (0, 0, 0),
}


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_has_shape_of_noncontiguous_view(preset: str) -> None:
    spec = argument_of(f"shape: [2, 3, 8], preset: {preset}").spec
    assert (spec.shape, spec.strides, spec.offset) == ((2, 3, 8), PRESETS[preset], 0)
    assert not spec.is_dense
    array = drawn(f"shape: [2, 3, 8], preset: {preset}")
    assert array.shape == (2, 3, 8)
    assert not array.flags.c_contiguous


SLICE = "shape: [2, 2], preset: noncontig_slice, preset_args: "
TURNED = "shape: [2, 2], preset: transpose_view"
EXPANDED = "preset: expand_view, preset_args: "


@pytest.mark.parametrize(
    ("tensor", "place", "message"),
    [
        (
            "shape: [2, 2], preset: noncontig_slce",
            "preset",
            "noncontig_slice, transpose_view, expand_view\n    did you",
        ),
        (SLICE + "{dim: 2}", "preset_args.dim", "dim is 2, expected a dimension"),
        (SLICE + "{dim: x}", "preset_args.dim", "dim is 'x', expected"),
        (SLICE + "{dim: true}", "preset_args.dim", "dim is true, expected"),
        (SLICE + "{step: 0}", "preset_args.step", "step is 0, expected"),
        (SLICE + "{stop: 2}", "preset_args.stop", "expected dim and step"),
        (SLICE + "[1]", "preset_args", "expected a mapping"),
        (SLICE + "{step: 1}", "preset_args", "leaves a tensor of shape [2, 2]"),
        ("shape: [1, 2], preset: transpose_view", "preset", "leaves a tensor of shape [1, 2] contiguous"),
        (TURNED + ", preset_args: {dim0: 1, dim1: 1}", "preset_args", "contiguous"),
        ("shape: [2], preset: transpose_view", "preset", "dim1 is 1, expected a dimension of a tensor with 1"),
        ("shape: [], preset: noncontig_slice", "preset", "dim is -1, expected a dimension of a tensor with 0"),
        ("shape: [0, 2], preset: transpose_view", "preset", "contiguous, expected a non-contiguous one"),
        ("shape: [2, 2], " + EXPANDED + "{base_shape: [3, 1]}", "preset_args.base_shape", "cannot be exp"),
        ("shape: [2], " + EXPANDED + "{base_shape: [1, 1]}", "preset_args.base_shape", "at most 1 sizes"),
        ("shape: [2], " + EXPANDED + "{base_shape: 1}", "preset_args.base_shape", "base_shape is 1, expected"),
        ("shape: [2], " + EXPANDED + "{base_shape: [true]}", "preset_args.base_shape", "cannot be expand"),
        ("shape: [2, 2], preset_args: {dim: 1}", "preset_args", "preset_args is set without preset"),
        (TURNED + ", stride: [1, 2]", "preset", "preset is combined with stride"),
        (TURNED + ", storage_offset: 1", "preset", "preset is combined with stride"),
        (
            "shape: [2, 2], stride: [1]",
            "stride",
            "stride has 1 entries, expected 2\n    a dense tensor has stride: [2, 1]",
        ),
        ("shape: [2, 2], stride: [1, -2]", "stride[1]", "item 1 is -2, expected at least 0"),
        ("shape: [2, 2], storage_offset: -1", "storage_offset", "storage_offset is -1, expected at least 0"),
        ("shape: [2, 2], stride: [9223372036854775807, 1]", "", "bytes, expected 9,223,372,036,854,775,807 at most"),
        ("shape: [2], storage_offset: 9223372036854775807", "", "bytes, expected 9,223,372,036,854,775,807 at most"),
        ("shape: [99999999999, 99999999999]", "", "bytes, expected 9,223,372,036,854,775,807 at most"),
        (f"shape: [{', '.join(['1'] * 65)}]", "shape", "the tensor has 65 dimensions, expected at most 64"),
        ("init: rand", "", "the tensor has no shape\n    shape: [2, 3]"),
        ("shape: 2x3", "shape", "shape is '2x3', expected a list\n    shape: [2, 3]"),
        ("shape: [-1]", "shape[0]", "item 0 is -1, expected at least 0"),
        ("shape: [2, 3], init: rndn", "init", "init is 'rndn', expected one of rand, randn, zeros"),
        ("shape: [2], dtype: fp17", "dtype", "unknown dtype 'fp17'\n    known dtypes: bool, int4"),
        ("shape: [2], dtype: flaot32", "dtype", "unknown dtype 'flaot32'\n    did you mean float32?"),
        ("shape: [2], stirde: [1]", "stirde", "unknown key 'stirde' of a tensor\n    did you mean stride?"),
        ("shape: [2], name: x", "name", "unknown key 'name' of a tensor\n    it is a key of a case"),
        ("shape: [2], zzz: x", "zzz", "unknown key 'zzz' of a tensor\n    known keys: shape, dtype, stride"),
    ],
)
def test_a_tensor_that_cannot_be(tensor: str, place: str, message: str) -> None:
    found, text = refused(tensor)
    assert found == place
    assert message in text


def fill_of(kind: str, **parameters: Any) -> Fill:
    return Fill(kind=kind, parameters=parameters)


FILLS = [
    ("", "float32", fill_of("uniform", low=0.0, high=1.0)),
    ("init: rand", "float32", fill_of("uniform", low=0.0, high=1.0)),
    ("init: rand, init_args: {low: -2}", "float32", fill_of("uniform", low=-2, high=1.0)),
    ("init: rand, init_args: {low: null, high: 3}", "bf16", fill_of("uniform", low=0.0, high=3)),
    ("init: rand", "int64", fill_of("randint")),
    ("init: rand, init_args: {low: 0.1, high: 5.5}", "int64", fill_of("randint", low=1, high=6)),
    ("init: rand, init_args: {low: 0.1, high: 0.9}", "int8", fill_of("randint", low=1, high=2)),
    ("init: rand, init_args: {low: 0, high: 1}", "bool", fill_of("randint")),
    ("", "bool", fill_of("randint")),
    ("init: randint, init_args: {high: 1}", "bool", fill_of("randint")),
    ("init: uniform", "bool", fill_of("randint")),
    ("init: uniform", "int8", fill_of("randint")),
    ("init: randint", "int64", fill_of("randint")),
    ("init: randint, init_args: {high: 100}", "int64", fill_of("randint", low=0, high=100)),
    ("init: randint, init_args: {low: 1.0, high: 100.0}", "fp16", fill_of("randint", low=1, high=100)),
    ("init: uniform, init_args: {low: -1.0, high: 1.0}", "fp16", fill_of("uniform", low=-1.0, high=1.0)),
    ("init: uniform, init_args: {low: -3, high: 3}", "int8", fill_of("randint", low=-3, high=3)),
    ("init: randn", "fp16", fill_of("randn")),
    ("init: zeros", "fp16", fill_of("zeros")),
    ("init: ones", "int64", fill_of("ones")),
    ("init: eye", "fp16", fill_of("eye")),
    ("init: arange", "fp16", fill_of("arange", start=0, step=1)),
    ("init: arange, init_args: {start: 2, step: 0.5}", "fp16", fill_of("arange", start=2, step=0.5)),
    ("init: full, init_args: {value: 1.5}", "fp16", fill_of("full", value=1.5)),
    ("init: full, init_args: {fill_value: 7}", "int8", fill_of("full", value=7)),
    ("init: full, init_args: {value: true}", "bool", fill_of("full", value=True)),
    ("init: data, init_args: [[1, 2, 3], [4, 5, 6]]", "int8", fill_of("data", values=[[1, 2, 3], [4, 5, 6]])),
    ("init: data, init_args: {values: [[1, 2, 3], [4, 5, 6]]}", "fp16", fill_of("data", values=[[1, 2, 3], [4, 5, 6]])),
]


@pytest.mark.parametrize(("init", "kind", "fill"), FILLS)
def test_fills(init: str, kind: str, fill: Fill) -> None:
    tensor = f"shape: [2, 3], dtype: {kind}" + (f", {init}" if init else "")
    assert argument_of(tensor).fill == fill
    assert drawn(tensor).shape == (2, 3)


def test_bool_draws_both_values_whatever_is_stated() -> None:
    for init in ("rand", "uniform", "randint", "rand, init_args: {low: 0, high: 1}", "randint, init_args: {high: 1}"):
        values = drawn(f"shape: [11, 6], dtype: bool, init: {init}")
        assert 10 < values.sum() < 56, init


def test_per_tensor_dtype_decides_the_values() -> None:
    whole = drawn("shape: [50], dtype: int64, init: randint, init_args: {low: 3, high: 5}").tolist()
    assert (whole.count(3) > 5, set(whole)) == (True, {3, 4})
    assert len(set(drawn("shape: [50], dtype: fp32, init: rand").tolist())) == 50


def test_xavier_is_bounded_by_both_fans() -> None:
    def high(tensor: str) -> float:
        return argument_of(f"shape: {tensor}, init: xavier").fill.parameters["high"]

    assert argument_of("shape: [6, 18], init: xavier").fill.parameters == {"low": -0.5, "high": 0.5}
    assert high("[6]") == pytest.approx(0.5**0.5)
    assert argument_of("shape: [6, 2, 3, 3], init: xavier, init_args: {gain: 2}").fill.parameters[
        "high"
    ] == pytest.approx(2 * (6 / 72) ** 0.5)
    assert min(map(high, ("[]", "[0, 4]", "[0]"))) > 0
    assert argument_of("shape: [2, 2], init: xavier, dtype: int8").fill == Fill(kind="randint")


def test_data_have_a_shape_of_their_own() -> None:
    assert argument_of("init: data, init_args: [[1, 2], [3, 4], [5, 6]]").spec.shape == (3, 2)
    assert argument_of("init: data, init_args: 7").spec.shape == ()
    assert argument_of("init: data, init_args: []").spec.shape == (0,)
    assert argument_of("shape: [0, 4], init: data, init_args: []").spec.shape == (0, 4)
    assert drawn("init: data, init_args: [.nan, -.inf, 1.5, 'inf'], dtype: fp16").tolist()[1:] == [-np.inf, 1.5, np.inf]
    assert drawn("init: data, init_args: [[true, false]], dtype: bool").tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("init", "place", "message"),
    [
        ("rand, ARGS: [1]", "", "init_args is [1], expected a mapping"),
        ("rand, ARGS: {lo: 1}", ".lo", "this init takes low, high\n    did you mean low?"),
        ("randn, ARGS: {std: 1}", ".std", "this init takes none\n    remove std"),
        ("rand, ARGS: {low: a}", ".low", "low is 'a', expected a finite number"),
        ("rand, ARGS: {low: '1'}", ".low", "low is '1', expected a finite number\n    write it wit"),
        ("rand, ARGS: {low: true}", ".low", "low is true, expected a finite number"),
        ("rand, ARGS: {high: .nan}", ".high", "high is nan, expected a finite number"),
        ("rand, ARGS: {high: .inf}", ".high", "high is inf, expected a finite number"),
        ("rand, ARGS: {low: 1}", "", "low is 1, expected below high, which is 1.0"),
        ("uniform, ARGS: {low: 3, high: 1}", "", "low is 3, expected below high, which is 1"),
        ("randint, ARGS: {low: 3}", "", "init_args has low but no high"),
        ("randint, ARGS: {low: 3, high: 3}", "", "low is 3, expected below high, which is 3"),
        ("randint, ARGS: {high: .nan}", ".high", "high is nan"),
        (f"randint, ARGS: {{high: 1{'0' * 400}}}", ".high", "expected a finite number"),
        ("randint, dtype: int8, ARGS: {high: 200}", "", "the range is 0 to 199, expected within int8"),
        ("rand, dtype: uint8, ARGS: {low: -3}", "", "the range is -3 to 0, expected within uint8"),
        ("xavier, ARGS: {gain: 0}", ".gain", "gain is 0, expected above 0"),
        ("xavier, ARGS: {gain: x}", ".gain", "gain is 'x', expected a finite number"),
        ("full", "", "init is full and init_args has no value, expected one value\n    init_args: {value: 1.5}"),
        ("full, ARGS: {value: 1, fill_value: 1}", "", "init_args has both value and fill_value"),
        ("full, ARGS: {value: x}", ".value", "an element is 'x', expected a number"),
        ("full, ARGS: {value: [1]}", ".value", "an element is [1], expected a number"),
        ("full, dtype: int8, ARGS: {value: 1.5}", ".value", "1.5, expected an integer for int8"),
        ("full, dtype: int8, ARGS: {value: .nan}", ".value", "nan, expected an integer for int8"),
        ("full, dtype: int8, ARGS: {value: 200}", ".value", "200, expected -128 to 127 for int8"),
        ("full, dtype: bool, ARGS: {value: 2}", ".value", "2, expected true, false, 0 or 1 for bool"),
        ("data", "", "init is data and init_args has no values"),
        ("data, ARGS: {}", "", "init is data and init_args has no values"),
        ("data, ARGS: {vals: [1]}", ".vals", "this init takes values, data"),
        ("data, ARGS: [1, 2]", "", "the data have shape 2, expected 2x3"),
        ("data, ARGS: [[1, 2], [3]]", "", "the data have rows of different shapes"),
        ("data, ARGS: [[1, 2, 3], [4, 5, x]]", "", "an element is 'x', expected a number"),
        ("data, ARGS: [[1, 2, 3], [4, 5, null]]", "", "an element is null, expected a number"),
        ("data, dtype: int8, ARGS: [[1, 2, 3], [4, 5, 1000]]", "", "1000, expected -128 to 127 for int8"),
        ("arange, ARGS: {end: 3}", ".end", "this init takes start, step"),
        ("arange, ARGS: {step: x}", ".step", "step is 'x', expected a finite number"),
        ("file", "", "init is file and init_args has no path\n    init_args: {path: x.pt}"),
        ("file, ARGS: {path: 3}", ".path", "path is 3, expected text"),
        ("file, ARGS: {path: x.pt, keys: a}", ".path", "there is no file 'x.pt'"),
    ],
)
def test_a_fill_that_cannot_be(init: str, place: str, message: str) -> None:
    found, text = refused(f"shape: [2, 3], init: {init.replace('ARGS', 'init_args')}")
    assert found == f"init_args{place}"
    assert message in text


def test_eye_is_a_matrix() -> None:
    assert drawn("shape: [2, 3], init: eye").tolist() == [[1, 0, 0], [0, 1, 0]]
    assert refused("shape: [2, 3, 4], init: eye") == (
        "init",
        "init is eye and the tensor has 3 dimensions, expected 2\n    write a shape of two sizes",
    )


@given(
    st.lists(st.integers(0, 5), max_size=5),
    st.sampled_from(["noncontig_slice", "transpose_view", "expand_view"]),
    st.dictionaries(
        st.sampled_from(["dim", "step", "dim0", "dim1", "base_shape"]),
        st.integers(-6, 6) | st.lists(st.integers(0, 5), max_size=4) | st.none() | st.text(max_size=2),
        max_size=2,
    ),
)
@settings(max_examples=80)
def test_preset_strides_are_valid_or_refused(shape: list[int], name: str, given_args: dict[str, Any]) -> None:
    try:
        strides = strides_of_preset(name, given_args, shape)
    except Misfit:
        return
    assert len(strides) == len(shape)
    assert min(strides) >= 0
    assert not TensorSpec(dtype=dtype_of("fp32"), shape=tuple(shape), strides=tuple(strides)).is_dense


@pytest.mark.slow
@pytest.mark.torch
def test_presets_have_the_strides_that_torch_gives() -> None:
    torch = pytest.importorskip("torch")
    compared = 0
    for shape in ([2, 3, 8], [3, 1, 4], [4, 5], [1, 7], [6], [2, 1, 3, 2]):
        views = []
        for dim in range(-len(shape), len(shape)):
            for step in (1, 2, 3):
                base = list(shape)
                base[dim] *= step
                index = [slice(None)] * len(shape)
                index[dim] = slice(None, None, step)
                views.append(("noncontig_slice", {"dim": dim, "step": step}, torch.empty(base)[tuple(index)]))
            for other in range(-len(shape), len(shape)):
                base = list(shape)
                base[dim], base[other] = base[other], base[dim]
                views.append(("transpose_view", {"dim0": dim, "dim1": other}, torch.empty(base).transpose(dim, other)))
        for cut in range(len(shape) + 1):
            for bits in range(2 ** (len(shape) - cut)):
                base = [1 if bits >> place & 1 else size for place, size in enumerate(shape[cut:])]
                views.append(("expand_view", {"base_shape": base}, torch.empty(base).expand(shape)))
        for name, arguments, view in views:
            if view.is_contiguous():
                with pytest.raises(Misfit, match="contiguous"):
                    strides_of_preset(name, arguments, shape)
                continue
            assert list(view.shape) == shape
            assert strides_of_preset(name, arguments, shape) == list(view.stride()), (name, arguments, shape)
            compared += 1
    assert compared > 150
