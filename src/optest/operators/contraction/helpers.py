"""Shared by the contractions: attributes, inference, counts of operations, and case sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from optest.operators.calls import MAIN_FLOATS, Call
from optest.operators.describe import attribute
from optest.operators.samples import variations, with_special_rows
from optest.operators.shapes import Attributes, Inference, Specs
from optest.spec import DType, Sample, TensorSpec, Tier, UnfitArguments, dtype

OUT_DTYPE = attribute(
    "out_dtype: dtype = None",
    "Dtype of the result: wider integers, in which integers are accumulated (int8 in int32), or wider floats "
    "up to float32, to which the sum is rounded. None keeps the operands' dtype.",
)
_ACCUMULATORS = (("int8", "int32"), ("uint8", "int32"), ("float16", "float32"), ("bfloat16", "float32"))
# Variants of two operands of one dtype and a bias of a wider result's dtype.
ACCUMULATING = tuple((narrow, narrow, wide) for narrow, wide in _ACCUMULATORS)


def result_dtype(operands: DType, attributes: Attributes) -> DType:
    """Return the operands' dtype, or ``out_dtype``: a wider integer for integers, a float up to float32 for floats.

    Raises:
        UnfitArguments: for any other ``out_dtype``.
    """
    requested = attributes.get("out_dtype")
    if requested is None:
        return operands
    result = dtype(requested)
    is_wider = result.bits > operands.bits
    if result == operands or (is_wider and operands.is_integer and result.name in ("int32", "int64")):
        return result
    if is_wider and operands.is_float and result.name in MAIN_FLOATS:
        return result
    raise UnfitArguments(f"out_dtype is {result}, expected {operands} or a wider type of its kind, up to float32")


def require_dtype(spec: TensorSpec, result: DType, name: str) -> None:
    """Raise UnfitArguments unless the tensor called ``name`` has the dtype of the result."""
    if spec.dtype != result:
        raise UnfitArguments(f"{name} is {spec.dtype}, expected {result}, as the result")


def operations_of(infer: Inference, length: Callable[[Specs, Attributes], int]) -> Callable[[Specs, Attributes], int]:
    """Return a function that counts two operations, a multiplication and an addition, for each product of a call.

    ``length`` returns the number of products per output element.
    """
    # By the usual convention, so that rates compare with published ones: zeros of the padding count, bias, alpha and
    # beta do not.
    return lambda specs, attributes: 2 * infer(specs, attributes)[0].elements * length(specs, attributes)


def accumulator(calls: Iterable[Call]) -> Iterator[Sample]:
    """Yield samples with a wider ``out_dtype``: 8-bit integers to int32, 16-bit floats to float32.

    Further ones are filled with the 8-bit integer of the largest magnitude. The first two inputs are the operands.
    """
    for base_call in calls:
        yield from (with_out_dtype(base_call, narrow, wide) for narrow, wide in _ACCUMULATORS)
        # Instructions that add pairs of 8-bit products in 16 bits saturate at these values.
        for narrow, value in (("int8", -128), ("uint8", 255)):
            fills = {name: {"fill": "full", "value": value} for name in list(base_call["shapes"])[:2]}
            yield with_out_dtype(base_call, narrow, "int32", generator=fills)


def with_out_dtype(base_call: Call, narrow: str, wide: str, **fields: Any) -> Sample:
    """Return a sample of the call with two operands of the dtype ``narrow``, and a bias and a result of ``wide``."""
    attributes = {**base_call.get("attributes", {}), "out_dtype": wide}
    dtypes = [narrow, narrow, *[wide] * (len(base_call["shapes"]) - 2)]
    return Sample(case_set="accumulator", case={**base_call, "attributes": attributes, "dtypes": dtypes, **fields})


def special_operands(
    calls: Iterable[Call],
    *names: str,
    dtypes: Sequence[str] = MAIN_FLOATS,
    tier: Tier = Tier.PARITY,
) -> Iterator[Sample]:
    """Yield samples with special values in one input at a time, those of ``names``."""
    # Not in two at once: infinity times a subnormal is NaN where the unit that multiplies takes subnormals for zeros,
    # as bfloat16 units do.
    for base_call in calls:
        for name in names:
            yield from variations("special", [{**base_call, "generator": {name: "special"}}], dtypes=dtypes, tier=tier)
        if tier is Tier.PARITY:
            yield from with_special_rows([base_call], names, dtypes=dtypes)


def zeros_times_special(
    base_call: Call, left: str, right: str, *, dtypes: Sequence[str] = MAIN_FLOATS
) -> Iterator[Sample]:
    """Yield samples with special values in one operand and zeros in the other one, both ways."""
    # 0 times NaN or infinity is NaN: a kernel that skips the zeros of one operand loses it.
    for special, zeros in ((left, right), (right, left)):
        for sample in with_special_rows([base_call], [special], dtypes=dtypes):
            fills = {**sample.case["generator"], zeros: "zeros"}
            yield Sample(case_set="special", case={**sample.case, "generator": fills}, tier=sample.tier)


def beyond_16_bits(*calls: Call) -> Iterator[Sample]:
    """Yield float32 samples of calls with more results, or batches, than 16 bits count."""
    # Some dimensions of a device's grid are limited to 16 bits.
    yield from variations("sizes", calls, dtypes=("float32",))
