"""A case written as a command line or a plan is read back as the same case."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_kit import again_by_plan, build, case_of, plan

from optest.plan import CaseRequest, command_line, request_from
from optest.settings import OPTIONS
from optest.spec import Fill, Layer, Skip, Status, TestCase, Tolerance, ToleranceLayer, Xfail

FLAGS = {flag: option for option in OPTIONS for flag in option.flags}


def request_of(argv: list[str]) -> CaseRequest:
    """Return the request of flags, read by the option table."""
    assert argv[0] == "run"
    options: dict[str, Any] = {}
    for flag, word in zip(argv[1::2], argv[2::2], strict=True):
        option = FLAGS[flag]
        value: Any = {"int": int, "float": float}.get(option.type, str)(word)
        assert option.repeat or option.name not in options
        options[option.name] = [*options.get(option.name, ()), value] if option.repeat else value
    return request_from(options)


def again_by_flags(case: TestCase) -> TestCase:
    argv = command_line(case)
    assert argv is not None
    (again,) = build(None, request_of(argv))
    return again


def stated(case: TestCase) -> dict[str, Any]:
    """Return everything of a case except its positions."""
    fields = {field.name: getattr(case, field.name) for field in dataclasses.fields(case) if field.init}
    for name in ("where", "origins", "name"):
        fields.pop(name)
    fields["tolerances"] = [(each.layer, each.tolerance, each.output) for each in case.tolerances]
    return fields


def test_the_line_of_the_design() -> None:
    text = "cases: [{op: matmul, dtypes: float16, shapes: {input0: 64x128, input1: 128x32}, seed: 7}]"
    assert command_line(case_of("backend: torch\n" + text)) == [
        "run",
        *("--op", "matmul", "--dtype", "float16,float16"),
        *("--shape", "input0=64x128", "--shape", "input1=128x32"),
        *("--seed", "7", "--backend", "torch"),
    ]


@pytest.mark.parametrize(
    "case",
    [
        "op: relu, shapes: {input0: []}",
        "op: relu, shapes: {input0: [0, 3]}, dtypes: int4",
        "op: add, shapes: {input0: 2x3}, attributes: {alpha: -1e-7}, dtypes: [f16, f32], timeout: 2.5, retries: 3",
        "op: sum, shapes: {input0: 2x3}, attributes: {dim: [0, 1]}, tolerance: {rtol: 1e-3, mismatch_ratio: 0.1}",
        "op: matmul, shapes: {input0: 2x3, input1: 3x4}, attributes: {mode: '2x3'}, generator: integer-exact",
        "op: matmul, shapes: {input0: 2x3, input1: 3x4}, attributes: {mode: 'true'}, generator: ones",
        "op: norm, shapes: {input0: 4x8, bias: 8}, attributes: {eps: 1e-5}, dtypes: f32, reference: my.ref:f",
        "op: cat, shapes: {input0: 2x3, input1: 4x3}, dtypes: [i8, i8], generator: my.gen:Gen",
        "op: relu, shapes: {input0: 2}, generator: {fill: uniform, low: 0, high: 1.5}",
        "op: relu, shapes: {input0: 2}, generator: 'uniform(low=-100, high=100)'",
        "op: sum, shapes: {input0: 2x3}, generator: {fill: integer-exact, terms: 99}",
        "op: drawn, shapes: {x: 4}",
        "op: drawn, shapes: {x: 4}, generator: randn",
        "op: mine, shapes: {x: 2, y: 3}, dtypes: f16, attributes: {k: 1, scale: 0}",
        "op: mine, shapes: {x: 2, y: 3}, dtypes: f16, attributes: {k: 1, scale: -0.0}",
        "op: ranged, shapes: {x: 4, y: 4}",
        "op: ranged, shapes: {x: 4, y: 4}, generator: randn",
        "op: mine, shapes: {x: 2, y: 3, a: 2, b: 4}, dtypes: f16, attributes: {k: 1, extra: [1, 2.0, 'x y']}",
        "op: mine, shapes: {x: 2, y: 3}, dtypes: [f16, i8], attributes: {k: 1, extra: null, other: ''}",
    ],
)
def test_round_trips(case: str) -> None:
    original = dataclasses.replace(case_of(f"cases: [{{{case}, seed: 5}}]"), base_dir="")
    by_flags = again_by_flags(original)
    assert by_flags.key == original.key
    for field in ("attributes", "inputs", "outputs", "generator", "reference", "timeout_s", "retries", "backend"):
        assert getattr(by_flags, field) == getattr(original, field), field
    assert stated(again_by_plan(dataclasses.replace(original, base_dir="/x"))) == stated(original) | {"base_dir": "/x"}


def test_a_dense_layout_is_its_shape() -> None:
    original = case_of("cases: [{op: relu, shapes: {input0: {shape: [2, 3], strides: [3, 1]}}}]")
    assert again_by_flags(original).key == original.key


@pytest.mark.parametrize(
    "case",
    [
        "op: relu, shapes: {input0: {shape: [2, 3], strides: [1, 2]}}",
        "op: relu, shapes: {input0: {shape: [2, 3], offset: 1}}",
        "op: add, shapes: {input0: 2}, generator: {input0: ones}",
        "op: relu, shapes: {input0: 2}, generator: {fill: data, values: [1e-300, .inf, -.inf, 7]}",
        "op: relu, shapes: {input0: 2}, generator: {fill: file, path: x.npy}",
        "op: relu, shapes: {input0: 2}, xfail: {reason: known, status: error}",
        "op: relu, shapes: {input0: 2}, xfail: {reason: known, status: any, strict: false}",
        "op: relu, shapes: {input0: 2}, skip: later",
        "op: relu, shapes: {input0: 2}, invariants: [repeat, batch(input)]",
        "op: relu, shapes: {input0: 2}, invariants: []",
        "op: relu, shapes: {input0: 2}, expects_error: {type: ValueError, match: size}",
        r"op: relu, shapes: {input0: 2}, expects_error: {type: ValueError, pattern: 'size \[\d+\]'}",
        "op: relu, shapes: {input0: 2}, backend_config: {ascend: {inputs: [{tensor: input0, path: a}]}}",
        "op: mine, shapes: {x: 2, y: 3, a: 2, b: 4}, attributes: {k: 1}, dtypes: {x: f16, y: f16, a: bool, b: f16}",
        "op: mine, shapes: {x: 2, y: 3}, attributes: {k: 1, extra: {a: 1}}, dtypes: f16",
    ],
)
def test_what_flags_cannot_say_a_plan_can(case: str) -> None:
    original = case_of(f"cases: [{{{case}, description: 'it''s \"so\"', tags: [a b, 'no']}}]")
    assert command_line(original) is None
    again = again_by_plan(original)
    assert again.key == original.key
    assert stated(again) == stated(original)


def test_base_dir_keeps_relative_paths_working(tmp_path: Path) -> None:
    text = "cases: [{op: relu, shapes: {input0: 2}, generator: {fill: file, path: x.npy}}]"
    (original,) = build(plan(text, str(tmp_path / "plan.yaml")))
    assert original.base_dir == str(tmp_path)
    again = again_by_plan(original, str(tmp_path / "deep" / "again.yaml"))
    assert again.base_dir == str(tmp_path)
    assert again.inputs[0].fill.parameters == {"path": "x.npy"}
    assert again.key == original.key


def test_python_marks_without_reason_stay() -> None:
    original = case_of("cases: [{op: relu, shapes: {input0: 2}}]")
    again = again_by_plan(dataclasses.replace(original, skip=Skip(reason=""), xfail=Xfail(reason=" ")))
    assert (again.skip, again.xfail) == (Skip(reason="no reason given"), Xfail(reason="no reason given"))


def test_names_survive_in_a_plan() -> None:
    original = case_of('cases: [{op: relu, shapes: {input0: 2}, name: "a: [b] # \\u00e9 \\U0001f600"}]')
    assert again_by_plan(original).name == original.name


def test_chip_and_backend_options() -> None:
    text = "backend: ascend\nchip: ascend910b\ncases: [{op: relu, shapes: {input0: 2}, backend_config: CONFIG}]"
    original = case_of(text.replace("CONFIG", "{ascend: {workdir: x, command: [bash, run.sh, '-v']}}"))
    assert command_line(original) is None  # workdir is relative to the plan
    free = dataclasses.replace(original, base_dir="")
    again = again_by_flags(free)
    assert again.backend_config == original.backend_config
    assert again.backend == original.backend
    assert stated(again_by_plan(original)) == stated(original)
    for config in ("{ascend: {env: {A: b}}}", "{ascend: {a.b: 1}}"):
        assert command_line(dataclasses.replace(case_of(text.replace("CONFIG", config)), base_dir="")) is None


def test_tolerance_layers_become_one_flag() -> None:
    entry = "{op: sum, shapes: {input0: 2}, tolerance: {rtol: 1}}"
    text = f"defaults: {{tolerance: {{rtol: 1e-2, atol: 1e-9}}}}\ncases: [{entry}]"
    original = case_of(text)
    argv = command_line(original)
    assert argv is not None
    assert argv[argv.index("--tolerance") + 1] == "rtol=1,atol=1e-09"
    assert stated(again_by_plan(original)) == stated(original)
    overridden = case_of(text, CaseRequest(tolerance=Tolerance(atol=3)))
    again = again_by_plan(overridden)
    assert [each.tolerance for each in again.tolerances] == [Tolerance(rtol=1e-2, atol=1e-9), Tolerance(rtol=1, atol=3)]


def test_plan_tolerance_default_is_no_flag() -> None:
    text = "defaults: {tolerance: {rtol: 1}}\ncases: [{op: OP, shapes: {input0: 2}, dtypes: DT, generator: GEN}]"

    def line(op: str, dtype: str, generator: str = "randn") -> list[str] | None:
        return command_line(case_of(text.replace("OP", op).replace("DT", dtype).replace("GEN", generator)))

    assert line("sum", "f32") is not None
    assert line("sum", "i32") is None
    assert line("sum", "f32", "integer-exact") is None
    assert line("relu", "f32") is None  # movement here
    own = "cases: [{op: relu, shapes: {input0: 2}, tolerance: {rtol: 1}}]"
    assert command_line(case_of(own)) is not None


def test_tolerances_of_single_outputs_need_a_plan() -> None:
    case = case_of("cases: [{op: sum, shapes: {input0: 2}}]")
    layer = ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(rtol=1), output="out")
    assert command_line(dataclasses.replace(case, tolerances=(layer,))) is None


@given(
    shape=st.lists(st.integers(0, 9), max_size=4),
    alpha=st.floats(allow_nan=False) | st.integers(-5, 5),
    flags=st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["float32", "float16", "int32"]),
            "seed": st.integers(0, 2**64 - 1),
            "generator": st.sampled_from(["randn", "ones", "integer-exact"]),
            "timeout": st.none() | st.floats(1e-3, 1e6),
        }
    ),
    more=st.fixed_dictionaries(
        {
            "tolerance": st.none() | st.builds(Tolerance, rtol=st.floats(0, 1), atol=st.none() | st.floats(0, 1e300)),
            "reference": st.none() | st.just("a.b:c"),
            "retries": st.integers(0, 9),
        }
    ),
)
def test_any_case_that_flags_can_say_round_trips(
    shape: list[int], alpha: float, flags: dict[str, Any], more: dict[str, Any]
) -> None:
    request = request_from({"op": ["add"], **flags})
    request = dataclasses.replace(request, shapes={"input0": tuple(shape)}, attributes={"alpha": alpha}, **more)
    (original,) = build(None, request)
    again = again_by_flags(original)
    assert again.key == original.key
    assert stated(again) == stated(original)
    by_plan = again_by_plan(original, "again.yaml")
    assert by_plan.key == original.key
    assert [each.tolerance for each in by_plan.tolerances] == [each.tolerance for each in original.tolerances]


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)


@given(
    shape=st.lists(st.integers(1, 5), max_size=3),
    data=st.data(),
    text=TEXT,
    values=st.lists(st.floats() | st.integers() | st.booleans() | st.none() | TEXT, max_size=4),
)
def test_any_case_round_trips_through_a_plan(shape: list[int], data: Any, text: str, values: list[Any]) -> None:
    strides = data.draw(st.lists(st.integers(0, 7), min_size=len(shape), max_size=len(shape)))
    offset = data.draw(st.integers(0, 9))
    original = case_of("cases: [{op: mine, shapes: {x: 2, y: 3}, attributes: {k: 1}, dtypes: f16}]")
    first, second = original.inputs
    spec = dataclasses.replace(first.spec, shape=tuple(shape), strides=tuple(strides), offset=offset)
    fill = Fill(kind="data", parameters={"values": values, text or "k": text})
    if not text.isprintable() and any(0xD800 <= ord(char) < 0xE000 for char in text):
        return
    original = dataclasses.replace(
        original,
        inputs=(dataclasses.replace(first, spec=spec, fill=fill), second),
        attributes={"k": 1, "scale": 0, "other": {"a": values, text: [text]}},
        description=text,
        skip=Skip(reason=f"x{text}"),
        xfail=Xfail(reason=f"y{text}", status=Status.TIMEOUT),
    )
    again = again_by_plan(original)
    assert again.key == original.key
    assert (again.description, again.skip, again.xfail) == (original.description, original.skip, original.xfail)
    assert str(again.inputs) == str(original.inputs) or spec.is_dense
