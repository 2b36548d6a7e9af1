"""Logical and bitwise operators."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from optest.operators.calls import EVERY_FLOAT, call, with_values
from optest.operators.describe import BOOL, EVERYTHING, INTEGERS, NUMBERS, exact, in_module
from optest.operators.elementwise.helpers import FEW_VALUES, binary, grid, promote_operands, unary
from optest.operators.samples import variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense, require_spec
from optest.spec import DType, OperatorDescriptor, Sample, UnfitArguments, dtype

_PAIRS = (("int8", "uint8"), ("int32", "int64"), ("bool", "int32"))
_BITS = (*INTEGERS, *BOOL, *(pair for a, b in _PAIRS for pair in ((a, b), (b, a))))
_TRUTH = "truth: every value except 0 is true, NaN included"
_TWOS_COMPLEMENT = "bits of integers in two's complement"


def _of_two(name: str, alias: str, description: str) -> OperatorDescriptor:
    is_logic = name.startswith("logical")
    return OperatorDescriptor(
        name=name,
        category="logic" if is_logic else "bitwise",
        signature="input, other -> out",
        aliases=(f"{alias}: A, B -> C",),
        dtype_variants=EVERYTHING if is_logic else _BITS,
        infer="helpers:infer_comparison" if is_logic else "infer_bitwise",
        rule=exact(_TRUTH if is_logic else _TWOS_COMPLEMENT),
        samples="logic_samples" if is_logic else "bitwise_samples",
        description=description,
    )


DESCRIPTORS = in_module(
    __name__,
    _of_two("logical_and", "And", "Logical and."),
    _of_two("logical_or", "Or", "Logical or."),
    _of_two("logical_xor", "Xor", "Logical exclusive or."),
    OperatorDescriptor(
        name="logical_not",
        category="logic",
        aliases=("Not: X -> Y",),
        dtype_variants=(*NUMBERS, *BOOL),
        rule=exact(_TRUTH),
        description="True where input is 0 or False.",
    ),
    _of_two("bitwise_and", "BitwiseAnd", "Bitwise and; for bool, logical and."),
    _of_two("bitwise_or", "BitwiseOr", "Bitwise or; for bool, logical or."),
    _of_two("bitwise_xor", "BitwiseXor", "Bitwise exclusive or; for bool, logical exclusive or."),
    OperatorDescriptor(
        name="bitwise_not",
        category="bitwise",
        aliases=("bitwise_invert", "BitwiseNot: X -> Y"),
        dtype_variants=(*INTEGERS, *BOOL),
        rule=exact(_TWOS_COMPLEMENT),
        description="Bitwise complement; for bool, logical not.",
    ),
    twin="comparison_reference",
)


def infer_bitwise(specs: Specs, _attributes: Attributes) -> Outputs:
    """Return an output of the common dtype and the broadcast shape; raise UnfitArguments unless integer or bool."""
    result, outputs = promote_operands(specs)
    _require_bits(result, "the common dtype")
    return outputs


def infer_bitwise_not(specs: Specs, _attributes: Attributes) -> Outputs:
    """Return an output like the input; raise UnfitArguments unless it is an integer or bool."""
    spec = require_spec(specs, 0, "input")
    _require_bits(spec.dtype, "input")
    return (dense(spec.dtype, spec.shape),)


def infer_logical_not(specs: Specs, _attributes: Attributes) -> Outputs:
    """Return a bool output of the input's shape."""
    return (dense(dtype("bool"), require_spec(specs, 0, "input").shape),)


def _require_bits(entry: DType, name: str) -> None:
    if entry.is_inexact:
        raise UnfitArguments(f"{name} is {entry}, expected bool or an integer")


_TRUTHS = [0.0, -0.0, 1.0, -1.0, 0.25, 2.0, 256.0, "inf", "-inf", "nan"]
# True, but with lower bytes that are all 0: a kernel that narrows before it compares with 0 takes them for false.
_WIDE_TRUTHS = (
    ("int64", [0, 1, 256, 65536, 2**31, 2**32, 2**40]),
    ("int32", [0, 1, 256, 65536, -(2**31)]),
    ("int16", [0, 1, 256, -(2**15)]),
)


def logic_samples() -> Iterator[Sample]:
    yield from binary(EVERYTHING, generator=FEW_VALUES)
    yield from variations("truth", [grid(_TRUTHS, _TRUTHS)], dtypes=EVERY_FLOAT)
    # Disjoint bits: a bitwise operation gives 0 for two that are true.
    powers = [0, 1, 2, 4, 16, 64]
    yield from variations("truth", [grid(powers, powers)], dtypes=("uint8", "int8", "int32", "int64"))
    for name, wide in _WIDE_TRUTHS:
        yield from variations("truth", [grid(wide, wide)], dtypes=(name,))


def logical_not_samples() -> Iterator[Sample]:
    yield from unary((*NUMBERS, *BOOL), generator=FEW_VALUES)
    yield from variations("truth", [with_values(_TRUTHS)], dtypes=EVERY_FLOAT)
    for name, wide in _WIDE_TRUTHS:
        yield from variations("truth", [with_values(wide)], dtypes=(name,))


def bitwise_samples() -> Iterator[Sample]:
    yield from binary(_BITS)
    special = call(input=(4, 37), other=(4, 37), generator="special")
    yield from variations("special", [special], dtypes=[name for (name,) in (*INTEGERS, *BOOL)])


bitwise_not_samples = partial(unary, (*INTEGERS, *BOOL))
