"""What contractions share: attributes, inference, operations, and calls that each is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from optest.operators.calls import MAIN_FLOATS, Call
from optest.operators.describe import attribute
from optest.operators.samples import variations, with_special_rows
from optest.operators.shapes import Attributes, Inference, Specs
from optest.spec import DType, Sample, TensorSpec, Tier, UnfitArguments, dtype

OUT_DTYPE = attribute(
    "out_dtype: dtype = None",
    "Dtype of the result: wider integers, in which integers are added up (int8 in int32), or wider floats "
    "up to float32, to which the sum is rounded. None keeps the operands' dtype.",
)


def accumulating(operands: int) -> tuple[tuple[str, ...], ...]:
    """Operands of one dtype and a bias in that of a wider result."""
    pairs = (("int8", "int32"), ("uint8", "int32"), ("float16", "float32"), ("bfloat16", "float32"))
    return tuple((*(narrow,) * operands, wide) for narrow, wide in pairs)


def result_dtype(operands: DType, attributes: Attributes) -> DType:
    """The operands' own, or ``out_dtype``: a wider integer for integers, a wider float up to float32 for floats.

    Raises:
        UnfitArguments: for any other ``out_dtype``.
    """
    stated = attributes.get("out_dtype")
    if stated is None:
        return operands
    wanted = dtype(stated)
    wider = wanted.bits > operands.bits
    if wanted == operands or (wider and operands.is_integer and wanted.name in ("int32", "int64")):
        return wanted
    if wider and operands.is_float and wanted.name in MAIN_FLOATS:
        return wanted
    raise UnfitArguments(f"out_dtype is {wanted}, but should be {operands} or a wider type of its kind, up to float32")


def require_dtype(spec: TensorSpec, wanted: DType, name: str) -> None:
    if spec.dtype != wanted:
        raise UnfitArguments(f"{name} is {spec.dtype}, but should be {wanted}, as the result")


def operations_of(infer: Inference, length: Callable[[Specs, Attributes], int]) -> Callable[[Specs, Attributes], int]:
    """A multiplication and an addition for each product, as people count them.

    Zeros that padding adds are multiplied too; bias, alpha and beta are not counted, so that rates compare with those
    of others.
    """
    return lambda specs, attributes: 2 * infer(specs, attributes)[0].elements * length(specs, attributes)


def accumulator(calls: Iterable[Call]) -> Iterator[Sample]:
    """Operands whose sums leave their own dtype: 8-bit integers into 32 bits, exact; and 16-bit floats into float32.

    Then integers that wrap, and 16-bit floats whose partial sums do not fit into 16 bits though the result does.
    """
    for each in calls:
        for narrow, wide in (("int8", "int32"), ("uint8", "int32"), ("float16", "float32"), ("bfloat16", "float32")):
            attributes = {**each.get("attributes", {}), "out_dtype": wide}
            dtypes = [narrow, narrow, *[wide] * (len(each["shapes"]) - 2)]
            yield Sample(case_set="accumulator", case={**each, "attributes": attributes, "dtypes": dtypes})
        # Instructions that add pairs of 8-bit products in 16 bits stop at the largest number.
        lowest = {name: {"fill": "full", "value": -128} for name in list(each["shapes"])[:2]}
        attributes = {**each.get("attributes", {}), "out_dtype": "int32"}
        dtypes = ["int8", "int8", *["int32"] * (len(each["shapes"]) - 2)]
        whole = {**each, "attributes": attributes, "dtypes": dtypes, "generator": lowest}
        yield Sample(case_set="accumulator", case=whole)
        highest = {name: {"fill": "full", "value": 255} for name in lowest}
        yield Sample(
            case_set="accumulator", case={**whole, "dtypes": ["uint8", "uint8", *dtypes[2:]], "generator": highest}
        )


def special_operands(
    calls: Iterable[Call],
    *names: str,
    dtypes: Sequence[str] = MAIN_FLOATS,
    tier: Tier = Tier.PARITY,
) -> Iterator[Sample]:
    """Special values in one operand at a time: what infinity times a subnormal is depends on whether the unit that
    multiplies takes subnormals for zeros, as bfloat16 units do."""
    for each in calls:
        for name in names:
            case = {**each, "generator": {name: "special"}}
            yield from variations("special", [case], dtypes=dtypes, tier=tier)
        if tier is Tier.PARITY:
            yield from with_special_rows([each], names, dtypes=dtypes)


def zeros_times_special(stated: Call, one: str, other: str, *, dtypes: Sequence[str] = MAIN_FLOATS) -> Iterator[Sample]:
    """0 times NaN or infinity is NaN: a kernel that skips the zeros of one operand loses it."""
    for special, zeros in ((one, other), (other, one)):
        for each in with_special_rows([stated], [special], dtypes=dtypes):
            fills = {**each.case["generator"], zeros: "zeros"}
            yield Sample(case_set="special", case={**each.case, "generator": fills}, tier=each.tier)


def beyond_16_bits(*calls: Call) -> Iterator[Sample]:
    """More results, or more batches, than 16 bits count: a grid of a device has such limits in some dimensions."""
    yield from variations("sizes", calls, dtypes=("float32",))
