"""Cases from a plan and the command line: layers, defaults, and each problem with its line."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plan_kit import build, case_of, cases_of, problems_of, write
from texts import says, says_exactly

from optest.errors import PlanError, UsageError
from optest.plan import CaseRequest, read_plan, request_from
from optest.spec import Layer, TestCase, Tolerance, dtype


def problems(text: str, request: CaseRequest | None = None, **more: Any) -> list[tuple[str, int, str, str]]:
    return [(each.file, each.line, each.path, each.message) for each in problems_of(text, request, **more)]


def case_from(entry: str, request: CaseRequest | None = None) -> TestCase:
    """The case of a plan with this entry."""
    return case_of(f"cases: [{{{entry}}}]", request)


def fills(case: TestCase) -> list[str]:
    return [str(each.fill) for each in case.inputs]


def one_problem(text: str, request: CaseRequest | None = None) -> tuple[int, str, str]:
    ((file, line, path, message),) = problems(text, request)
    assert file == "plan.yaml"
    return line, path, message


def flag_problem(request: CaseRequest, text: str | None = None) -> tuple[str, str, str]:
    """Return flag, message and hint of a request's only problem."""
    (problem,) = problems_of(text, request)
    assert (problem.file, problem.line) == ("command line", 0)
    return problem.path, problem.message, problem.hint


def names(case: TestCase) -> list[str]:
    return [each.name for each in case.dtypes]


# What a plan means


def test_a_case_from_a_plan() -> None:
    case = case_of(
        """\
        version: 1
        seed: 3
        cases:
          - op: elementwise_add
            name: first
            description: words
            tags: [x]
            dtypes: half
            shapes: {input0: 2x3, other: [2, 3], output0: [2, 3]}
            attributes: {alpha: 2}
            tolerance: {rtol: 1e-3}
            timeout: 5
            retries: 2
        """
    )
    assert (case.descriptor.name, case.attributes) == ("add", {"alpha": 2.0})
    assert [(each.name, each.path) for each in case.inputs] == [("input", "input0"), ("other", "input1")]
    assert (names(case), fills(case)) == (["float16", "float16"], ["randn", "randn"])
    assert case.shapes == {"input0": (2, 3), "input1": (2, 3)}
    assert [str(spec) for spec in case.outputs] == ["float16[2x3]"]
    assert (case.seed, case.name, case.description, case.timeout_s, case.retries) == (3, "first", "words", 5, 2)
    assert (case.tags, case.where) == (("x", "pointwise"), "plan.yaml:4")
    assert [(each.layer, each.where) for each in case.tolerances] == [(Layer.CASE, "plan.yaml:11")]
    assert (case.origins["dtypes"], case.origins["seed"]) == ("plan.yaml:8", "plan.yaml:2")


DEFAULTS = "seed: 1\ndefaults: {seed: 2, timeout: 2, retries: 2}\n"


ZEROS = ", seed: 0, timeout: 3, retries: 0"
NINE = CaseRequest(seed=9, timeout_s=4, retries=1)


@pytest.mark.parametrize(
    ("top", "entry", "request_", "expected", "origin"),
    [
        ("", "", CaseRequest(), (0, None, 0), None),
        ("seed: 1\n", "", CaseRequest(), (1, None, 0), "plan.yaml:1"),
        (DEFAULTS, "", CaseRequest(), (2, 2, 2), "plan.yaml:2 defaults"),
        (DEFAULTS, ZEROS, CaseRequest(), (0, 3, 0), "plan.yaml:3"),
        (DEFAULTS, ZEROS, NINE, (9, 4, 1), "command line"),
        (DEFAULTS, "", CaseRequest(retries=0), (2, 2, 0), "plan.yaml:2 defaults"),
    ],
)
def test_layers_of_seed_timeout_and_retries(
    top: str, entry: str, request_: CaseRequest, expected: Any, origin: str | None
) -> None:
    case = case_of(f"{top}cases: [{{op: relu, shapes: {{input0: 2}}{entry}}}]", request_)
    assert ((case.seed, case.timeout_s, case.retries), case.origins.get("seed")) == (expected, origin)


