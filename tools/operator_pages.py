"""Write the pages docs/operators.md and docs/operators/FAMILY.md, built from descriptors and docstrings: ``make docs``.

python tools/operator_pages.py DOCS_FOLDER
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from optest.operators.catalogue import FAMILIES
from optest.operators.describe import MEASURED, MIXED, OPENCL, SUMS
from optest.operators.documentation import DTYPE_SETS, aliases_text, attribute_text, ceiling_text, dtypes_text
from optest.operators.onnx import SPELLINGS
from optest.registry import load_object
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass, Spelling

_MADE = "<!-- Made by `make docs` from the descriptors. -->\n"

_HEAD = f"""\
# Operators

{_MADE}
What optest knows by name, and how it judges results when nobody states a tolerance. Names and attributes are
PyTorch's. Aliases are names of earlier plans, and of ONNX where they mean the same, with ONNX's names of the tensors.
Where ONNX means something else under its name, a case is [read as ONNX means it](operators/onnx.md). An attribute that
is true or false also takes 1 and 0.

u is the unit roundoff of the arithmetic: float64 where an input or the output is that wide, else float32 or what the
backend declares. Every bound also allows half a unit in the last place of the output, for the final rounding. Among the
sources, OpenCL is {OPENCL}, and IEEE is IEEE 754-2019.
"""

_CLASSES = {
    RuleClass.MOVEMENT: "bits are equal; NaN equals NaN",
    RuleClass.EXACT: "equal values, rounded once from the exact one; ±0 are equal",
    RuleClass.ULP: "a ceiling in units in the last place (ulp) of the arithmetic",
    RuleClass.ACCUMULATE: "4·√n·u·Σ\\|terms\\| for an element; z ≤ 1.25 over the tensor",
    RuleClass.COMPOSED: "the operator's own error budget in units of u; z ≤ 1.25 over the tensor",
}

_DTYPES_HEAD = """\
## How to read a section

A section begins with the tensors, the dtypes of the inputs and the aliases. Inputs that need not have one dtype are
joined by "with". The text at its end says what the operator's errors are beyond the final rounding. `optest explain`
shows the inputs that a case of it has by default. Sets of dtypes:
"""

_NOTES = """\
## What a reference does

- It takes the inputs in the signature's order. An optional input that is left out is None, or nothing at the end.
- It computes in float64 from the inputs as they are stored and does not round: `optest.numerics.round_to` rounds once,
  to the dtype of the output. Integers are exact and wrap as PyTorch's do; bool gives bool.
- Operands of two dtypes meet in the dtype of `torch.result_type`; integers are rounded to it first. A 0-d tensor does
  not widen a tensor that has dimensions, and is not rounded.
- NaN, infinities, empty tensors and 0-d tensors follow PyTorch. A factor of 0 (`alpha`, `beta` of `gemm`) leaves its
  operands unread, as in BLAS.
- A conversion that C and PyTorch leave undefined (NaN, infinity or a float beyond the range of an integer dtype) makes
  a bad case, not a failure. Negative floats wrap in unsigned dtypes, as PyTorch defines it for uint8.
- A conversion is rounded once. PyTorch on a CPU rounds twice from float64 and large integers to 16 bits, through
  float32; the rule allows for it.
"""

_ONNX = f"""\
# ONNX's names

{_MADE}
Each name stands for an operator of the [catalogue](../operators.md), with ONNX's attributes, defaults and order of
inputs. Tensors go by ONNX's names, by the operator's names or by position. What newer versions of ONNX take as an input
(bounds of Clip, k of TopK, axis of CumSum, shape of Reshape, axes of ReduceSum) is an attribute here. What the operator
cannot do is refused with the reason. The catalogue has no operator for a name that is neither here nor an alias.

```yaml
cases:
  - op: Conv
    shapes: {{X: [1, 3, 8, 8], W: [4, 3, 3, 3]}}
    attributes: {{strides: [2, 2], auto_pad: SAME_UPPER}}
```

