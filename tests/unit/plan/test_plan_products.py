"""Products: each combination of the axes is a case, checked as if it were written out."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_kit import again_by_plan, build, case_of, cases_of, plan, problem_of, problems_of
from texts import says, says_exactly

from optest.errors import PlanError
from optest.plan import CaseRequest, case_plan, expansion, explain_case, parse_plan
from optest.plan.layers import CommonParts, Statement
from optest.plan.make_case import make_case
from optest.plan.product import MAX_COMBINATIONS
from optest.spec import TensorSpec, TestCase, Tolerance, dtype


def cases_from(entry: str, request: CaseRequest | None = None) -> list[TestCase]:
    """The cases of a plan with one entry."""
    return cases_of(f"cases: [{{{entry}}}]", request)


def ids(entry: str, request: CaseRequest | None = None) -> list[str]:
    return [case.id for case in cases_from(entry, request)]


def faults(text: str, request: CaseRequest | None = None) -> list[tuple[int, str, str]]:
    return [(each.line, each.path, each.message) for each in problems_of(text, request)]


def fault(text: str, request: CaseRequest | None = None) -> tuple[int, str, str]:
    (found,) = faults(text, request)
    return found


def fault_in(entry: str) -> tuple[str, str]:
    """Path below the entry and message of its only problem."""
    _, path, message = fault(f"cases: [{{{entry}}}]")
    return path.removeprefix("$.cases[0]."), message


def test_lists_of_dtypes_and_sizes_give_all_combinations() -> None:
    axes = "{dtypes: [float16, float32], m: [1, 3], attributes.trans_a: [false, true]}"
    cases = cases_from(f"op: matmul, product: {axes}, shapes: {{input0: [$m, $m], input1: [$m, 4]}}")
    assert [case.id for case in cases] == [
        f"matmul[{name}]({m}x{m}, {m}x4{transposed})"
        for name in ("float16", "float32")
        for m in (1, 3)
        for transposed in ("", ", trans_a=True")
    ]
    assert len({case.key for case in cases}) == 8
    assert cases[3].outputs == (TensorSpec(dtype=dtype("float16"), shape=(3, 4)),)


def test_axis_values_have_the_key_forms() -> None:
    dtype_axis = "[float32, [float16, float32], {input0: float64}]"
    cases = cases_from(f"op: add, product: {{dtypes: {dtype_axis}, shapes.input0: [[2, 3], 4, scalar]}}")
    dtypes = [[each.name for each in case.dtypes] for case in cases[::3]]
    assert dtypes == [["float32", "float32"], ["float16", "float32"], ["float64", "float64"]]
    for index in (0, 1):
        assert [case.inputs[index].spec.shape for case in cases[:3]] == [(2, 3), (4,), ()]


def test_axes_that_go_together() -> None:
    cases = cases_of(
        """\
        cases:
          - op: matmul
            product:
              "m, k, n": [[64, 128, 32], [1, 1, 1]]
              "dtypes, tolerance": [[float16, {rtol: 1e-2}], [float32, {rtol: 1e-5}]]
            shapes: {input0: [$m, $k], input1: "${k}x$n"}
        """
    )
    found = [(case.inputs[0].spec.shape, case.dtypes[0].name, case.tolerances[0].tolerance.rtol) for case in cases]
    together = (("float16", 1e-2), ("float32", 1e-5))
    assert found == [(shape, *each) for shape in ((64, 128), (1, 1)) for each in together]


def test_operators_may_be_an_axis() -> None:
    entry = "product: {op: [relu, elementwise_add], dtypes: [float16, float32]}, shapes: {input0: 4}"
    added = ["add[float16](4, 4)", "add[float32](4, 4)"]
    assert ids(entry) == ["relu[float16](4)", "relu[float32](4)", *added]
    assert ids(entry, CaseRequest(ops=("add",))) == added
    of_flags = CaseRequest(ops=("ranged",), shapes={"x": (2,), "y": (2,)})
    assert ids(entry, of_flags) == ["ranged[float32](2, 2)"]


GENERATORS = "[ones, {fill: uniform, low: 0, high: 1}]"
SIZED = "product: {m: [1, 2], seed: [0, 1]}, shapes: {input0: [$m]}"


@pytest.mark.parametrize(
    ("entry", "names"),
    [
        (
            f"shapes: {{input0: 4}}, product: {{seed: [0, 7], generator: {GENERATORS}, dtypes: [float16, float32]}}",
            [
                f"relu[{dtype}](4) {{seed={seed}, generator={fill}}}"
                for seed in (0, 7)
                for fill in ("ones", "uniform(low=0, high=1)")
                for dtype in ("float16", "float32")
            ],
        ),
        ("product: {shapes.input0: [[2, 3]], dtypes: [float32]}", ["relu[float32](2x3)"]),
        (
            "product: {shapes.input0: [[2, 3], {shape: [2, 3], strides: [1, 2]}], dtypes: [float32]}",
            ["relu[float32](2x3)", "relu[float32](2x3) {shapes.input0={shape: [2,3], strides: [1,2]}}"],
        ),
        ("name: plain, " + SIZED, [f"plain[m={m}, seed={seed}]" for m in (1, 2) for seed in (0, 1)]),
        ("name: tile-$m, " + SIZED, [f"tile-{m}[seed={seed}]" for m in (1, 2) for seed in (0, 1)]),
        (
            'name: "${m}.${s}", product: {m: [1, 2], s: [0, 1]}, shapes: {input0: [$m]}, seed: $s',
            ["1.0", "1.1", "2.0", "2.1"],
        ),
    ],
)
def test_axes_that_no_other_part_names_are_added(entry: str, names: list[str]) -> None:
    assert ids(f"op: relu, {entry}") == names


def test_ambiguous_name_of_combinations_is_reported() -> None:
    path, message = fault_in('op: relu, name: "x$a$b", product: {a: [1, 11], b: [1, 11]}, shapes: {input0: [$a, $b]}')
    assert path == "name"
    assert says_exactly(message, "plan.the_name_is_that")


def test_ids_do_not_depend_on_other_values() -> None:
    few, many = (
        {case.id: case.key for case in cases_from(f"op: relu, product: {axes}, shapes: {{input0: [$m]}}")}
        for axes in ("{m: [2], seed: [1]}", "{m: [9, 2, 1], seed: [4, 1]}")
    )
    assert few.items() <= many.items()


def test_exclude_leaves_out_every_combination_with_these_values() -> None:
    axes = "{dtypes: [float16, float32, float64], m: [1, 2], seed: [0, 1]}"
    excluded = "[{dtypes: half, m: 2}, {seed: 1, dtypes: float64}]"
    cases = cases_from(f"op: relu, product: {axes}, exclude: {excluded}, shapes: {{input0: [$m]}}")
    kept = {(case.dtypes[0].name, case.inputs[0].spec.shape[0], case.seed) for case in cases}
    assert kept == {
        (name, m, seed)
        for name in ("float16", "float32", "float64")
        for m in (1, 2)
        for seed in (0, 1)
        if not (name == "float16" and m == 2) and not (seed == 1 and name == "float64")
    }
    assert len(cases) == len(kept)


def test_defaults_and_flags_reach_the_combinations() -> None:
    text = """\
        defaults: {tolerance: {rtol: 1e-3}, tags: [all]}
        cases: [{op: relu, product: {dtypes: [float16, float32]}, shapes: {input0: 4}, tags: [mine]}]
        """
    assert [case.tags for case in cases_of(text)] == [("mine", "all")] * 2
    assert [case.seed for case in cases_of(text, CaseRequest(seed=9))] == [9, 9]
    overridden = cases_of(text, CaseRequest(dtypes=(dtype("float64"),)))
    assert [case.id for case in overridden] == ["relu[float64](4)", "relu[float64](4)#2"]
    reshaped = cases_of(text, CaseRequest(shapes={"input0": (7,)}))
    assert [case.inputs[0].spec.shape for case in reshaped] == [(7,), (7,)]


def test_explain_names_the_axis_and_its_line() -> None:
    case = cases_of(
        """\
        cases:
          - op: matmul
            seed: 3
            product:
              dtypes:
                - float16
              m: [1, 3]
              attributes.trans_a: [true]
            shapes:
              input0: [$m, $m]
              input1: [$m, 4]
        """
    )[1]
    origins = {what: origin for what, _, origin in explain_case(case)}
    assert case.where == origins["op"] == "plan.yaml:2"
    assert origins["seed"] == "plan.yaml:3"
    assert (origins["input0.dtype"], origins["trans_a"]) == ("plan.yaml:5 product", "plan.yaml:8 product")
    assert origins["input0.shape"] == "plan.yaml:9, m of plan.yaml:7 product"


def test_case_plan_reproduces_a_combination() -> None:
    text = """\
        cases:
          - op: add
            name: all
            product:
              generator: [{input0: ones, input1: randn}, integer-exact]
              shapes.input1: [{shape: [2, 3], strides: [0, 1]}, [2, 3]]
              tolerance: [{rtol: 1e-3, out: {atol: 1e-4}}, {out: {rtol: 1e-2}}]
            shapes: {input0: [2, 3]}
            priority: 3
        """
    for case in cases_of(text):
        again = again_by_plan(case)
        assert (again.id, again.key, again.priority) == (case.id, case.key, 3)
        layers, expected = ([(x.output, x.tolerance) for x in each.tolerances] for each in (again, case))
        assert layers == expected


# What is wrong with a product


@pytest.mark.parametrize(
    ("product", "path", "message"),
    [
        ("[1]", "product", "product is [1], expected a mapping from axes to lists of values"),
        ("{}", "product", "product is {}, expected a mapping from axes to lists of values"),
        ("{seed: 3}", "product.seed", "the axis seed is 3, expected a list of at least one value"),
        ("{seed: []}", "product.seed", "the axis seed is [], expected a list of at least one value"),
        ("{seed: [1, 1]}", "product.seed[1]", "item 1 of seed repeats item 0: 1"),
        ("{seed: [-1]}", "product.seed[0]", "seed is -1, expected at least 0"),
        ("{dtypes: [flot16]}", "product.dtypes[0]", "unknown dtype 'flot16'"),
        ("{dtypes: [[float16, flot16]]}", "product.dtypes[0][1]", "unknown dtype 'flot16'"),
        ("{shapes.input1: [[2, -3]]}", "product['shapes.input1'][0][1]", "size 1 of the shape is -3, expected"),
        ("{shapes.inputt: [[2]]}", "product['shapes.inputt'][0]", "unknown tensor 'inputt'"),
        ("{attributes.beta: [2]}", "product['attributes.beta'][0]", "unknown attribute of add 'beta'"),
        ("{attributes.alpha: [x]}", "product['attributes.alpha'][0]", "attribute alpha is 'x', "),
        ("{m: [1]}", "product.m", "the axis m is no key of a case, and no value of the case uses $m"),
        ("{dtype: [float16]}", "product.dtype", "the axis dtype is no key of a case, and no value of the case uses"),
        ("{name: [a, b]}", "product.name", "name cannot vary in a product"),
        ("{seed.x: [1]}", "product['seed.x']", "'seed' of the axis seed.x is no mapping, expected one of shapes"),
        ("{op: [relu]}", "product.op", "op is set by the axis and also by the case"),
        ("{'seed, seed': [[1, 2]]}", "product['seed, seed']", "the axis seed is set twice"),
        ("{'seed, m': [1]}", "product['seed, m'][0]", "item 0 of seed, m is 1, expected a list of 2 values"),
        ("{'a b': [1]}", "product['a b']", "the axis is 'a b', expected a word, a key of a case"),
        ("{seed: [$x]}", "product.seed[0]", "item 0 of seed is '$x', but a value of an axis cannot name another axis"),
        ("{generator: [nofill]}", "product.generator[0]", "unknown fill 'nofill'"),
        ("{tolerance: [{outt: {rtol: 1}}]}", "product.tolerance[0].outt", "unknown tensor 'outt'"),
        ("{tolerance: [{rtol: -1}]}", "product.tolerance[0].rtol", "rtol is -1, "),
    ],
)
def test_wrong_axes(product: str, path: str, message: str) -> None:
    line, found_path, found = fault(f"cases:\n- op: add\n  shapes: {{input0: 4}}\n  product: {product}\n")
    assert (line, found_path) == (4, f"$.cases[0].{path}")
    assert found.startswith(message)


def test_a_reference_to_no_axis() -> None:
    found = faults("cases: [{op: relu, product: {m: [1]}, shapes: {input0: [$m, $k]}, attributes: {x: $mm}}]")
    places = {(path, message) for _, path, message in found}
    assert ("$.cases[0].shapes.input0", "$k is no axis of the product") in places
    assert ("$.cases[0].attributes.x", "$mm is no axis of the product") in places


def test_a_command_may_name_variables_of_its_shell() -> None:
    config = '{ascend: {command: "run $HOME ${m} $$"}}'
    entry = f"{{op: relu, product: {{m: [1, 2]}}, shapes: {{input0: [$m]}}, backend_config: {config}}}"
    cases = cases_of(f"backend: ascend\ncases: [{entry}]")
    assert [case.backend_config["ascend"]["command"] for case in cases] == ["run $HOME 1 $$", "run $HOME 2 $$"]


def test_wrong_referenced_value_is_located_in_axis() -> None:
    found = fault("cases:\n- op: relu\n  product:\n    m: [1, x]\n  shapes: {input0: [2, $m]}\n")
    assert found == (4, "$.cases[0].product.m[1]", "size 1 of the shape is 'x', expected an integer of 0 or more")


@pytest.mark.parametrize(
    ("exclude", "path", "message"),
    [
        ("[{seed: 3}]", "[0].seed", "seed is 3, but the axis has no such value"),
        ("[{sed: 1}]", "[0].sed", "'sed' is no axis of the product"),
        ("[{}]", "", "an entry of exclude is empty, expected a value of an axis"),
        ("[{seed: 1}, {seed: 2}]", "", "exclude leaves no combination of the product"),
        ("[{seed: true}]", "[0].seed", "seed is true, but the axis has no such value"),
        ("{seed: 1}", "", "exclude is {seed: 1}, expected a list"),
    ],
)
def test_wrong_exclude(exclude: str, path: str, message: str) -> None:
    found = fault_in(f"op: relu, shapes: {{input0: 4}}, product: {{seed: [1, 2]}}, exclude: {exclude}")
    assert found == (f"exclude{path}", message)


def test_exclude_without_a_product() -> None:
    message = "exclude is set without a product, expected values of its axes"
    assert fault_in("op: relu, shapes: {input0: 4}, exclude: [{seed: 1}]") == ("exclude", message)


@pytest.mark.parametrize(
    ("case", "path"),
    [
        ("seed: 1, product: {seed: [1, 2]}", "product.seed"),
        ("attributes: {alpha: 1}, product: {attributes.alpha: [1, 2]}", "product['attributes.alpha']"),
        ("attributes: {alpha: 1}, product: {attributes: [{alpha: 1}]}", "product.attributes"),
        ("product: {attributes: [{alpha: 1}], attributes.alpha: [2]}", "product['attributes.alpha']"),
        ("dtypes: float16, product: {dtypes.input0: [float32]}", "product['dtypes.input0']"),
        ("generator: ones, product: {generator.input0: [ones]}", "product['generator.input0']"),
    ],
)
def test_what_an_axis_brings_is_stated_nowhere_else(case: str, path: str) -> None:
    found, message = fault_in(f"op: add, shapes: {{input0: 4}}, {case}")
    assert found == path
    assert says(message, "plan.is_stated_by_the")


def test_all_faults_of_all_combinations_at_once() -> None:
    found = faults(
        """\
        cases:
          - op: matmul
            product:
              dtypes: [float16, int8, flot16]
              m: [1, 2]
              k: [3, 5]
              seed: [0, 1, -1]
            shapes: {input0: [$m, $k], input1: [3, 4]}
          - {op: reluu, product: {seed: [1]}}
        """
    )
    assert found == [
        (4, "$.cases[0].product.dtypes[2]", "unknown dtype 'flot16'"),
        (4, "$.cases[0].product.dtypes[1]", "matmul is not defined for (int8, int8)"),
        (7, "$.cases[0].product.seed[2]", "seed is -1, expected at least 0"),
        (8, "$.cases[0].shapes", "inner sizes are 5 and 3, expected equal"),
        (9, "$.cases[1].op", "unknown operator 'reluu'"),
    ]


def test_problem_names_its_combination() -> None:
    text = "cases: [{op: matmul, product: {k: [3, 5], seed: [8]}, shapes: {input0: [2, $k], input1: [3, 4]}}]"
    assert problem_of(text).hint == "with k=5, seed=8"


def test_a_million_combinations_are_the_limit() -> None:
    many = "[" + ", ".join(map(str, range(101))) + "]"
    _, message = fault_in(f"op: relu, product: {{seed: {many}, a: {many}, b: {many}}}")
    assert message == f"product has {101**3:,} combinations, expected at most {MAX_COMBINATIONS:,}"


def test_wrong_product_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Statement] = []

    def made(statement: Statement) -> TestCase | None:
        tried.append(statement)
        return make_case(statement)

    monkeypatch.setattr(expansion, "MAX_FAULTS", 5)
    monkeypatch.setattr(expansion, "make_case", made)
    found = faults("cases: [{op: relu, product: {m: [1, 2, 3], seed: [1, 2, 3]}, shapes: {a: [$m]}}]")
    assert found[0][2] == "unknown tensor 'a'"
    assert len(tried) == 6


def test_untrusted_plans_name_no_code_in_their_axes() -> None:
    axes = "{generator: [ones, my.gen:Gen], reference: [a.b:c], word: [x], backend_config.ascend.x: [1]}"
    config = '{command: {command: "rm -rf $word"}}'
    text = f"cases:\n- op: relu\n  product: {axes}\n  shapes: {{input0: 4}}\n  backend_config: {config}\n"
    refused = "--untrusted refuses to run code that the plan names: "
    assert [(path, message) for _, path, message in faults(text, CaseRequest(untrusted=True))] == [
        ("$.cases[0].product.generator[1]", f"{refused}my.gen:Gen"),
        ("$.cases[0].product.reference[0]", f"{refused}a.b:c"),
        ("$.cases[0].backend_config.command.command", f"{refused}rm -rf x"),
    ]


def test_backends_named_by_axes_are_checked() -> None:
    entry = "op: relu, shapes: {input0: 4}, product: {backend_config: [{ascent: {x: 1}}, {ascend: {x: 1}}]}"
    assert fault_in(entry) == ("product.backend_config[0].ascent", "unknown backend 'ascent'")


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ("x is 2", "backend_config.ascend"),
        ("backend_config.ascend.x is 2", "product['backend_config.ascend.x'][1]"),
    ],
)
def test_backend_checks_every_combination(message: str, path: str) -> None:
    axes = "{backend_config.ascend.x: [1, 2], seed: [1, 2]}"
    text = f"backend: ascend\ncases: [{{op: relu, shapes: {{input0: 4}}, product: {axes}}}]"
    of_two = {"check_backend": lambda case: [message] if case.backend_config["ascend"]["x"] == 2 else []}
    problem = problem_of(text, **of_two)
    assert (problem.path, problem.hint) == (f"$.cases[0].{path}", "with backend_config.ascend.x=2, seed=1")


# What combinations share


SIZES = st.integers(0, 4)
AXES: dict[str, st.SearchStrategy[Any]] = {
    "dtypes": st.sampled_from(
        ["float16", "float32", "int32", ["float16", "float32"], {"input0": "float64"}, {"output0": "float32"}]
    ),
    "shapes.input0": st.one_of(st.lists(SIZES, max_size=3), st.just({"shape": [2, 2], "strides": [1, 2]})),
    "shapes.input1": st.one_of(st.lists(SIZES, max_size=3), st.just({"shape": [2], "strides": [-1], "offset": 1})),
    "shapes": st.fixed_dictionaries({"input0": st.lists(SIZES, max_size=2), "input1": st.lists(SIZES, max_size=2)}),
    "attributes.alpha": st.sampled_from([1, 1.0, 2.5]),
    "attributes.trans_a": st.booleans(),
    "attributes.dim": st.sampled_from([0, [0], None]),
    "attributes.k": st.integers(0, 2),
    "generator": st.sampled_from(["ones", "integer-exact", {"fill": "uniform", "low": 0}, "my.gen:Gen"]),
    "generator.input0": st.sampled_from(["ones", "integer-exact"]),
    "seed": st.integers(0, 3),
    "tolerance": st.sampled_from([{"rtol": 1e-3}, {"output0": {"atol": 1}}, {"rtol": 0, "output0": {"atol": 1}}]),
    "timeout": st.sampled_from([1, 2.5]),
    "retries": st.integers(0, 2),
    "priority": st.integers(0, 2),
    "tags": st.sampled_from([["a"], ["b", "a"]]),
    "skip": st.sampled_from(["why", "not"]),
    "expects_error": st.sampled_from([{"type": "ValueError"}, {"match": "x"}]),
    "reference": st.sampled_from(["a:b", "c.d"]),
    "op": st.sampled_from(["add", "matmul", "relu", "sum", "cat", "ranged", "norm", "mine", "unruled", "drawn"]),
}
FIXED: dict[str, st.SearchStrategy[Any]] = {
    "op": st.sampled_from(["add", "matmul", "relu", "sum", "cat", "ranged", "drawn_pair", "unruled"]),
    "shapes": st.sampled_from([{"input0": [2, 2]}, {"input0": [2, "$m"], "input1": ["$m", 2]}, {"input1": [2]}]),
    "dtypes": st.sampled_from(["float16", "float32"]),
    "tolerance": st.just({"rtol": 1e-3}),
    "backend_config": st.just({"ascend": {"x": "$m"}}),
}


@st.composite
def products(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(sorted(AXES)), min_size=1, max_size=4, unique=True))
    axes = {name: draw(st.lists(AXES[name], min_size=1, max_size=3, unique_by=repr)) for name in names}
    entry: dict[str, Any] = {
        key: draw(value) for key, value in FIXED.items() if key not in axes and (key == "op" or draw(st.booleans()))
    }
    if "$m" in repr(entry):
        axes["m"] = draw(st.lists(SIZES, min_size=1, max_size=2, unique=True))
    return {**entry, "product": axes}


SOUND: list[tuple[dict[str, Any], dict[str, list[Any]]]] = [
    ({"op": "add", "shapes": {"input0": ["$m", 2]}}, {"m": [0, 1, 2], "attributes.alpha": [1, 1.0, 2.5]}),
    (
        {"op": "matmul", "shapes": {"input0": ["$m", "$k"], "input1": ["$k", 2]}},
        {"m": [1, 2], "k": [2, 1, 3], "attributes.mode": ["plain", "other"]},
    ),
    ({"op": "sum", "shapes": {"input0": [2, "$m"]}}, {"m": [1, 3], "attributes.dim": [0, [0], None]}),
    ({"op": "relu"}, {"shapes.input0": [[2], {"shape": [2, 2], "strides": [1, 2]}, []]}),
    ({"op": "cat"}, {"shapes": [{"input0": [2]}, {"input0": [2], "input1": [3]}, {"input0": [4]}]}),
]
"""Cases whose every combination is right, with the axes that they need or may have."""
HARMLESS = ["seed", "dtypes", "generator", "tolerance", "timeout", "retries", "priority", "tags", "skip", "reference"]


@st.composite
def sound_products(draw: st.DrawFn) -> dict[str, Any]:
    entry, own = draw(st.sampled_from(SOUND))
    axes = {
        name: draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique_by=repr))
        for name, values in own.items()
        if not name.startswith("attributes") or draw(st.booleans())
    }
    for name in draw(st.lists(st.sampled_from(HARMLESS), max_size=3, unique=True)):
        values = st.sampled_from(["float16", "float32"]) if name == "dtypes" else AXES[name]
        axes[name] = draw(st.lists(values, min_size=1, max_size=3, unique_by=repr))
    order = draw(st.permutations(sorted(axes)))
    return {**entry, "product": {name: axes[name] for name in order}}


def told(raw: bytes, request: CaseRequest) -> list[TestCase] | list[tuple[str, str]]:
    """Return the cases, or the problems."""
    try:
        return build(parse_plan(raw, "plan.yaml"), request)
    except PlanError as error:
        return sorted((each.path, each.message) for each in error.problems)


def stated(case: TestCase) -> list[Any]:
    return [case.id, case.key, case.identifier(), dataclasses.asdict(case)]


REQUESTS = st.sampled_from(
    [
        CaseRequest(),
        CaseRequest(seed=5, tolerance=Tolerance(rtol=1)),
        CaseRequest(dtypes=(dtype("float64"),), generator="ones"),
        CaseRequest(attributes={"alpha": 3.0, "backend_config.ascend.y": 1}),
        CaseRequest(shapes={"input0": (2, 2)}, timeout_s=3.0, retries=1),
    ]
)


@settings(max_examples=50, deadline=None)
@given(entry=st.one_of(products(), sound_products()), request=REQUESTS)
def test_shared_parts_change_no_case(entry: dict[str, Any], request: CaseRequest) -> None:
    # The constructor bypasses the class: each case is still frozen, and equal to one built anew.
    raw = repr({"cases": [entry]}).replace("True", "true").replace("False", "false").replace("None", "null").encode()
    shared = told(raw, request)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommonParts, "part", lambda _self, statement, _name, _keys, make: make(statement))
        unshared = told(raw, request)
    for case, other in zip(shared, unshared, strict=True):
        if not isinstance(case, TestCase) or not isinstance(other, TestCase):
            assert case == other
            continue
        arguments = [dataclasses.replace(each, spec=dataclasses.replace(each.spec)) for each in case.inputs]
        again = dataclasses.replace(case, inputs=tuple(arguments))
        assert stated(case) == stated(other) == stated(again)
        assert (type(case), repr(case)) == (TestCase, repr(again))
        assert case_of(case_plan(dataclasses.replace(case, name=""))).key == case.key
        with pytest.raises(dataclasses.FrozenInstanceError):
            case.seed = 1  # type: ignore[misc]


def test_outputs_follow_the_attributes_of_their_combination() -> None:
    cases = cases_from("op: sum, product: {attributes.dim: [0, 1, null], seed: [0, 1]}, shapes: {input0: [2, 3]}")
    assert [case.outputs[0].shape for case in cases] == [(3,), (3,), (2,), (2,), (), ()]


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        (
            "product: {m: [2, 3], seed: [0, 1]}, shapes: {input0: [$m], out: [2]}",
            "shapes.out",
            "the shape of output0 is 2, but relu returns 3",
        ),
        (
            "product: {dtypes: [{out: float16, input: float16}, {out: float16, input: float64}]}, shapes: {input: 2}",
            "product.dtypes[1].out",
            "the dtype of output0 is float16, but relu returns float64",
        ),
    ],
)
def test_declared_outputs_are_compared_per_combination(entry: str, path: str, message: str) -> None:
    assert fault_in(f"op: relu, {entry}") == (path, message)


def test_implied_dtypes_follow_their_combination() -> None:
    axes = "{backend_config.ascend.d: [none, float64], seed: [0, 1]}"
    document = plan(f"backend: ascend\ncases: [{{op: relu, shapes: {{input0: 4}}, product: {axes}}}]")
    cases = build(document, dtypes_of=lambda options: {} if options["d"] == "none" else {"input0": options["d"]})
    assert [case.dtypes[0].name for case in cases] == ["float32", "float32", "float64", "float64"]


def test_a_tolerance_that_only_some_dtypes_need() -> None:
    path, message = fault_in("op: unruled, product: {dtypes: [int32, float32]}, shapes: {x: 4}")
    assert path == "tolerance"
    assert message.endswith("has no tolerance rule, so the case needs a tolerance")


def test_rows_of_shapes_may_leave_optional_inputs_out() -> None:
    rows = "[{input: 4, weight: 4}, {input: 4}, {input: 5, bias: 5}]"
    cases = cases_from(f"op: norm, attributes: {{eps: 1}}, product: {{shapes: {rows}, seed: [0, 1]}}")
    paths = [[each.path for each in case.inputs] for case in cases[::2]]
    assert paths == [["input0", "input1"], ["input0"], ["input0", "input2"]]


def test_a_refusal_may_be_expected_of_some_combinations() -> None:
    shapes = "{input0: [2, $k], input1: [3, 4]}"
    cases = cases_from(f"op: matmul, product: {{k: [3, 5]}}, shapes: {shapes}, expects_error: {{}}")
    assert [len(case.outputs) for case in cases] == [1, 0]


def test_a_long_product_reports_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("optest.plan.product._PROGRESS_S", 0.0)
    axes = f"{{a: {list(range(50))}, b: {list(range(50))}}}"
    text = f"cases: [{{op: relu, shapes: {{input0: [$a, $b]}}, product: {axes}}}]"
    assert len(build(parse_plan(text.encode(), "{plan}.yaml"))) == 2500
    assert capsys.readouterr().err.splitlines() == [
        f"optest: {{plan}}.yaml:1: {done} {what} read"
        for what in ("values of shapes.input0", "of 2,500 combinations")
        for done in ("1,000", "2,000")
    ]