def test_layers_of_the_tolerance() -> None:
    text = """\
    defaults: {tolerance: {rtol: 1e-2}}
    cases:
      - {op: relu, shapes: {input0: 2}}
      - {op: relu, shapes: {input0: 2}, tolerance: {atol: 1}}
    """
    first, second = cases_of(text, CaseRequest(tolerance=Tolerance(rtol=0)))
    assert [(each.layer, each.where) for each in first.tolerances] == [
        (Layer.PLAN, "plan.yaml:1"),
        (Layer.COMMAND_LINE, "--tolerance"),
    ]
    assert [each.layer for each in second.tolerances] == [Layer.PLAN, Layer.CASE, Layer.COMMAND_LINE]
    assert second.tolerances[1].where == "plan.yaml:4"


def test_backend_config_is_merged_key_by_key() -> None:
    text = """\
    backend: ascend
    chip: Ascend910B
    defaults: {backend_config: {ascend: {workdir: a, command: [x]}, torch: {threads: 1}}}
    cases: [{op: relu, shapes: {input0: 2}, backend_config: {ascend: {command: [y]}}}]
    """
    case = case_of(text)
    assert case.backend_config == {"ascend": {"workdir": "a", "command": ["y"]}, "torch": {"threads": 1}}
    assert (case.backend.name, case.backend.chip) == ("ascend", "Ascend910B")
    flags = {"backend_config.ascend.env.A": "1", "backend_config.ascend.workdir": "b"}
    config = case_of(text, CaseRequest(attributes=flags)).backend_config["ascend"]
    assert config == {"workdir": "b", "command": ["y"], "env": {"A": "1"}}


def test_default_attributes_reach_the_operators_that_have_them() -> None:
    text = """\
    defaults: {attributes: {alpha: 2, axis: 0}}
    cases:
      - {op: add, shapes: {input0: 2}}
      - {op: sum, shapes: {input0: 2x3}}
      - {op: sum, shapes: {input0: 2x3}, attributes: {dim: 1}}
      - {op: relu, shapes: {input0: 2}}
    """
    assert [case.attributes for case in cases_of(text)] == [{"alpha": 2.0}, {"dim": (0,)}, {"dim": (1,)}, {}]
    line, path, message = one_problem(text.replace("axis", "axes"))
    assert (line, path) == (1, "$.defaults.attributes.axes")
    assert says_exactly(message, "plan.unknown_attribute_of_any")


def test_layer_with_two_names_of_one_attribute() -> None:
    entry = "{op: sum, shapes: {input0: 2x3}, attributes: {dim: 0, axis: 1}}"
    message = "attribute dim is set twice, also as axis"
    found = one_problem(f"defaults: {{attributes: {{dim: 0}}}}\ncases:\n  - {entry}")
    assert found == (3, "$.cases[0].attributes.axis", message)


@pytest.mark.parametrize(
    ("stated", "wanted"),
    [
        ("", ["float32", "float32"]),
        ("dtypes: float16", ["float16", "float16"]),
        ("dtypes: [f16, fp32]", ["float16", "float32"]),
        ('dtypes: "f16,f32"', ["float16", "float32"]),
        ("dtypes: {input0: int32}", ["int32", "int32"]),
        ("dtypes: {other: float16}", ["float16", "float16"]),
        ("dtypes: {input0: float16, other: float32}", ["float16", "float32"]),
    ],
)
def test_dtypes(stated: str, wanted: list[str]) -> None:
    assert names(case_from(f"op: add, shapes: {{input0: 2}}, {stated}")) == wanted


@pytest.mark.parametrize(
    ("entry", "inputs", "dtypes"),
    [
        ("shapes: {input0: 4x8, weight: 8}, dtypes: float32", "input weight", "float32 float32"),
        ("shapes: {input0: 4x8, bias: 8}, dtypes: float32", "input bias", "float32 float32"),
        (
            "shapes: {input0: 4, weight: 4, bias: 4}, dtypes: {input: f16}",
            "input weight bias",
            "float16 float32 float32",
        ),
    ],
)
def test_optional_inputs(entry: str, inputs: str, dtypes: str) -> None:
    case = case_from(f"op: norm, attributes: {{eps: 1e-5}}, {entry}")
    assert names(case) == dtypes.split()
    paths = {"input": "input0", "weight": "input1", "bias": "input2"}
    assert [(each.name, each.path) for each in case.inputs] == [(name, paths[name]) for name in inputs.split()]