An operator that is registered under one of these names takes its place.
"""

_SOURCES = {
    SUMS: "[sums](../verdicts.md#class-rules)",
    MEASURED: "[measured](../verdicts.md#ceilings)",
    OPENCL: "OpenCL",
    "IEEE 754-2019": "IEEE",
}
"""Short for sources that many rules have; the index says what they are."""

_Attributes = dict[str, Attribute]


def operator_pages() -> dict[str, str]:
    """Every page by its path below the folder of the docs, with a newline at its end."""
    pages = {f"operators/{family}.md": _family_page(family, each) for family, each in FAMILIES.items()}
    return {"operators.md": _index(), **pages, "operators/onnx.md": _onnx_page()}


def _index() -> str:
    rows = (
        (f"[{family}](operators/{family}.md)", ", ".join(_link(each.name, "operators/") for each in descriptors))
        for family, descriptors in FAMILIES.items()
    )
    sets = [(name, ", ".join(dtypes)) for name, dtypes in DTYPE_SETS.items()]
    pairs = ", ".join(f"{a} with {b}" for a, b in MIXED[::2])
    blocks = (
        _HEAD,
        _table(("family", "operators"), rows),
        "## Classes\n",
        _table(("class", "a result is right if"), ((kind.value, text) for kind, text in _CLASSES.items())),
        _DTYPES_HEAD,
        _table(
            ("set", "dtypes"), (*sets, ("mixed", f"{pairs}, in either order"), ("mixed numbers", "mixed without bool"))
        ),
        _NOTES,
    )
    return "\n".join(blocks)


def _family_page(family: str, descriptors: Sequence[OperatorDescriptor]) -> str:
    shared = _shared(each.attributes for each in descriptors)
    blocks = (
        f"# Operators: {family}\n",
        _MADE,
        "[How to read this page](../operators.md#how-to-read-a-section)\n",
        _table(("operators", "class", "ceiling or formula", "source"), _rule_rows(descriptors)),
        *_shared_section(shared),
        *(_section(descriptor, shared) for descriptor in descriptors),
    )
    return "\n".join(blocks)


def _onnx_page() -> str:
    shared = _shared(each.attributes for each in SPELLINGS.values())
    alike = groupby(SPELLINGS.values(), key=lambda each: (each.signature, each.attributes, each.description))
    return "\n".join(
        [_ONNX, *_shared_section(shared), *(_spelling_section(tuple(group), shared) for _, group in alike)]
    )


def _link(name: str, folder: str = "") -> str:
    family = next(family for family, each in FAMILIES.items() if name in [one.name for one in each])
    return f"[{name}]({folder}{family}.md#{name})"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _rule_rows(descriptors: Iterable[OperatorDescriptor]) -> Iterable[tuple[str, ...]]:
    """One row for all operators with the same rule."""
    names: dict[tuple[str, ...], list[str]] = {}
    for descriptor in descriptors:
        rule = descriptor.rule
        assert rule is not None, f"{descriptor.name} has no rule"
        row = (rule.kind.value, ceiling_text(rule).replace("|", "\\|") or "none", _source(rule))
        names.setdefault(row, []).append(f"[{descriptor.name}](#{descriptor.name})")
    return ((", ".join(links), *row) for row, links in names.items())


def _source(rule: Rule) -> str:
    if rule.source.startswith("docs/operators/"):
        return "derived"
    source = rule.source
    for text, short in _SOURCES.items():
        source = source.replace(text, short)
    return source


def _shared(groups: Iterable[Iterable[Attribute]]) -> _Attributes:
    """By its name, the attribute that most operators of a page have word for word, if more than one has it."""
    counts = Counter(attribute for attributes in groups for attribute in attributes)
    shared: _Attributes = {}
    for attribute, count in counts.most_common():
        if count > 1:
            shared.setdefault(attribute.name, attribute)
    return shared


def _shared_section(shared: _Attributes) -> list[str]:
    lines = "\n".join(f"- {attribute_text(attribute)}" for attribute in shared.values())
    return [f"## Common attributes\n\n{lines}\n"] if shared else []


def _attributes(attributes: Sequence[Attribute], shared: _Attributes) -> list[str]:
    common = [attribute for attribute in attributes if shared.get(attribute.name) == attribute]
    names = ", ".join(f"`{attribute.name}`" for attribute in common)
    return [
        *(f"- {attribute_text(attribute)}" for attribute in attributes if attribute not in common),
        *([f"- [common](#common-attributes): {names}"] if common else []),
    ]


def _section(descriptor: OperatorDescriptor, shared: _Attributes) -> str:
    also = f" Also {aliases_text(descriptor)}." if descriptor.aliases else ""
    lines = [
        f"## {descriptor.name}\n",
        f"`{descriptor.tensors}`: {dtypes_text(descriptor)}.{also}\n",
        f"{descriptor.description}\n",
        *_attributes(descriptor.attributes, shared),
        *([f"- parts: {', '.join(f'`{part}`' for part in descriptor.parts)}"] if descriptor.parts else []),
    ]
    text = "\n".join(lines).rstrip() + "\n"
    return f"{text}\n{derivation}\n" if (derivation := _derivation(descriptor)) else text


def _derivation(descriptor: OperatorDescriptor) -> str:
    """Return the first paragraph of the docstring of ``terms``, without its verb, and a link to the rest, if any."""
    if not isinstance(descriptor.terms, str) or descriptor.rule is None:
        return ""
    first, *rest = (inspect.getdoc(load_object(descriptor.terms)) or "").split("\n\n")
    if first.startswith("Return "):
        first = first[len("Return ") :]
        first = first[:1].upper() + first[1:]
    module, _, hook = descriptor.terms.partition(":")
    link = f"[Derivation](../../src/{module.replace('.', '/')}.py): `{hook}`."
    if descriptor.rule.kind is RuleClass.ACCUMULATE:
        return link if rest else ""
    return f"{first}\n{link}" if rest else first


def _spelling_section(spellings: Sequence[Spelling], shared: _Attributes) -> str:
    """One section for names that differ in nothing but the operator, which are given in their order."""
    first = spellings[0]
    meant = ", ".join(" or ".join(map(_link, each.operators)) for each in spellings)
    lines = [
        f"## {', '.join(each.name for each in spellings)}\n",
        f"{meant}: `{first.signature}`. {first.description}".strip() + "\n",
        *_attributes(first.attributes, shared),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _main() -> None:
    folder = Path(sys.argv[1])
    (folder / "operators").mkdir(exist_ok=True)
    for path, text in operator_pages().items():
        (folder / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _main()
