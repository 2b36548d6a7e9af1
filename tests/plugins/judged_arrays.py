"""What the built-in rules say of an output: for tests that write kernels as functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.backends.numpy_reference import NumpyBackend
from optest.compare.verdict import compare_outputs
from optest.core.expected import expected_outputs
from optest.numerics import dtype_of, round_to, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import Argument, Fill, Measure, Numerics, Status, TensorSpec, TestCase, Verdict, dtype

Array = np.ndarray[Any, Any]


def case_of(operator: str, inputs: Sequence[Array | None], attributes: dict[str, Any]) -> TestCase:
    """The case with these inputs, as a plan would make it."""
    descriptor = operators.get(operator)
    bound = descriptor.bind(attributes)
    specs = [None if each is None else TensorSpec(dtype=dtype_of(each.dtype), shape=each.shape) for each in inputs]
    arguments = tuple(
        Argument(name=descriptor.tensors.input_name(i), path=f"input{i}", spec=spec, fill=Fill(kind="randn"))
        for i, spec in enumerate(specs)
        if spec is not None
    )
    outputs = tuple(load_object(str(descriptor.infer))(specs, bound))
    return TestCase(descriptor=descriptor, inputs=arguments, outputs=outputs, attributes=bound)


def verdict_of(operator: str, inputs: Sequence[Array | None], outputs: Sequence[Array], **attributes: Any) -> Verdict:
    """The verdict over outputs of the dtypes that the operator has."""
    case = case_of(operator, inputs, attributes)
    given = [each for each in inputs if each is not None]
    expected, _ = expected_outputs([case], given, None, NumpyBackend())
    return compare_outputs(case, outputs, expected, numerics=Numerics(processor="cpu"), inputs=given)


def measured(operator: str, inputs: Sequence[Array | None], values: Any, **attributes: Any) -> tuple[bool, Measure]:
    """Whether unrounded ``values`` pass once they are rounded to the output's dtype, and what was measured."""
    case = case_of(operator, inputs, attributes)
    verdict = verdict_of(operator, inputs, [round_to(np.asarray(values), case.outputs[0].dtype)], **attributes)
    return verdict.status is Status.PASSED, verdict.measures[0]


def share_of_limit(measure: Measure) -> float:
    """How much of its limit the statistic uses, 0 where there is none."""
    return (measure.statistic or 0.0) / (measure.statistic_limit or 1.0)


def rounded(values: Any, name: str) -> Array:
    return round_to(np.asarray(values, dtype=np.float64), dtype(name))


def truncated(values: Any, name: str) -> Array:
    """Cut to the dtype instead of rounded, in float64."""
    stored = widen(rounded(values, name)).astype(np.float64)
    spacing = np.abs(stored) * 2.0 ** (1 - dtype(name).precision)
    beyond = np.abs(stored) > np.abs(values)
    return widen(rounded(np.where(beyond, stored - np.sign(values) * spacing / 2.0, stored), name))


def right(operator: str, *inputs: Array | None, **attributes: Any) -> Array:
    descriptor = operators.get(operator)
    (value,) = load_object(str(descriptor.reference))(list(inputs), descriptor.bind(attributes))
    return np.asarray(value)


def rows(kind: str, width: int, name: str, seed: int = 0) -> Array:
    """Rows of values of a kind that sums, norms and softmax find easy or hard."""
    rng = np.random.default_rng([width, seed])
    count = max(2, min(32, 65536 // width))
    base = rng.standard_normal((count, width))
    values = {
        "normal": base,
        "uniform": rng.random((count, width)),
        "offset": 100.0 + base,
        "far offset": 1000.0 + base,
        "farther offset": 1e4 + base,
        "constant": np.full((count, width), 7.3),
        "large constant": np.full((count, width), 1000.1),
        "few": rng.choice([0.1, 0.7, 1.3], (count, width)),
        "tiny": base * 1e-3,
        "tiny with offset": 10.0 + base * 1e-3,
        "scaled rows": base * np.logspace(-3, 3, count)[:, None],
        "exponents": rng.uniform(84.0, 92.0, (count, width)),
        "factors": rng.choice([-1.0, 1.0], (count, width)) * rng.uniform(0.98, 1.02, (count, width)),
        "wide": base * 50.0,
    }
    return rounded(values[kind], name)