def test_variadic_inputs() -> None:
    case = case_from("op: cat, shapes: {input0: 2x3, input1: 4x3}")
    assert [each.name for each in case.inputs] == ["tensors0", "tensors1"]
    assert case.outputs[0].shape == (6, 3)
    found = one_problem("cases: [{op: cat, shapes: {input0: 2x3, input2: 4x3}}]")
    assert found == (1, "$.cases[0].shapes", "cat needs a shape of input1 (tensors1)")


def test_layouts() -> None:
    text = "cases: [{op: relu, shapes: {input0: {shape: [2, 3], strides: [1, 2], offset: 4}}}]"
    spec = case_of(text).inputs[0].spec
    assert (spec.shape, spec.strides, spec.offset) == ((2, 3), (1, 2), 4)
    assert one_problem(text.replace("[1, 2]", "[1]"))[:2] == (1, "$.cases[0].shapes.input0")
    assert says(one_problem(text.replace("[1, 2]", "[-9, 0]"))[2], "plan.reach_elements_before_the")


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_scalars_and_empty_tensors(shape: tuple[int, ...]) -> None:
    assert case_from(f"op: relu, shapes: {{input0: {list(shape)}}}").outputs[0].shape == shape


def test_fills() -> None:
    text = """\
    defaults: {generator: {fill: uniform, low: -1, high: 1}}
    cases:
      - {op: add, shapes: {input0: 2}}
      - {op: add, shapes: {input0: 2}, generator: {other: ones}}
      - {op: add, shapes: {input0: 2}, generator: ones}
      - {op: add, shapes: {input0: 2}, generator: my.gen:Gen}
    """
    uniform = "uniform(low=-1, high=1)"
    assert [(fills(case), case.generator) for case in cases_of(text)] == [
        ([uniform, uniform], None),
        ([uniform, "ones"], None),
        (["ones", "ones"], None),
        (["randn", "randn"], "my.gen:Gen"),
    ]
    for case in cases_of(text, CaseRequest(generator="ones")):
        assert (case.generator, fills(case)) == (None, ["ones", "ones"])


@pytest.mark.parametrize(
    ("entry", "generator", "expected"),
    [
        ("op: drawn, shapes: {x: 2}", "my.gen:Gen", ["randn"]),
        ("op: drawn, shapes: {x: 2}, generator: ones", None, ["ones"]),
        ("op: drawn, shapes: {x: 2}, generator: {x: ones}", None, ["ones"]),
        ("op: ranged, shapes: {x: 2, y: 2}", None, ["randn", "uniform(low=1, high=2)"]),
        ("op: ranged, shapes: {x: 2, y: 2}, generator: {x: ones}", None, ["ones", "uniform(low=1, high=2)"]),
        ("op: ranged, shapes: {x: 2, y: 2}, generator: ones", None, ["ones", "ones"]),
    ],
)
def test_generator_and_fills_of_the_operator(entry: str, generator: str | None, expected: list[str]) -> None:
    case = case_from(entry)
    assert (case.generator, fills(case)) == (generator, expected)


def test_fills_by_input_exclude_a_generator() -> None:
    text = """\
    defaults: {generator: my.gen:Gen}
    cases:
      - {op: add, shapes: {input0: 2}, generator: {input0: ones}}
      - {op: add, shapes: {input0: 2}, generator: {input0: ones, input1: ones}}
    """
    message = "fills by input leave out inputs, which my.gen:Gen cannot generate singly"
    assert one_problem(text) == (3, "$.cases[0].generator", message)


