"""Descriptors of choices between operands, and of conversion, as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import EVERY, EVERYTHING, FLOATS, INTEGERS
from optest.spec import Attribute, Interval, OperatorDescriptor, Rule, RuleClass

__all__ = ["SELECTION"]

_FAMILY = "optest.operators.elementwise."
_INFER = _FAMILY + "inference:infer_"
_REFERENCE = _FAMILY + "references_selection:"
_SAMPLES = _FAMILY + "case_sets_selection:"

_COMMON_SETS = ("ordinary", "dtypes", "layouts", "sizes", "special", "refused")
_CHOICE = Rule(kind=RuleClass.EXACT, source="a choice between operands; nothing is computed")


def _extremum(name: str, alias: str, description: str) -> OperatorDescriptor:
    return OperatorDescriptor(
        name=name,
        category="elementwise",
        signature="input, other -> out",
        aliases=(alias,),
        dtype_variants=EVERYTHING,
        infer=_INFER + "binary",
        reference=f"{_REFERENCE}{name}_reference",
        rule=_CHOICE,
        samples=_SAMPLES + "extremum_samples",
        case_sets=(*_COMMON_SETS, "broadcast", "ties"),
        description=f"{description} of both, with broadcasting; NaN where either is NaN.",
    )


def _bound(name: str, description: str) -> Attribute:
    return Attribute(name=name, type="float", default=None, description=description)


SELECTION: tuple[OperatorDescriptor, ...] = (
    _extremum("maximum", "Max", "The larger"),
    _extremum("minimum", "Min", "The smaller"),
    OperatorDescriptor(
        name="where",
        category="elementwise",
        signature="condition, input, other -> out",
        aliases=("Where",),
        dtype_variants=tuple(("bool", *(pair * 2)[:2]) for pair in EVERYTHING),
        infer=_INFER + "where",
        reference=_REFERENCE + "where_reference",
        rule=Rule(kind=RuleClass.MOVEMENT, source="elements are chosen and move; only mixed dtypes convert"),
        samples=_SAMPLES + "where_samples",
        case_sets=(*_COMMON_SETS, "broadcast"),
        description="input where condition is true, else other, with broadcasting of all three.",
    ),
    OperatorDescriptor(
        name="clip",
        category="elementwise",
        signature="input -> out",
        aliases=("clamp",),
        attributes=(
            _bound("min", "Lower bound; none is no bound."),
            _bound("max", "Upper bound; none is no bound, and below min it wins."),
        ),
        dtype_variants=(*FLOATS, *INTEGERS, ("uint16",), ("uint32",), ("uint64",)),
        infer=_INFER + "clip",
        reference=_REFERENCE + "clip_reference",
        rule=_CHOICE,
        samples=_SAMPLES + "clip_samples",
        case_sets=(*_COMMON_SETS, "attributes"),
        description="input kept between min and max; max everywhere where min is above it, NaN stays NaN. A bound of "
        "integers that is no whole number gives float32.",
    ),
    OperatorDescriptor(
        name="cast",
        category="conversion",
        signature="input -> out",
        attributes=(
            Attribute(name="dtype", type="dtype", aliases=("to",), description="Dtype of the result."),
            Attribute(
                name="saturate",
                type="bool",
                default=False,
                description="float8 results stop at the largest finite value in place of infinity or NaN.",
            ),
        ),
        dtype_variants=EVERY,
        infer=_INFER + "cast",
        reference=_FAMILY + "references_conversion:cast_reference",
        rule=Rule(kind=RuleClass.EXACT, source="conversion: rounded once, ties to even; to integers towards zero"),
        # Inside int8 and float8; beyond the range of an integer dtype, conversion is undefined in C and torch.
        domain={"input": Interval(low=-100.0, high=100.0)},
        samples=_FAMILY + "case_sets_conversion:cast_samples",
        case_sets=("ordinary", "dtypes", "layouts", "sizes", "pairs", "special", "ties", "truth", "attributes"),
        signed_zeros=True,  # IEEE 754-2019 §6.3
        description="Conversion to another dtype; integers wrap, floats lose their fraction, non-zero is true.",
    ),
)
