"""Functions of one number that are exact or round to an integer: neg, abs, sign, floor, ceil, round, trunc."""

from __future__ import annotations

from collections.abc import Iterator

from optest.operators.calls import EVERY_FLOAT, MILLION, call, linspace_call, with_values
from optest.operators.describe import BOOL, INTEGERS, NUMBERS, OPENCL, attribute, in_module, ulp
from optest.operators.elementwise.helpers import refuse_bool, unary
from optest.operators.samples import error_samples, exhaustive_samples, million_element_samples, variations
from optest.operators.shapes import Attributes, Outputs, Specs, infer_same, require_spec
from optest.spec import OperatorDescriptor, Rule, RuleClass, Sample, UnfitArguments, dtype

_SIGN_BIT = "a change of the sign bit only: IEEE 754-2019 §5.5.1"
_INTEGER = "an integer that the dtype holds: IEEE 754-2019 §5.9"


def _exact_descriptor(
    name: str,
    description: str,
    *,
    kind: RuleClass = RuleClass.EXACT,
    source: str = _INTEGER,
    aliases: tuple[str, ...] = (),
    infer: str = "infer_integral",
    samples: str | None = None,
    bool_too: bool = False,
    signed_zeros: bool = True,
) -> OperatorDescriptor:
    """Return the descriptor of an exact function of one number."""
    return OperatorDescriptor(
        name=name,
        aliases=aliases,
        dtype_variants=(*NUMBERS, *BOOL) if bool_too else NUMBERS,
        infer=infer,
        samples=samples,
        rule=Rule(kind=kind, source=source),
        signed_zeros=signed_zeros,  # IEEE 754-2019 §5.9: a zero result has the sign of the operand
        description=description,
    )


DESCRIPTORS = in_module(
    __name__,
    _exact_descriptor(
        "neg",
        "-input, with the sign of 0 and infinity changed too; integers wrap.",
        kind=RuleClass.MOVEMENT,
        source=_SIGN_BIT,
        aliases=("negative", "Neg: X -> Y"),
    ),
    _exact_descriptor(
        "abs",
        "Absolute value, +0 for -0; the smallest integer keeps its value.",
        kind=RuleClass.MOVEMENT,
        source=_SIGN_BIT,
        aliases=("absolute", "Abs: X -> Y"),
    ),
    _exact_descriptor(
        "sign",
        "-1, 0 or 1; 0 for NaN; bool stays as it is.",
        source="comparison with 0",
        aliases=("Sign: input -> output",),
        infer="..shapes:infer_same",
        bool_too=True,
        signed_zeros=False,  # JAX keeps the sign of -0, NumPy and torch do not
    ),
    _exact_descriptor(
        "floor",
        "The largest integer not greater than input.",
        aliases=("Floor: X -> Y",),
        samples="integral_samples",
    ),
    _exact_descriptor(
        "ceil",
        "The smallest integer not less than input.",
        aliases=("Ceil: X -> Y",),
        samples="integral_samples",
    ),
    OperatorDescriptor(
        name="round",
        aliases=("Round: X -> Y",),
        attributes=(
            attribute("decimals: int = 0", "Decimal places to round to; negative ones count tens, hundreds, …."),
        ),
        dtype_variants=NUMBERS,
        terms="round_terms",
        alternatives="round_alternatives",
        rule=ulp(
            0.5, f"{_INTEGER}; decimals by division: {OPENCL}", "decimals ≠ 0: 5·|out| more, or the adjacent step"
        ),
        signed_zeros=True,  # IEEE 754-2019 §5.9
        description="The nearest integer, ties to even. With decimals, both neighbours are right if the "
        "multiplication by the power of ten rounds to a tie.",
    ),
    _exact_descriptor("trunc", "input without its fraction.", aliases=("fix",), samples="integral_samples"),
    twin="functions_reference",
)


def infer_integral(specs: Specs, attributes: Attributes) -> Outputs:
    """Return an output like the input; raise UnfitArguments for bool."""
    refuse_bool(require_spec(specs, 0, "input").dtype, "input")
    return infer_same(specs, attributes)


def infer_round(specs: Specs, attributes: Attributes) -> Outputs:
    """Return an output like the input; raise UnfitArguments for bool, or for decimals of an integer."""
    spec, decimals = require_spec(specs, 0, "input"), attributes.get("decimals", 0)
    if decimals and not spec.dtype.is_float:
        raise UnfitArguments(f"decimals is {decimals}, expected 0 for {spec.dtype}")
    return infer_integral(specs, attributes)


_HALVES = [sign * (integer + part) for integer in range(6) for part in (0.0, 0.25, 0.5, 0.75) for sign in (1.0, -1.0)]
# Around the ends of float16's and float32's fractions, and beyond the range of int32: a kernel may round by conversion.
_LARGE = [
    sign * value for value in (1022.5, 1023.5, 2**22 + 0.5, 2**23 + 1.0, 2**31 + 0.0, 3e9, 1e10) for sign in (1, -1)
]


def integral_samples() -> Iterator[Sample]:
    """Yield the samples of floor, ceil and trunc."""
    yield from unary(NUMBERS)
    yield from variations("ties", [with_values(_HALVES), linspace_call(-31.75, 32.0, count=256)], dtypes=EVERY_FLOAT)
    steps = (1.0, 1.5, 2.5)
    adjacent = [sign * (step + offset) for step in steps for offset in (2.0**-20, -(2.0**-20)) for sign in (1, -1)]
    # Below a half by half an ulp: floor(x + 0.5) is 1.
    adjacent += [0.5 - 2.0**-25, -0.5 + 2.0**-25]
    yield from variations("ties", [with_values(adjacent), with_values(_LARGE)], dtypes=("float32", "float64"))
    yield from exhaustive_samples()


def round_samples() -> Iterator[Sample]:
    yield from integral_samples()
    for decimals in (1, 2, 3, -1, -2):
        ten = 10.0**decimals
        ties = linspace_call(-30.25 / ten, 33.5 / ten, {"decimals": decimals}, count=256)
        yield from variations("attributes", [call({"decimals": decimals}, input=(4, 37)), ties], dtypes=EVERY_FLOAT)
    yield from variations("attributes", [with_values([-2.5, -1.25, 0.125, 0.375, 2.675, 15.0], {"decimals": 2})])
    yield from variations("attributes", [with_values([-25.0, -15.0, 5.0, 15.0, 25.0, 149.0], {"decimals": -1})])


def neg_samples() -> Iterator[Sample]:
    yield from abs_samples()
    yield from error_samples(call(input=(4, 37), dtypes=["bool"]))


def abs_samples() -> Iterator[Sample]:
    yield from unary(NUMBERS)
    yield from million_element_samples(call(input=MILLION), dtype="float32")
    # The smallest integer has no positive counterpart: it wraps to itself.
    for (name,) in INTEGERS:
        ends = [dtype(name).min_int, dtype(name).min_int + 1, 0, 1, dtype(name).max_int]
        yield from variations("wraps", [with_values(ends)], dtypes=[name])
    yield from exhaustive_samples()
    yield from _special_integers()


def _special_integers() -> Iterator[Sample]:
    yield from variations("special", [call(input=(4, 37), generator="special")], dtypes=[name for (name,) in INTEGERS])


def sign_samples() -> Iterator[Sample]:
    yield from unary((*NUMBERS, *BOOL))
    yield from exhaustive_samples()
    yield from _special_integers()
    yield from variations(
        "ties", [with_values([0.0, -0.0, 2.0**-14, -(2.0**-14), "inf", "-inf", "nan"])], dtypes=EVERY_FLOAT
    )