@pytest.mark.parametrize(
    ("case", "terms"),
    [
        ("op: matmul, shapes: {input0: 3x5, input1: 5x2}", 5),
        ("op: matmul, shapes: {input0: 5x3, input1: 5x2}, attributes: {transA: true}", 5),
        ("op: sum, shapes: {input0: 3x5}", 15),
        ("op: sum, shapes: {input0: 3x5}, attributes: {dim: 1}", 5),
        ("op: sum, shapes: {input0: [0, 5]}", 0),
        ("op: add, shapes: {input0: 3x5}", None),
    ],
)
def test_integer_exact_fill_gets_sum_length(case: str, terms: int | None) -> None:
    found = case_from(f"{case}, generator: integer-exact")
    assert {each.fill.parameters.get("terms") for each in found.inputs} == {terms}
    stated = case_from(f"{case}, generator: {{fill: integer-exact, terms: 99}}")
    assert {each.fill.parameters["terms"] for each in stated.inputs} == {99}


def test_outputs_of_an_operator_without_inference() -> None:
    text = "cases: [{op: mine, shapes: {x: 2, y: 3SHAPES}, attributes: {k: 1, other: [1, a]}, dtypes: DTYPES}]"

    def stated(shapes: str, dtypes: str) -> str:
        return text.replace("SHAPES", shapes).replace("DTYPES", dtypes)

    assert case_of(stated("", "float16")).outputs == ()
    case = case_of(stated(", a: 2, output1: 4", "float16"))
    assert [str(spec) for spec in case.outputs] == ["float16[2]", "float16[4]"]
    assert case.attributes == {"k": 1, "scale": 0, "other": [1, "a"]}
    case = case_of(stated(", a: 2, b: 4", "{x: float16, y: int8, a: bool, b: int4}"))
    assert [str(spec) for spec in case.outputs] == ["bool[2]", "int4[4]"]
    assert says(one_problem(stated(", a: 2", "float16"))[2], "plan.the_shape_of_output")
    found = [message for *_, message in problems(stated(", a: 2, b: 4", "[float16, int8]"))]
    assert found == [f"the dtype of output{index} is missing, and the inputs differ" for index in (0, 1)]


def test_expected_error_accepts_unfit_arguments() -> None:
    entry = "op: matmul, shapes: {input0: 2x3, input1: 4x5}, dtypes: [f16, i8]"
    assert case_from(f"{entry}, expects_error: {{type: ValueError}}").outputs == ()
    with pytest.raises(PlanError):
        case_from(entry)


def test_ids_are_unique() -> None:
    text = """\
    cases:
      - {op: relu, shapes: {input0: 2}}
      - {op: relu, shapes: {input0: 2}, seed: 1}
      - {op: relu, shapes: {input0: 2}, name: "relu[float32](2)#3"}
      - {op: relu, shapes: {input0: 2}, seed: 2}
    """
    base = "relu[float32](2)"
    assert [case.id for case in cases_of(text)] == [base, f"{base}#2", f"{base}#3", f"{base}#4"]


def test_relative_paths_keep_text_and_base_dir(tmp_path: Path) -> None:
    text = "cases: [{op: relu, shapes: {input0: 2}, generator: {fill: file, path: x.npy}}]"
    (case,) = build(read_plan(write(tmp_path, text)))
    assert case.inputs[0].fill.parameters == {"path": "x.npy"}
    assert case.base_dir == str(tmp_path)
    assert case.key == case_of(text).key


def test_building_leaves_the_collector_as_it_was() -> None:
    assert gc.isenabled()
    cases_of("cases: [{op: relu, shapes: {input0: 2}}]")
    with pytest.raises(PlanError):
        cases_of("cases: [{op: rel}]")
    assert gc.isenabled()


def test_merged_keys_have_the_line_of_the_case() -> None:
    text = """\
    defaults: &d {tolerance: {rtol: 1}}
    cases:
      - {op: relu, shapes: {input0: 2}}
      - <<: *d
        op: relu
        shapes: {input0: 3}
    """
    assert cases_of(text)[1].tolerances[1].where == "plan.yaml:4"


# The command line


