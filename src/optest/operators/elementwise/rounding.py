"""Functions of one number that round nothing, or to whole numbers: neg, abs, sign, floor, ceil, round, trunc."""

from __future__ import annotations

from collections.abc import Iterator

from optest.operators.calls import EVERY_FLOAT, MILLION, call, line, table
from optest.operators.describe import BOOL, INTEGERS, NUMBERS, OPENCL, attribute, in_module, ulp
from optest.operators.elementwise.helpers import refuse_bool, unary
from optest.operators.samples import of_a_million, of_every_value, refused, variations
from optest.operators.shapes import Attributes, Outputs, Specs, given, infer_same
from optest.spec import OperatorDescriptor, Rule, RuleClass, Sample, UnfitArguments, dtype

_SIGN_BIT = "a change of the sign bit alone: IEEE 754-2019 §5.5.1"
_WHOLE = "a whole number of the dtype: IEEE 754-2019 §5.9"


def _number(
    name: str,
    description: str,
    *,
    kind: RuleClass = RuleClass.EXACT,
    source: str = _WHOLE,
    aliases: tuple[str, ...] = (),
    infer: str = "infer_integral",
    samples: str | None = None,
    bool_too: bool = False,
    signed_zeros: bool = True,
) -> OperatorDescriptor:
    """A function that rounds nothing."""
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
    _number(
        "neg",
        "-input, with the sign of 0 and infinity changed too; integers wrap.",
        kind=RuleClass.MOVEMENT,
        source=_SIGN_BIT,
        aliases=("negative", "Neg: X -> Y"),
    ),
    _number(
        "abs",
        "Absolute value, +0 for -0; the smallest integer keeps its value.",
        kind=RuleClass.MOVEMENT,
        source=_SIGN_BIT,
        aliases=("absolute", "Abs: X -> Y"),
    ),
    _number(
        "sign",
        "-1, 0 or 1; 0 for NaN; bool stays as it is.",
        source="comparison with 0",
        aliases=("Sign: input -> output",),
        infer="..shapes:infer_same",
        bool_too=True,
        signed_zeros=False,  # JAX keeps the sign of -0, NumPy and torch do not
    ),
    _number(
        "floor",
        "The largest whole number that is not above input.",
        aliases=("Floor: X -> Y",),
        samples="whole_number_samples",
    ),
    _number(
        "ceil",
        "The smallest whole number that is not below input.",
        aliases=("Ceil: X -> Y",),
        samples="whole_number_samples",
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
        rule=ulp(0.5, f"{_WHOLE}; decimals by division: {OPENCL}", "decimals ≠ 0: 5·|out| more, or one step beside it"),
        signed_zeros=True,  # IEEE 754-2019 §5.9
        description="The nearest whole number, ties to even. With decimals, both neighbours are right where the "
        "multiplication by ten rounds to a tie.",
    ),
    _number("trunc", "input without its fraction.", aliases=("fix",), samples="whole_number_samples"),
    twin="functions_reference",
)


def infer_integral(specs: Specs, attributes: Attributes) -> Outputs:
    """The dtype of the input, which should be a number."""
    refuse_bool(given(specs, 0, "input").dtype, "input")
    return infer_same(specs, attributes)


def infer_round(specs: Specs, attributes: Attributes) -> Outputs:
    spec, decimals = given(specs, 0, "input"), attributes.get("decimals", 0)
    if decimals and not spec.dtype.is_float:
        raise UnfitArguments(f"decimals is {decimals}, but should be 0 for {spec.dtype}")
    return infer_integral(specs, attributes)


_HALVES = [sign * (whole + part) for whole in range(6) for part in (0.0, 0.25, 0.5, 0.75) for sign in (1.0, -1.0)]
_LARGE = [
    sign * value for value in (1022.5, 1023.5, 2**22 + 0.5, 2**23 + 1.0, 2**31 + 0.0, 3e9, 1e10) for sign in (1, -1)
]


def whole_number_samples() -> Iterator[Sample]:
    """Yield the samples of floor, ceil and trunc."""
    yield from unary(NUMBERS)
    # Whole numbers and halves of both signs, right beside them, and beyond the range of integers.
    yield from variations("ties", [table(_HALVES), line(-31.75, 32.0, count=256)], dtypes=EVERY_FLOAT)
    beside = [
        sign * (whole + part) for whole in (1.0, 1.5, 2.5) for part in (2.0**-20, -(2.0**-20)) for sign in (1, -1)
    ]
    beside += [0.5 - 2.0**-25, -0.5 + 2.0**-25]  # floor(x + 0.5) makes 1 of it
    yield from variations("ties", [table(beside), table(_LARGE)], dtypes=("float32", "float64"))
    yield from of_every_value()


def round_samples() -> Iterator[Sample]:
    yield from whole_number_samples()
    for decimals in (1, 2, 3, -1, -2):
        ten = 10.0**decimals
        calls = [
            call({"decimals": decimals}, input=(4, 37)),
            line(-30.25 / ten, 33.5 / ten, {"decimals": decimals}, count=256),
        ]
        yield from variations("attributes", calls, dtypes=EVERY_FLOAT)
    yield from variations("attributes", [table([-2.5, -1.25, 0.125, 0.375, 2.675, 15.0], {"decimals": 2})])
    yield from variations("attributes", [table([-25.0, -15.0, 5.0, 15.0, 25.0, 149.0], {"decimals": -1})])


def neg_samples() -> Iterator[Sample]:
    yield from abs_samples()
    yield from refused(call(input=(4, 37), dtypes=["bool"]))


def abs_samples() -> Iterator[Sample]:
    yield from unary(NUMBERS)
    yield from of_a_million(call(input=MILLION), dtype="float32")
    for (name,) in INTEGERS:
        ends = [dtype(name).min_int, dtype(name).min_int + 1, 0, 1, dtype(name).max_int]
        yield from variations("wraps", [table(ends)], dtypes=[name])
    yield from of_every_value()
    yield from variations("special", [call(input=(4, 37), generator="special")], dtypes=[each for (each,) in INTEGERS])


def sign_samples() -> Iterator[Sample]:
    yield from unary((*NUMBERS, *BOOL))
    yield from of_every_value()
    yield from variations("special", [call(input=(4, 37), generator="special")], dtypes=[each for (each,) in INTEGERS])
    yield from variations("ties", [table([0.0, -0.0, 2.0**-14, -(2.0**-14), "inf", "-inf", "nan"])], dtypes=EVERY_FLOAT)
