"""Operators and shortcuts for the tests of plans; nothing here needs NumPy."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from optest.errors import PlanError, Problem, UnknownName, UsageError
from optest.operators import OperatorRegistry
from optest.plan import CaseRequest, PlanDocument, PlanHost, build_cases, case_plan, parse_plan
from optest.plan.select import Wanted
from optest.spec import (
    Attribute,
    BackendTarget,
    Fill,
    OperatorDescriptor,
    Rule,
    RuleClass,
    TensorSpec,
    TestCase,
    UnfitArguments,
)

FILLS = ("randn", "uniform", "integer-exact", "ones", "file", "data")
BACKENDS = ("numpy", "torch", "ascend", "command")
FLOATS = (("float32",), ("float16",), ("float64",))


def infer_same(specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> list[TensorSpec]:
    shapes = {spec.shape for spec in specs if spec is not None}
    if len(shapes) != 1:
        raise UnfitArguments(f"shapes differ: {sorted(shapes)}")
    assert specs[0] is not None
    return [TensorSpec(dtype=specs[0].dtype, shape=specs[0].shape)]


def infer_product(specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> list[TensorSpec]:
    a, b = specs[0], specs[1]
    assert a is not None
    assert b is not None
    (m, k), (inner, n) = a.shape, b.shape  # a wrong rank is a ValueError on purpose
    if attributes.get("trans_a"):
        m, k = k, m
    if k != inner:
        raise UnfitArguments(f"inner sizes are {k} and {inner}, expected equal")
    return [TensorSpec(dtype=a.dtype, shape=(m, n))]


def infer_total(specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> list[TensorSpec]:
    assert specs[0] is not None
    dim = attributes["dim"]
    kept = tuple(size for index, size in enumerate(specs[0].shape) if dim is not None and index not in dim)
    return [TensorSpec(dtype=specs[0].dtype, shape=kept)]


def infer_norm(specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> list[TensorSpec]:
    assert specs[0] is not None
    assert len(specs) == 3
    return [TensorSpec(dtype=specs[0].dtype, shape=specs[0].shape)]


def infer_cat(specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> list[TensorSpec]:
    assert all(spec is not None for spec in specs)
    first = specs[0]
    assert first is not None
    return [TensorSpec(dtype=first.dtype, shape=(sum(spec.shape[0] for spec in specs if spec), *first.shape[1:]))]


SCALE = Attribute(name="scale", type="float", default=0)
"""Its default is an int, so that 0 from the operator and 0.0 from a case have different keys."""


def operator(name: str, signature: str, rule: RuleClass = RuleClass.EXACT, **more: Any) -> OperatorDescriptor:
    return OperatorDescriptor(name=name, signature=signature, rule=Rule(kind=rule), **more)


DRAWN: dict[str, Any] = {"generator": "my.gen:Gen", "infer": infer_same}
OF_MATMUL = (
    Attribute(name="trans_a", type="bool", default=False, aliases=("transA",)),
    Attribute(name="mode", type="str", default="plain"),
)
ALPHA = Attribute(name="alpha", type="float", default=1.0)
DIM = Attribute(name="dim", type="ints", default=None, aliases=("axis",))
RANGE = {"y": {"fill": "uniform", "low": 1, "high": 2}}
DESCRIPTORS = (
    operator(
        "add",
        "input, other -> out",
        RuleClass.ULP,
        category="elementwise",
        aliases=("elementwise_add",),
        attributes=(ALPHA,),
        dtype_variants=(*FLOATS, ("int32",), ("float16", "float32")),
        infer=infer_same,
        tags=("pointwise",),
    ),
    operator("relu", "input -> out", RuleClass.MOVEMENT, category="activation", infer=infer_same),
    operator(
        "matmul",
        "input, other -> out",
        RuleClass.ACCUMULATE,
        category="contraction",
        attributes=OF_MATMUL,
        dtype_variants=FLOATS,
        infer=infer_product,
    ),
    operator("sum", "input -> out", RuleClass.ACCUMULATE, category="reduction", attributes=(DIM,), infer=infer_total),
    operator(
        "norm",
        "input, weight?, bias? -> out",
        RuleClass.COMPOSED,
        category="normalization",
        attributes=(Attribute(name="eps", type="float"),),
        dtype_variants=(("float32",), ("float16", "float32", "float32")),
        infer=infer_norm,
    ),
    operator("cat", "*tensors -> out", category="movement", infer=infer_cat),
    operator("mine", "x, y -> a, b", open_attributes=True, attributes=(Attribute(name="k", type="int"), SCALE)),
    operator("ranged", "x, y -> out", generator=RANGE, infer=infer_same),
    operator("drawn", "x -> out", **DRAWN),
    operator("drawn_pair", "x, y -> out", **DRAWN),
    OperatorDescriptor(name="unruled", signature="x -> out", infer=infer_same),
)


def registry() -> OperatorRegistry:
    found = OperatorRegistry()
    for descriptor in DESCRIPTORS:
        found.register(descriptor)
    return found


OPERATORS = registry()


def target_of(backend: str, chip: str | None) -> BackendTarget:
    if backend not in BACKENDS:
        raise UnknownName("backend", backend, BACKENDS)
    if chip is not None and not chip.lower().startswith("ascend"):
        raise UnknownName(f"chip of backend {backend}", chip, ("ascend910b",))
    return BackendTarget(name=backend, chip=chip)


def check_fill(fill: Fill) -> None:
    if fill.kind not in FILLS:
        raise UnknownName("fill", fill.kind, FILLS)
    if "low" in fill.parameters and not isinstance(fill.parameters["low"], (int, float)):
        raise UsageError(f"low is {fill.parameters['low']!r}, expected a number")


def check_backend(case: TestCase) -> list[str]:
    return ["command is missing"] if case.backend.name == "ascend" and "ascend" not in case.backend_config else []


def plan(text: str, file: str = "plan.yaml") -> PlanDocument:
    return parse_plan(textwrap.dedent(text).encode(), file)


def build(
    document: PlanDocument | None,
    request: CaseRequest | None = None,
    wanted: Wanted | None = None,
    **more: Any,
) -> list[TestCase]:
    request = request or CaseRequest()
    arguments: dict[str, Any] = {
        "operators": OPERATORS,
        "target": _target_of(document, request),
        "check_fill": check_fill,
        "check_backend": check_backend,
        "backend_names": BACKENDS,
    }
    return build_cases(document, request, PlanHost(**{**arguments, **more}), wanted)


def _target_of(document: PlanDocument | None, request: CaseRequest) -> BackendTarget | UsageError:
    backend = request.backend or (document.backend if document else "") or "numpy"
    chip = request.chip or (document.chip if document else "") or None
    try:
        return target_of(backend, chip)
    except UsageError as error:
        return error


def cases_of(text: str, request: CaseRequest | None = None, **more: Any) -> list[TestCase]:
    return build(plan(text), request, **more)


def case_of(text: str, request: CaseRequest | None = None) -> TestCase:
    (case,) = cases_of(text, request)
    return case


def problems_of(
    text: str | PlanDocument | None, request: CaseRequest | None = None, **more: Any
) -> tuple[Problem, ...]:
    """Everything that is wrong with a plan and a request."""
    with pytest.raises(PlanError) as raised:
        build(plan(text) if isinstance(text, str) else text, request, **more)
    return raised.value.problems


def problem_of(text: str, request: CaseRequest | None = None, **more: Any) -> Problem:
    """The only problem of a plan and a request."""
    (problem,) = problems_of(text, request, **more)
    return problem


def noted(text: str) -> list[tuple[int, str]]:
    """Line and word of each word in the comments of a plan: the paths of its problems, or its values with origins."""
    lines = enumerate(textwrap.dedent(text).splitlines(), 1)
    return [(number, word) for number, line in lines for word in line.partition(" # ")[2].split()]


def again_by_plan(case: TestCase, file: str = "elsewhere/again.yaml") -> TestCase:
    """The case that is built from the plan written for a case."""
    (again,) = build(plan(case_plan(case), file))
    return again


def write(folder: Path, text: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text(textwrap.dedent(text))
    return path
