"""The pages docs/operators.md and docs/operators/FAMILY.md, made from descriptors and the docstrings of their hooks.

python -m optest.operators.documentation DOCS_FOLDER
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from optest.operators.catalogue import FAMILIES
from optest.operators.onnx import SPELLINGS
from optest.operators.onnx.tensors import ALIASES
from optest.registry import load_object
from optest.spec import REQUIRED, Attribute, OperatorDescriptor, Rule, RuleClass, Spelling

__all__ = ["operator_pages"]

_MADE = "<!-- Made by `make docs` from optest.operators; edit the descriptors, not this file. -->\n"

_HEAD = f"""\
# Operators

{_MADE}
What optest knows by name, and how results are judged when nobody states a tolerance. Names and attributes are
PyTorch's; aliases are those of earlier plans, and of ONNX where they mean the same; ONNX's stand with its names of the
tensors, which a plan may use where it uses the alias. Where ONNX means something else under its name (other defaults,
other forms, another order of inputs), a case under that name is [read as ONNX means it](operators/onnx.md) and becomes
one of the operator here. An attribute that is true or false takes 1 and 0 too, as ONNX has them.

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


_ONNX = f"""\
# ONNX's names

{_MADE}
Each stands for an operator of the [catalogue](../operators.md), with ONNX's attributes, their defaults and its order of
the inputs; tensors go by ONNX's names, by those of the operator and by position. What newer versions of ONNX have as an
input (bounds of Clip, k of TopK, axis of CumSum, shape of Reshape, axes of ReduceSum) is an attribute here. What the
operator cannot do is refused with the reason; what is said "as conv2d" is in the words of that operator. A name of ONNX
that is neither here nor an alias has no operator in the catalogue.

```yaml
cases:
  - op: Conv
    shapes: {{X: [1, 3, 8, 8], W: [4, 3, 3, 3]}}
    attributes: {{strides: [2, 2], auto_pad: SAME_UPPER}}
```

An operator that is registered under one of these names takes its place.
"""


def operator_pages() -> dict[str, str]:
    """Every page by its path below the folder of the docs, with a newline at its end."""
    pages = {f"operators/{family}.md": _family_page(family, each) for family, each in FAMILIES.items()}
    return {
        "operators.md": _index(),
        **pages,
        "operators/onnx.md": "\n".join([_ONNX, *map(_spelling, SPELLINGS.values())]),
    }


def _index() -> str:
    rows = (
        (f"[{family}](operators/{family}.md)", ", ".join(_link(each.name, "operators/") for each in descriptors))
        for family, descriptors in FAMILIES.items()
    )
    blocks = (
        _HEAD,
        _table(("family", "operators"), rows),
        "## Classes\n",
        _table(("class", "a result is right if"), ((kind.value, text) for kind, text in _CLASSES.items())),
        _NOTES,
    )
    return "\n".join(blocks)


def _family_page(family: str, descriptors: Iterable[OperatorDescriptor]) -> str:
    descriptors = tuple(descriptors)
    blocks = (
        f"# Operators: {family}\n",
        _MADE,
        "[Operators](../operators.md) says what the classes and u are, and what a reference does.\n",
        _table(("operator", "class", "ceiling or formula", "source"), map(_rule_row, descriptors)),
        *(_section(descriptor) for descriptor in descriptors),
    )
    return "\n".join(blocks)


def _link(name: str, folder: str = "") -> str:
    family = next(family for family, each in FAMILIES.items() if name in [one.name for one in each])
    return f"[{name}]({folder}{family}.md#{name})"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _rule_row(descriptor: OperatorDescriptor) -> tuple[str, ...]:
    rule = _rule_of(descriptor)
    ceiling = _ceiling(rule).replace("|", "\\|")
    return (f"[{descriptor.name}](#{descriptor.name})", rule.kind.value, ceiling or "none", rule.source)


def _ceiling(rule: Rule) -> str:
    return "; ".join(part for part in (_units(rule) if rule.kind is RuleClass.ULP else "", rule.formula) if part)


def _units(rule: Rule) -> str:
    return f"{rule.ulp:g} ulp" + (f", {rule.cpu_ulp:g} on a CPU" if rule.cpu_ulp is not None else "")


def _rule_of(descriptor: OperatorDescriptor) -> Rule:
    assert descriptor.rule is not None, f"{descriptor.name} has no rule"
    return descriptor.rule


def _section(descriptor: OperatorDescriptor) -> str:
    rule = _rule_of(descriptor)
    lines = [
        f"## {descriptor.name}\n",
        f"{descriptor.description}\n",
        f"- tensors: `{descriptor.tensors}`",
        f"- rule: [{rule.kind.value}](../operators.md#classes), {_ceiling(rule) or rule.source}",
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
    return ", ".join(_alias(alias) for alias in descriptor.aliases)


def _alias(name: str) -> str:
    return f"`{name}` (`{ALIASES[name].signature}`)" if name in ALIASES else f"`{name}`"


def _spelling(spelling: Spelling) -> str:
    meant = " or ".join(map(_link, spelling.operators))
    lines = [
        f"## {spelling.name}\n",
        f"{meant}. {spelling.description}".strip() + "\n",
        f"- tensors: `{spelling.signature}`",
        *(f"- attribute {_attribute(attribute)}" for attribute in spelling.attributes),
    ]
    return "\n".join(lines) + "\n"


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


def _main() -> None:
    folder = Path(sys.argv[1])
    (folder / "operators").mkdir(exist_ok=True)
    for path, text in operator_pages().items():
        (folder / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _main()
