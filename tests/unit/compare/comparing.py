"""Cases and expectations for the comparator's tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.compare import Expected
from optest.compare.verdict import compare_outputs
from optest.numerics import numpy_dtype, round_to
from optest.spec import (
    Argument,
    Fill,
    Layer,
    Numerics,
    OperatorDescriptor,
    Rule,
    RuleClass,
    TensorSpec,
    TestCase,
    Tolerance,
    ToleranceLayer,
    Verdict,
    dtype,
)

EXACT, MOVEMENT, ULP = Rule(kind=RuleClass.EXACT), Rule(kind=RuleClass.MOVEMENT), Rule(kind=RuleClass.ULP, ulp=0.5)
ACCUMULATE, COMPOSED = Rule(kind=RuleClass.ACCUMULATE), Rule(kind=RuleClass.COMPOSED)


def stated(rtol: Any = None, atol: Any = None, ratio: Any = None, layer: Layer = Layer.CASE) -> ToleranceLayer:
    return ToleranceLayer(layer=layer, tolerance=Tolerance(rtol=rtol, atol=atol, mismatch_ratio=ratio))


def case_of(
    rule: Rule | None,
    inputs: tuple[str, ...] = ("float32",),
    *,
    layers: tuple[ToleranceLayer, ...] = (),
    outputs: tuple[TensorSpec, ...] = (),
    names: str = "out",
    fill: str = "randn",
    shape: tuple[int, ...] = (4,),
) -> TestCase:
    specs = {f"x{index}": TensorSpec(dtype=dtype(name), shape=shape) for index, name in enumerate(inputs)}
    arguments = [
        Argument(name=name, path=f"input{index}", spec=spec, fill=Fill(kind=fill))
        for index, (name, spec) in enumerate(specs.items())
    ]
    descriptor = OperatorDescriptor(name="probe", rule=rule, signature=f"{', '.join(specs)} -> {names}")
    return TestCase(descriptor=descriptor, inputs=tuple(arguments), tolerances=layers, outputs=outputs)


def expect(value: Any, entry: str = "float32", name: str = "out", terms: Any = None) -> Expected:
    array = np.asarray(value)
    return Expected(name=name, dtype=dtype(entry), shape=array.shape, value=array, terms=terms)


def verdict_of(
    actual: Any,
    value: Any,
    entry: str = "float32",
    *,
    rule: Rule | None = None,
    layers: tuple[ToleranceLayer, ...] = (),
    terms: Any = None,
    numerics: Numerics | None = None,
    every_measure: bool = False,
    inputs: Any = None,
    operands: tuple[str, ...] | None = None,
    fill: str = "randn",
) -> Verdict:
    """Compare one output; ``actual`` is cast to ``entry`` unless it is an array already."""
    if not isinstance(actual, np.ndarray):
        actual = array_of(actual, entry)
    return compare_outputs(
        case_of(rule, operands or (entry,), layers=layers, fill=fill),
        [actual],
        [expect(value, entry, terms=terms)],
        numerics=numerics or Numerics(),
        every_measure=every_measure,
        inputs=inputs,
    )


def array_of(values: Any, entry: str) -> Any:
    target = dtype(entry)
    if target.is_float:
        return round_to(np.asarray(values, dtype=np.float64), target)
    return np.asarray(values).astype(numpy_dtype(target))
