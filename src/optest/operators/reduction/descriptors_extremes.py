"""Descriptors of the reductions that round nothing: extremes, their places, truth."""

from __future__ import annotations

from optest.operators.reduction.attributes import DIMS, EXACT_SETS, KEEPDIM, ONE_DIM
from optest.operators.variants import BOOL, NUMBERS
from optest.spec import OperatorDescriptor, Rule, RuleClass

__all__ = ["EXTREMES"]

_INFER = "optest.operators.reduction.inference:infer_"
_LENGTH = "optest.operators.reduction.inference:terms_of_reduction"
_REFERENCE = "optest.operators.reduction.extremes:"
_SAMPLES = "optest.operators.reduction.case_sets_extremes:"

_EVERY = (*NUMBERS, *BOOL)
_EXACT = Rule(kind=RuleClass.EXACT, source="torch: an element of the input, or its index")
_TRUTH = Rule(kind=RuleClass.EXACT, source="torch: a truth value")
_TRUTH_SETS = tuple(name for name in EXACT_SETS if name != "ties")

EXTREMES: tuple[OperatorDescriptor, ...] = (
    *(
        OperatorDescriptor(
            name=name,
            category="reduction",
            signature="input -> values, indices?",
            attributes=(ONE_DIM, KEEPDIM),
            dtype_variants=_EVERY,
            infer=_INFER + "max",
            reference=f"{_REFERENCE}{name}_reference",
            sum_length=_LENGTH,
            samples=f"{_SAMPLES}{name}_samples",
            case_sets=EXACT_SETS,
            rule=_EXACT,
            description=f"{word} element; with dim also its index, the first of equal ones. NaN goes before numbers.",
        )
        for name, word in (("max", "Largest"), ("min", "Least"))
    ),
    *(
        OperatorDescriptor(
            name=name,
            category="reduction",
            signature="input -> out",
            aliases=(alias,),
            attributes=(DIMS, KEEPDIM),
            dtype_variants=_EVERY,
            infer=_INFER + "amax",
            reference=f"{_REFERENCE}{name}_reference",
            sum_length=_LENGTH,
            samples=f"{_SAMPLES}{name}_samples",
            case_sets=EXACT_SETS,
            rule=_EXACT,
            description=f"{word} element over dimensions. NaN goes before all numbers.",
        )
        for name, alias, word in (("amax", "reduce_max", "Largest"), ("amin", "reduce_min", "Least"))
    ),
    *(
        OperatorDescriptor(
            name=name,
            category="reduction",
            signature="input -> out",
            aliases=(alias,),
            attributes=(ONE_DIM, KEEPDIM),
            dtype_variants=NUMBERS,
            infer=_INFER + "argmax",
            reference=f"{_REFERENCE}{name}_reference",
            sum_length=_LENGTH,
            samples=f"{_SAMPLES}{name}_samples",
            case_sets=EXACT_SETS,
            rule=_EXACT,
            description=f"Index of the {word} element, the first of equal ones; without dim into the flattened input. "
            "NaN goes before all numbers.",
        )
        for name, alias, word in (("argmax", "arg_max", "largest"), ("argmin", "arg_min", "least"))
    ),
    *(
        OperatorDescriptor(
            name=name,
            category="reduction",
            signature="input -> out",
            attributes=(DIMS, KEEPDIM),
            dtype_variants=_EVERY,
            infer=_INFER + "truth",
            reference=f"{_REFERENCE}{name}_reference",
            sum_length=_LENGTH,
            samples=f"{_SAMPLES}{name}_samples",
            case_sets=_TRUTH_SETS,
            rule=_TRUTH,
            description=f"Whether {word} element is not 0; NaN is not. bool, but uint8 for uint8.",
        )
        for name, word in (("all", "every"), ("any", "any"))
    ),
)
