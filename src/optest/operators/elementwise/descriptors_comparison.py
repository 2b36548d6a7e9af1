"""Descriptors of comparison, logic and bitwise operators as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import BOOL, EVERYTHING, INTEGERS, NUMBERS
from optest.spec import OperatorDescriptor, Rule, RuleClass

__all__ = ["COMPARISON"]

_FAMILY = "optest.operators.elementwise."
_INFER = _FAMILY + "inference:infer_"
_REFERENCE = _FAMILY + "references_comparison:"
_SAMPLES = _FAMILY + "case_sets_comparison:"

_BITS = (
    *INTEGERS,
    *BOOL,
    ("int8", "uint8"),
    ("uint8", "int8"),
    ("int32", "int64"),
    ("int64", "int32"),
    ("bool", "int32"),
    ("int32", "bool"),
)
_OF_TWO = ("broadcast", "refused")
_COMMON_SETS = ("ordinary", "dtypes", "layouts", "sizes", *_OF_TWO)


def _comparison(name: str, aliases: tuple[str, ...], description: str) -> OperatorDescriptor:
    return OperatorDescriptor(
        name=name,
        category="comparison",
        signature="input, other -> out",
        aliases=aliases,
        dtype_variants=EVERYTHING,
        infer=_INFER + "comparison",
        reference=f"{_REFERENCE}{name}_reference",
        rule=Rule(kind=RuleClass.EXACT, source="comparison: IEEE 754-2019 §5.11"),
        samples=_SAMPLES + ("equality_samples" if name in ("eq", "ne") else "order_samples"),
        case_sets=(*_COMMON_SETS, "special", "ties", "neighbours"),
        description=f"Whether input is {description} other, in their common dtype; NaN is unequal to everything and "
        "in no order.",
    )


def _logic(name: str, aliases: tuple[str, ...], description: str) -> OperatorDescriptor:
    unary = name.endswith("_not")
    return OperatorDescriptor(
        name=name,
        category="logic",
        signature="input -> out" if unary else "input, other -> out",
        aliases=aliases,
        dtype_variants=(*NUMBERS, *BOOL) if unary else EVERYTHING,
        infer=_INFER + ("logical_not" if unary else "comparison"),
        reference=f"{_REFERENCE}{name}_reference",
        rule=Rule(kind=RuleClass.EXACT, source="truth: whatever is not 0 is true, NaN too"),
        samples=_SAMPLES + ("logical_not_samples" if unary else "logic_samples"),
        case_sets=(
            *(each for each in _COMMON_SETS if not unary or each not in _OF_TWO),
            "special",
            "truth",
        ),
        description=description,
    )


def _bitwise(name: str, aliases: tuple[str, ...], description: str) -> OperatorDescriptor:
    unary = name.endswith("_not")
    return OperatorDescriptor(
        name=name,
        category="bitwise",
        signature="input -> out" if unary else "input, other -> out",
        aliases=aliases,
        dtype_variants=(*INTEGERS, *BOOL) if unary else _BITS,
        infer=_INFER + ("bitwise_not" if unary else "bitwise"),
        reference=f"{_REFERENCE}{name}_reference",
        rule=Rule(kind=RuleClass.EXACT, source="bits of integers in two's complement"),
        samples=_SAMPLES + ("bitwise_not_samples" if unary else "bitwise_samples"),
        case_sets=(*(each for each in _COMMON_SETS if not unary or each not in _OF_TWO), "special"),
        description=description,
    )


COMPARISON: tuple[OperatorDescriptor, ...] = (
    _comparison("eq", ("Equal",), "equal to"),
    _comparison("ne", ("not_equal",), "unequal to"),
    _comparison("lt", ("less", "Less"), "less than"),
    _comparison("le", ("less_equal", "LessOrEqual"), "at most"),
    _comparison("gt", ("greater", "Greater"), "greater than"),
    _comparison("ge", ("greater_equal", "GreaterOrEqual"), "at least"),
    _logic("logical_and", ("And",), "Whether both are true."),
    _logic("logical_or", ("Or",), "Whether one or both are true."),
    _logic("logical_xor", ("Xor",), "Whether one of both is true, but not the other."),
    _logic("logical_not", ("Not",), "Whether input is false."),
    _bitwise("bitwise_and", ("BitwiseAnd",), "Bits that both have; for bool, logical and."),
    _bitwise("bitwise_or", ("BitwiseOr",), "Bits that one or both have; for bool, logical or."),
    _bitwise("bitwise_xor", ("BitwiseXor",), "Bits that one of both has; for bool, logical exclusive or."),
    _bitwise("bitwise_not", ("BitwiseNot",), "All bits turned; for bool, logical not."),
)
