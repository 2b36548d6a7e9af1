"""The page docs/operators.md, made from the descriptors and the docstrings of their hooks."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping

from optest.operators.catalogue import DESCRIPTORS
from optest.registry import load_object
from optest.spec import REQUIRED, Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["operators_page"]

_HEAD = """\
# Operators

<!-- Made by `optest.operators.documentation:operators_page`; edit the descriptors, not this file. -->

What optest knows by name, and how results are judged when nobody states a tolerance. Names and attributes are
PyTorch's; the aliases are those of ONNX and of earlier plans, wherever they mean the same once attributes are stated;
where ONNX has another default the entry says so. What newer versions of ONNX have as an input (bounds of Clip, k of
TopK, axis of CumSum, shape of Reshape) is an attribute here. Pow and Mod take inputs of one dtype there; of two dtypes
the result has the promoted one here. Names of ONNX that would mean something else under the same attributes (Gather,
Pad, Expand, Split, BatchNormalization) are none of optest's. An attribute that is true or
false takes 1 and 0 too, as ONNX has them.

u is the unit roundoff of the arithmetic: float64 where an input or the output is that wide, else float32 or what the
backend declares. Every bound is followed by half a unit in the last place of the output, for the final rounding.
"""

_CLASSES = {
    RuleClass.MOVEMENT: "bits are equal; NaN equals NaN",
    RuleClass.EXACT: "equal values, rounded once from the exact one; ±0 are equal",
    RuleClass.ULP: "a ceiling in units in the last place (ulp) of the arithmetic",
    RuleClass.ACCUMULATE: "4·√n·u·Σ\\|terms\\| for an element; z ≤ 1.25 over the tensor",
    RuleClass.COMPOSED: "the operator's own error budget in units of u; z ≤ 1.25 over the tensor",
}

_NOTES = """\
## What a reference does

- It takes the inputs in the signature's order; a left-out optional input is None, or nothing at the end.
- It computes in float64 from the inputs as they are stored, and rounds nothing: `optest.numerics.round_to` does that
  once, to the dtype of the output. Integers are exact and wrap as PyTorch's do; bool gives bool.
- Operands of two dtypes meet in the dtype of `torch.result_type`; integers are rounded to it first. A 0-d tensor does
  not widen a tensor that has dimensions, and is read unrounded.
- NaN, infinities, empty tensors and 0-d tensors follow PyTorch. A factor of 0 (`alpha`, `beta` of `gemm`) leaves its
  operands unread, as in BLAS.
- A conversion that C and PyTorch leave undefined (NaN, infinity or a float beyond the range of an integer dtype) makes
  a bad case, not a failure. Negative floats wrap in unsigned dtypes, as PyTorch defines it for uint8.
- A conversion is rounded once. PyTorch on a CPU takes float64 and large integers through float32 to 16 bits and rounds
  twice: about one float64 in ten thousand comes out wrong in float16, and the rule says so.
"""


def operators_page() -> str:
    """The whole page, with a newline at its end."""
    blocks = (
        _HEAD,
        _table(("operator", "class", "ceiling or formula", "source"), map(_rule_row, DESCRIPTORS)),
        "## Classes\n",
        _table(("class", "a result is right if"), ((kind.value, text) for kind, text in _CLASSES.items())),
        _NOTES,
        *(_section(descriptor) for descriptor in DESCRIPTORS),
    )
    return "\n".join(blocks)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _rule_row(descriptor: OperatorDescriptor) -> tuple[str, ...]:
    rule = _rule_of(descriptor)
    ceiling = _ceiling(rule).replace("|", "\\|")
    return (f"[{descriptor.name}](#{descriptor.name})", rule.kind.value, ceiling or "none", rule.source)


def _ceiling(rule: Rule) -> str:
    return "; ".join(part for part in (f"{rule.ulp:g} ulp" if rule.kind is RuleClass.ULP else "", rule.formula) if part)


def _rule_of(descriptor: OperatorDescriptor) -> Rule:
    assert descriptor.rule is not None, f"{descriptor.name} has no rule"
    return descriptor.rule


def _section(descriptor: OperatorDescriptor) -> str:
    rule = _rule_of(descriptor)
    lines = [
        f"## {descriptor.name}\n",
        f"{descriptor.description}\n",
        f"- tensors: `{descriptor.tensors}`",
        f"- rule: [{rule.kind.value}](#classes), {_ceiling(rule) or rule.source}",
        *([f"- aliases: {_aliases(descriptor)}"] if descriptor.aliases else []),
        *(f"- attribute {_attribute(attribute)}" for attribute in descriptor.attributes),
        f"- input dtypes: {_dtypes(descriptor)}",
        *([f"- default inputs: `{descriptor.generator}`"] if descriptor.generator else []),
        *(
            f"- default range of `{name}`: {interval.low:g} to {interval.high:g}"
            + (f", at least {interval.avoid:g} from 0" if interval.avoid else "")
            for name, interval in (descriptor.domain.items() if isinstance(descriptor.domain, Mapping) else ())
        ),
    ]
    text = "\n".join(lines) + "\n"
    derivation = inspect.getdoc(load_object(descriptor.terms)) if isinstance(descriptor.terms, str) else None
    return f"{text}\n{derivation}\n" if derivation else text


def _aliases(descriptor: OperatorDescriptor) -> str:
    """ONNX, whose names begin with a capital, keeps reduced dimensions unless it is told otherwise."""
    named = ", ".join(f"`{alias}`" for alias in descriptor.aliases)
    keeps = "keepdim" in {each.name for each in descriptor.attributes}
    from_onnx = [alias for alias in descriptor.aliases if alias[0].isupper()]
    if not (keeps and from_onnx):
        return named
    if any(alias.startswith("Arg") for alias in from_onnx):
        return f"{named}; in ONNX `axis` is 0 and `keepdims` 1 where they are left out, here all and 0: state them"
    return f"{named}; in ONNX `keepdims` is 1 where it is left out, here it is 0 under every name: state it"


def _attribute(attribute: Attribute) -> str:
    default = "required" if attribute.default is REQUIRED else f"default `{attribute.default}`"
    choices = f", one of {', '.join(f'`{choice}`' for choice in attribute.choices)}" if attribute.choices else ""
    aliases = f", also {', '.join(f'`{alias}`' for alias in attribute.aliases)}" if attribute.aliases else ""
    return f"`{attribute.name}` ({attribute.type}, {default}{choices}{aliases}): {attribute.description}"


def _dtypes(descriptor: OperatorDescriptor) -> str:
    alike = [variant[0] for variant in descriptor.dtype_variants if len(variant) == 1]
    mixed = [" with ".join(dict.fromkeys(variant)) for variant in descriptor.dtype_variants if len(variant) > 1]
    parts = [", ".join(alike), f"mixed: {', '.join(dict.fromkeys(mixed))}" if mixed else ""]
    return "; ".join(part for part in parts if part)
