"""Operators and shortcuts for the tests of plans; nothing here needs NumPy."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.errors import UnknownName, UsageError
from optest.operators import OperatorRegistry
from optest.plan import CaseRequest, PlanDocument, PlanHost, build_cases, parse_plan
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

EXACT = Rule(kind=RuleClass.EXACT)

DESCRIPTORS = (
    OperatorDescriptor(
        name="add",
        category="elementwise",
        signature="input, other -> out",
        aliases=("elementwise_add",),
        attributes=(Attribute(name="alpha", type="float", default=1.0),),
        dtype_variants=(*FLOATS, ("int32",), ("float16", "float32")),
        infer=infer_same,
        rule=Rule(kind=RuleClass.ULP),
        tags=("pointwise",),
    ),
    OperatorDescriptor(
        name="relu",
        category="activation",
        signature="input -> out",
        infer=infer_same,
        rule=Rule(kind=RuleClass.MOVEMENT),
    ),
    OperatorDescriptor(
        name="matmul",
        category="contraction",
        signature="input, other -> out",
        attributes=(
            Attribute(name="trans_a", type="bool", default=False, aliases=("transA",)),
            Attribute(name="mode", type="str", default="plain"),
        ),
        dtype_variants=FLOATS,
        infer=infer_product,
        rule=Rule(kind=RuleClass.ACCUMULATE),
    ),
    OperatorDescriptor(
        name="sum",
        category="reduction",
        signature="input -> out",
        attributes=(Attribute(name="dim", type="ints", default=None, aliases=("axis",)),),
        infer=infer_total,
        rule=Rule(kind=RuleClass.ACCUMULATE),
    ),
    OperatorDescriptor(
        name="norm",
        category="normalization",
        signature="input, weight?, bias? -> out",
        attributes=(Attribute(name="eps", type="float"),),
        dtype_variants=(("float32",), ("float16", "float32", "float32")),
        infer=infer_norm,
        rule=Rule(kind=RuleClass.COMPOSED),
    ),
    OperatorDescriptor(name="cat", category="movement", signature="*tensors -> out", infer=infer_cat, rule=EXACT),
    OperatorDescriptor(
        name="mine",
        signature="x, y -> a, b",
        open_attributes=True,
        attributes=(Attribute(name="k", type="int"), SCALE),
        rule=EXACT,
    ),
    OperatorDescriptor(
        name="ranged",
        signature="x, y -> out",
        generator={"y": {"fill": "uniform", "low": 1, "high": 2}},
        infer=infer_same,
        rule=EXACT,
    ),
    OperatorDescriptor(name="drawn", signature="x -> out", generator="my.gen:Gen", infer=infer_same, rule=EXACT),
    OperatorDescriptor(
        name="drawn_pair", signature="x, y -> out", generator="my.gen:Gen", infer=infer_same, rule=EXACT
    ),
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


def write(folder: Path, text: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text(textwrap.dedent(text))
    return path
