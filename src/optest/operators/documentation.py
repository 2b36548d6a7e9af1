"""Texts about an operator for `optest explain` and the docs pages: dtypes, attributes, rule."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest

from optest.operators.describe import EVERY, FLOAT8, FLOATS, INTEGERS, MIXED, MIXED_NUMBERS, NUMBERS, UNSIGNED
from optest.operators.onnx import SPELLINGS
from optest.spec import REQUIRED, Attribute, OperatorDescriptor, Rule, RuleClass

# Named sets of dtypes. A set precedes its parts, so that texts name the largest one that fits.
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
_PAIRS = {"mixed": MIXED, "mixed numbers": MIXED_NUMBERS}


def ceiling_text(rule: Rule) -> str:
    """Return a rule's ceiling in ulp, if it has one, and its formula: ``4 ulp, 1 on a CPU; |out| more below 0``."""
    units = f"{rule.ulp:g} ulp" if rule.kind is RuleClass.ULP else ""
    if units and rule.cpu_ulp is not None:
        units += f", {rule.cpu_ulp:g} on a CPU"
    return "; ".join(part for part in (units, rule.formula) if part)


def description_lines(descriptor: OperatorDescriptor) -> list[tuple[str, str]]:
    """Return (label, text) lines that describe an operator on a terminal, with the content of its docs page."""
    rule, dtypes = descriptor.rule, dtypes_text(descriptor) if descriptor.dtype_variants else "any"
    used = re.split("[ ,;]+", dtypes)
    sets = [f"{name} are {', '.join(members)}" for name, members in DTYPE_SETS.items() if name in used]
    onnx = [name for name, spelling in SPELLINGS.items() if descriptor.name in spelling.operators]
    rows = [
        ("signature", str(descriptor.tensors)),
        ("dtypes", "; ".join([dtypes, *sets])),
        *(("attribute", attribute_text(attribute)) for attribute in descriptor.attributes),
        ("parts", ", ".join(descriptor.parts)),
        ("also", ", ".join(filter(None, [aliases_text(descriptor), *onnx]))),
        ("rule", ": ".join(filter(None, [rule.kind.value, ceiling_text(rule)])) if rule else "none; set a tolerance"),
        ("source", rule.source if rule else ""),
    ]
    return [(label, text.replace("`", "")) for label, text in rows if text]


def aliases_text(descriptor: OperatorDescriptor) -> str:
    """Return the aliases in Markdown, each with the names that its tensors have under it."""
    tensors = descriptor.alias_tensors
    return ", ".join(f"`{name}` (`{tensors[name]}`)" if name in tensors else f"`{name}`" for name in descriptor.aliases)


def attribute_text(attribute: Attribute) -> str:
    """Return a Markdown line with an attribute's name, type, default, choices, aliases and description."""
    default = "required" if attribute.default is REQUIRED else f"default `{attribute.default}`"
    choices = f", one of {', '.join(f'`{choice}`' for choice in attribute.choices)}" if attribute.choices else ""
    aliases = f", also {', '.join(f'`{alias}`' for alias in attribute.aliases)}" if attribute.aliases else ""
    return f"`{attribute.name}` ({attribute.type}, {default}{choices}{aliases}): {attribute.description}"


def dtypes_text(descriptor: OperatorDescriptor) -> str:
    """Return the operator's dtypes with named sets: for all inputs, as ``a with b`` for pairs, or input by input."""
    variants = descriptor.dtype_variants
    # A variant of one dtype is for all inputs.
    alike = [variant for variant in variants if len(variant) == 1]
    distinct = [tuple(dict.fromkeys(variant)) for variant in variants if len(variant) > 1]
    if not alike or any(len(variant) > 2 for variant in distinct):
        inputs: dict[str, list[str]] = {}
        for parameter, column in zip(descriptor.tensors.inputs, zip_longest(*variants), strict=True):
            inputs.setdefault(_with_set_names(dict.fromkeys(filter(None, column))), []).append(f"`{parameter.name}`")
        return "; ".join(f"{', '.join(names)} {dtypes}" for dtypes, names in inputs.items())
    pairs = next((name for name, members in _PAIRS.items() if set(members) == set(distinct)), "")
    if not pairs:  # pairs with the same second dtype share a part
        firsts: dict[str, list[str]] = {}
        for first, second in dict.fromkeys(distinct):
            firsts.setdefault(second, []).append(first)
        parts = (f"{_with_set_names(names).replace(', ', '/')} with {second}" for second, names in firsts.items())
        pairs = ", ".join(parts)
    return ", ".join(filter(None, [_with_set_names(dtype for (dtype,) in alike), pairs]))


def _with_set_names(dtypes: Iterable[str]) -> str:
    """Join dtypes with commas; write the name of a set in place of its members if all of them occur."""
    left, names = list(dtypes), []
    for name, members in DTYPE_SETS.items():
        if set(members) <= set(left):
            names.append(name)
            left = [dtype for dtype in left if dtype not in members]
    return ", ".join([*names, *left])
