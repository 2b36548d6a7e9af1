"""hardshrink: x where |x| > lambd, else 0. Descriptors are imported at every start, so NumPy waits in the hooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optest.operators.samples import call, standard_samples, variations
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass, Sample, TensorSpec, UnfitArguments

__all__ = ["HARDSHRINK"]

FLOATS = (("float32",), ("float16",), ("bfloat16",), ("float64",))


def infer(specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any]) -> tuple[TensorSpec]:
    """One output like the input."""
    (given,) = specs
    if given is None or attributes["lambd"] < 0:
        raise UnfitArguments(f"lambd is {attributes['lambd']:g}, expected 0 or more")
    return (TensorSpec(dtype=given.dtype, shape=given.shape),)


def samples() -> Iterator[Sample]:
    """What ``optest check`` asks: every dtype, layout and size, and thresholds that bite."""
    yield from standard_samples([call(input=(4, 33))], FLOATS, sized=lambda size: call(input=(3, size)))
    thresholds = [call({"lambd": value}, input=(257,)) for value in (0.0, 0.25, 1.0)]
    yield from variations("attributes", thresholds, dtypes=("float32", "float16"))


HARDSHRINK = OperatorDescriptor(
    name="hardshrink",
    category="activation",
    signature="input -> out",
    attributes=(Attribute(name="lambd", type="float", default=0.5, description="What is not larger becomes 0."),),
    dtype_variants=FLOATS,
    infer=infer,
    reference="optest_hardshrink.reference:hardshrink_reference",
    rule=Rule(kind=RuleClass.EXACT, source="a choice between input and 0; nothing is computed"),
    samples=samples,
    description="input where its magnitude is larger than lambd, else 0; NaN stays NaN.",
)