def test_one_case_from_flags() -> None:
    flags = {"op": ["add"], "dtype": "f16,f32", "shape": ["input0=2x3"], "attr": ["alpha=2"], "seed": 7}
    (case,) = build(None, request_from({**flags, "backend": "torch", "tolerance": "rtol=1e-3"}))
    assert case.identifier() == "add[float16,float32](2x3, 2x3, alpha=2.0)"
    assert (case.seed, case.backend.name, case.where, case.base_dir) == (7, "torch", "command line", "")
    assert case.tolerances[0].layer is Layer.COMMAND_LINE
    assert case.origins["dtypes"] == "command line"


def test_op_flag_filters_and_extends_the_plan() -> None:
    text = """\
    cases:
      - {op: relu, shapes: {input0: 2}, name: a}
      - {op: add, shapes: {input0: 2}, name: b}
      - {op: elementwise_add, shapes: {input0: 3}, name: c}
    """
    assert [case.id for case in cases_of(text, CaseRequest(ops=("add",)))] == ["b", "c"]
    request = CaseRequest(ops=("elementwise_add", "add", "sum"), shapes={"input0": (5,)})
    found = cases_of(text, request)
    assert [case.id for case in found] == ["b", "c", "sum[float32](5)"]
    assert [case.where for case in found] == ["plan.yaml:3", "plan.yaml:4", "command line"]


def test_flags_win_over_the_plan() -> None:
    text = "cases: [{op: add, shapes: {input0: 2}, dtypes: int32, attributes: {alpha: 1}, reference: a:b}]"
    request = CaseRequest(
        dtypes=(dtype("float16"),), shapes={"input": (4,), "other": (4,)}, attributes={"alpha": 3}, reference="c:d"
    )
    case = case_of(text, request)
    assert case.identifier() == "add[float16](4, 4, alpha=3.0)"
    assert case.reference == "c:d"


def test_nothing_to_run() -> None:
    with pytest.raises(UsageError, match="nothing to run"):
        build(None)
    assert cases_of("cases: []") == []


@pytest.mark.parametrize(
    ("flags", "place", "message"),
    [
        ("op=ad", "--op", "unknown operator 'ad'"),
        ("op=matmul", "--shape", "matmul needs a shape of input0 (input), input1 (other)"),
        ("op=matmul shape=input0=2x3", "--shape", "matmul needs a shape of input1 (other)"),
        ("op=relu shape=input9=2", "--shape", "unknown tensor 'input9'"),
        ("op=matmul shape=input0=2x3 shape=input1=4x5", "--shape", "inner sizes are 3 and 4, expected equal"),
        ("op=relu shape=input0=2 dtype=f16,f16", "--dtype", "dtypes has 2 entries, expected 1 entry (input0)"),
        ("op=add shape=input0=2 attr=alpa=1", "--attr", "unknown attribute of add 'alpa'"),
        ("op=add shape=input0=2 attr=alpha=x", "--attr", "attribute alpha is 'x', "),
        ("op=relu shape=input0=2 attr=backend_config.ascend=1", "--attr", "backend_config.ascend names no option"),
        ("op=relu shape=input0=2 attr=backend_config.ascnd.x=1", "--attr", "unknown backend 'ascnd'"),
        ("op=relu shape=input0=2 generator=onse", "--generator", "unknown fill 'onse'"),
        ("op=relu shape=input0=2 reference=f", "--reference", "reference is 'f', expected an import path: package"),
        ("op=relu shape=input0=2 backend=numpi", "--backend", "unknown backend 'numpi'"),
        ("op=relu shape=input0=2 chip=a100", "--chip", "unknown chip of backend numpy 'a100'"),
        ("op=norm shape=input0=2", "--attr", "norm needs the attribute eps"),
    ],
)
def test_wrong_flags(flags: str, place: str, message: str) -> None:
    options: dict[str, Any] = {}
    for word in flags.split():
        name, _, value = word.partition("=")
        options[name] = [*options.get(name, ()), value] if name in ("op", "shape", "attr") else value
    found, said, _ = flag_problem(request_from(options))
    assert found == place
    assert said.startswith(message)


def test_missing_shapes_come_with_an_example() -> None:
    _, _, hint = flag_problem(CaseRequest(ops=("matmul",)))
    assert hint == "for example --shape input0=2x3 --shape input1=3x3"


