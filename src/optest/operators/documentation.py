"""Texts that describe an operator, for `optest explain` and the pages of operators: dtypes, attributes, rule."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest

from optest.operators.describe import EVERY, FLOAT8, FLOATS, INTEGERS, MIXED, MIXED_NUMBERS, NUMBERS, UNSIGNED
from optest.operators.onnx import SPELLINGS
from optest.spec import REQUIRED, Attribute, OperatorDescriptor, Rule, RuleClass

DTYPE_SETS = {
    name: tuple(dtype for (dtype,) in variants)
    for name, variants in (
        ("all", EVERY),
        ("numbers", NUMBERS),
        ("floats", FLOATS),
        ("integers", INTEGERS),
        ("wide unsigned", UNSIGNED),
        ("float8", FLOAT8),
    )
}
"""Sets of dtypes with names; a set goes before its parts."""

_PAIRS = {"mixed": MIXED, "mixed numbers": MIXED_NUMBERS}


def ceiling_text(rule: Rule) -> str:
    return "; ".join(part for part in (_units(rule) if rule.kind is RuleClass.ULP else "", rule.formula) if part)


def _units(rule: Rule) -> str:
    return f"{rule.ulp:g} ulp" + (f", {rule.cpu_ulp:g} on a CPU" if rule.cpu_ulp is not None else "")


def described(descriptor: OperatorDescriptor) -> list[tuple[str, str]]:
    """Return labelled lines that describe an operator on a terminal, with the content of its page."""
    rule, dtypes = descriptor.rule, dtypes_text(descriptor) if descriptor.dtype_variants else "any"
    sets = [f"{name} are {', '.join(each)}" for name, each in DTYPE_SETS.items() if name in re.split("[ ,;]+", dtypes)]
    onnx = [name for name, spelling in SPELLINGS.items() if descriptor.name in spelling.operators]
    rows = [
        ("signature", str(descriptor.tensors)),
        ("dtypes", "; ".join([dtypes, *sets])),
        *(("attribute", attribute_text(each)) for each in descriptor.attributes),
        ("parts", ", ".join(descriptor.parts)),
        ("also", ", ".join(filter(None, [aliases_text(descriptor), *onnx]))),
        ("rule", ": ".join(filter(None, [rule.kind.value, ceiling_text(rule)])) if rule else "none; set a tolerance"),
        ("source", rule.source if rule else ""),
    ]
    return [(label, text.replace("`", "")) for label, text in rows if text]


def aliases_text(descriptor: OperatorDescriptor) -> str:
    tensors = descriptor.alias_tensors
    return ", ".join(f"`{name}` (`{tensors[name]}`)" if name in tensors else f"`{name}`" for name in descriptor.aliases)


def attribute_text(attribute: Attribute) -> str:
    default = "required" if attribute.default is REQUIRED else f"default `{attribute.default}`"
    choices = f", one of {', '.join(f'`{choice}`' for choice in attribute.choices)}" if attribute.choices else ""
    aliases = f", also {', '.join(f'`{alias}`' for alias in attribute.aliases)}" if attribute.aliases else ""
    return f"`{attribute.name}` ({attribute.type}, {default}{choices}{aliases}): {attribute.description}"


def dtypes_text(descriptor: OperatorDescriptor) -> str:
    """The sets of dtypes, input by input where each has its own."""
    variants = descriptor.dtype_variants
    alike = [variant for variant in variants if len(variant) == 1]
    distinct = [tuple(dict.fromkeys(variant)) for variant in variants if len(variant) > 1]
    if not alike or any(len(variant) > 2 for variant in distinct):
        names = [each.name for each in descriptor.tensors.inputs]
        inputs: dict[str, list[str]] = {}
        for name, column in zip(names, zip_longest(*variants), strict=True):
            inputs.setdefault(_names(dict.fromkeys(filter(None, column))), []).append(f"`{name}`")
        return "; ".join(f"{', '.join(of)} {dtypes}" for dtypes, of in inputs.items())
    pairs = next((name for name, members in _PAIRS.items() if set(members) == set(distinct)), "") or _joined(distinct)
    return ", ".join(part for part in (_names(dtype for (dtype,) in alike), pairs) if part)


def _names(dtypes: Iterable[str]) -> str:
    """Dtypes, with the names of the sets that they hold."""
    left, names = list(dtypes), []
    for name, members in DTYPE_SETS.items():
        if set(members) <= set(left):
            names.append(name)
            left = [dtype for dtype in left if dtype not in members]
    return ", ".join([*names, *left])


def _joined(pairs: Iterable[tuple[str, ...]]) -> str:
    """``a/b with c``: dtypes that go with the same one share a part."""
    firsts: dict[str, list[str]] = {}
    for first, second in dict.fromkeys(pairs):
        firsts.setdefault(second, []).append(first)
    return ", ".join(f"{_names(names).replace(', ', '/')} with {second}" for second, names in firsts.items())