def test_wrong_flag_over_plan_is_reported_once() -> None:
    text = "cases: [{op: relu, shapes: {input0: 2}}, {op: relu, shapes: {input0: 3}}]"
    assert flag_problem(CaseRequest(generator="onse"), text)[1] == "unknown fill 'onse'"


# What is wrong with a plan


@pytest.mark.parametrize(
    ("case", "path", "message"),
    [
        ("op: reluu", "op", "unknown operator 'reluu'"),
        ("op: relu", "shapes", "relu needs a shape of input0 (input)"),
        ("op: relu, shapes: {inptu: 2}", "shapes.inptu", "unknown tensor 'inptu'"),
        ("op: relu, shapes: {input: 2, input0: 2}", "shapes.input0", "the shape of input0 is set twice"),
        ("op: relu, shapes: {input: 2, out: 3}", "shapes.out", "the shape of output0 is 3, but relu returns 2"),
        (
            "op: relu, shapes: {input: 2}, dtypes: {input: f16, output0: f32}",
            "dtypes.output0",
            "the dtype of output0 is float32, but relu returns float16",
        ),
        ("ADD, dtypes: [f16, f16, f16]", "dtypes", "dtypes has 3 entries, expected"),
        ("ADD, dtypes: int8", "dtypes", "add is not defined for (int8, int8)"),
        ("ADD, dtypes: {inp: f16}", "dtypes.inp", "unknown tensor 'inp'"),
        ("ADD, dtypes: {input: f16, input0: f16}", "dtypes.input0", "the dtype of input0 is"),
        ("ADD, attributes: {alpha: yep}", "attributes.alpha", "attribute alpha is 'yep', expected a number"),
        ("ADD, attributes: {beta: 1}", "attributes.beta", "unknown attribute of add 'beta'"),
        ("op: sum, shapes: {input0: 2}, attributes: {dim: 0, axis: 0}", "attributes", "attribute dim is set twice"),
        ("op: norm, shapes: {input0: 2}", "attributes", "norm needs the attribute eps"),
        ("op: add, shapes: {input0: 2, input1: 3}", "shapes", "shapes differ: [(2,), (3,)]"),
        ("op: matmul, shapes: {input0: 2, input1: 3}", "shapes", "these inputs do not fit matmul: ValueError: "),
        ("RELU, generator: rand", "generator", "unknown fill 'rand'"),
        ("RELU, generator: {inp: ones}", "generator.inp", "unknown tensor 'inp'"),
        ("RELU, generator: {out: ones}", "generator.out", "out is an output, but fills are"),
        ("RELU, generator: {input: ones, input0: ones}", "generator.input0", "the fill of input0 is set twice"),
        ("RELU, generator: {input0: {fill: uniform, low: a}}", "generator.input0", "low is 'a', expected a number"),
        ("RELU, reference: ref", "reference", "reference is 'ref', expected an import"),
        ("RELU, backend_config: {ascnd: {}}", "backend_config.ascnd", "unknown backend 'asc"),
    ],
)
def test_problem_has_line_and_path(case: str, path: str, message: str) -> None:
    for op in ("relu", "add"):
        case = case.replace(op.upper(), f"op: {op}, shapes: {{input0: 2}}")
    line, found_path, found = one_problem(f"version: 1\ncases:\n\n  - {{{case}}}\n")
    assert (line, found_path) == (4, f"$.cases[0].{path}")
    assert found.startswith(message)


@pytest.mark.parametrize(
    ("top", "line", "path", "message"),
    [
        ("backend: torch\nchip: a100", 2, "$.chip", "unknown chip of backend torch 'a100'"),
        ("backend: ascend", 2, "$.cases[0]", "command is missing"),
    ],
)
def test_backend_of_plan_is_checked(top: str, line: int, path: str, message: str) -> None:
    assert one_problem(f"{top}\ncases: [{{op: relu, shapes: {{input0: 2}}}}]") == (line, path, message)


def test_places_of_driver_options() -> None:
    more = {"check_backend": lambda case: ["wrong"]}
    case = "{op: relu, shapes: {input0: 2}}"
    own = "cases:\n  - {op: relu, shapes: {input0: 2}, backend_config: {numpy: {}}}\n"
    assert problems(own, **more)[0][:3] == ("plan.yaml", 2, "$.cases[0].backend_config.numpy")
    shared = f"defaults: {{backend_config: {{numpy: {{}}}}}}\ncases:\n  - {case}\n  - {case}\n"
    assert problems(shared, **more) == [("plan.yaml", 1, "$.defaults.backend_config.numpy", "wrong")]
    misspelt = {"check_backend": lambda case: ["backend_config.numpy.tiel is unknown"]}
    lines = "    backend_config:\n      numpy:\n        tile: 1\n        {}: 1\n"
    own = "cases:\n  - op: relu\n    shapes: {input0: 2}\n" + lines.format("tiel")
    assert problems(own, **misspelt)[0][1:3] == (7, "$.cases[0].backend_config.numpy.tiel")
    both = "defaults: {backend_config: {numpy: {tiel: 1}}}\n" + own.replace("tiel", "stages")
    assert problems(both, **misspelt)[0][1:3] == (1, "$.defaults.backend_config.numpy.tiel")
    missing = {"check_backend": lambda case: ["backend_config.numpy.command is missing"]}
    assert problems(own, **missing)[0][1:3] == (5, "$.cases[0].backend_config.numpy")
    flags = CaseRequest(ops=("relu",), shapes={"input0": (2,)})
    (problem,) = problems_of(None, flags, **more)
    assert str(problem) == "command line: wrong", "it may come from a flag of the backend's own"


def test_untrusted_plans_run_nothing_of_their_own() -> None:
    text = """\
    backend: ascend
    defaults:
      backend_config: {ascend: {prepare: [[make, clean]], workdir: x}}
      generator: my.gen:Gen
    cases:
      - {op: relu, shapes: {input0: 2}, reference: my.ref:f}
      - {op: relu, shapes: {input0: 2}, backend_config: {ascend: {command: [bash, run.sh], env: {A: b}}}}
    """
    assert len(cases_of(text)) == 2
    found = [(line, path, message) for _, line, path, message in problems(text, CaseRequest(untrusted=True))]
    says = "--untrusted refuses to run code that the plan names: "
    assert found == [
        (3, "$.defaults.backend_config.ascend.prepare", f"{says}[['make', 'clean']]"),
        (4, "$.defaults.generator", f"{says}my.gen:Gen"),
        (6, "$.cases[0].reference", f"{says}my.ref:f"),
        (7, "$.cases[1].backend_config.ascend.command", f"{says}bash run.sh"),
        (7, "$.cases[1].backend_config.ascend.env", f"{says}{{A: 'b'}}"),
    ]


def test_untrusted_concerns_the_plan_alone() -> None:
    text = "cases: [{op: relu, shapes: {input0: 2}, generator: ones}]"
    request = CaseRequest(untrusted=True, reference="mine:f", attributes={"backend_config.ascend.command": ["x"]})
    assert case_of(text, request).reference == "mine:f"
    assert case_of("cases: [{op: drawn, shapes: {x: 2}}]", CaseRequest(untrusted=True)).generator == "my.gen:Gen"


def test_untrusted_checks_unselected_cases() -> None:
    text = "cases: [{op: relu, shapes: {input0: 2}, reference: a:b}, {op: add, shapes: {input0: 2}}]"
    assert len(problems(text, CaseRequest(untrusted=True, ops=("add",)))) == 1


def test_key_and_signature_ignore_spelling() -> None:
    one = case_from("op: add, shapes: {input0: 2x3}, dtypes: f16")
    shapes = "{input: [2, 3], other: [2, 3], out: [2, 3]}"
    other = case_from(
        f"op: elementwise_add, name: n, tags: [t], shapes: {shapes}, dtypes: [half, half], attributes: {{alpha: 1}}, "
        "generator: randn, tolerance: {rtol: 1}, seed: 0"
    )
    assert one.key == other.key
    assert replace(one, seed=1).key != one.key
