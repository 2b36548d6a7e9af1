"""Helpers to declare operators: dtype variants, attributes, rules, and import paths from short names of hooks.

An operator module (``operators/FAMILY/NAME.py``) holds the parts that need no NumPy: descriptors, inference, samples.
Its twin (``NAME_reference.py``) holds the others: references, error terms, alternatives.
"""

from __future__ import annotations

from ast import literal_eval
from dataclasses import replace
from typing import Any

from optest.spec import DTYPES, REQUIRED, Attribute, OperatorDescriptor, Rule, RuleClass

FLOATS = (("float32",), ("float16",), ("bfloat16",), ("float64",))
INTEGERS = (("int32",), ("int64",), ("int8",), ("int16",), ("uint8",))
UNSIGNED = (("uint16",), ("uint32",), ("uint64",))
BOOL = (("bool",),)
FLOAT8 = (("float8_e4m3fn",), ("float8_e5m2",))
EVERY = (("float32",), *((entry.name,) for entry in DTYPES if entry.name != "float32"))
REAL = tuple(variant for variant in EVERY if not variant[0].startswith("complex"))
# In both orders: a kernel that takes the first operand's dtype for the result passes one of them.
MIXED = tuple(
    pair
    for a, b in (
        ("float32", "float64"),
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float16", "bfloat16"),
        ("int32", "float32"),
        ("int64", "float16"),
        ("int32", "float16"),
        ("int32", "bfloat16"),
        ("bool", "float32"),
        ("int8", "uint8"),
        ("int32", "int64"),
        ("bool", "int32"),
    )
    for pair in ((a, b), (b, a))
)
MIXED_NUMBERS = tuple(pair for pair in MIXED if "bool" not in pair)
NUMBERS = (*FLOATS, *INTEGERS)
NUMBERS_AND_MIXED = (*NUMBERS, *MIXED_NUMBERS)
EVERYTHING = (*NUMBERS, *BOOL, *MIXED)
FLOAT32_PARAMETERS = tuple((half, *("float32",) * count) for half in ("float16", "bfloat16") for count in (1, 2))

OPENCL = "OpenCL C 3.0 §7.4 (full profile)"
MEASURED = "measured in five libraries: docs/verdicts.md"
SUMS = "growth as √k: Higham and Mary, 2019 (SIAM J. Sci. Comput. 41, A2815); figures: docs/verdicts.md"

DIM = Attribute(name="dim", type="int", default=-1, aliases=("axis",), description="Dimension along which it works.")

# Hooks of the operator module, which has to be importable without NumPy: listing operators and samples loads it.
_WITHOUT_NUMPY = ("infer", "samples", "sum_length", "operations", "domain")
_WITH_TERMS = (RuleClass.ACCUMULATE, RuleClass.COMPOSED)
_WITH_NUMPY = ("reference", "terms", "alternatives", "may_refuse", "composition")


def in_module(
    module: str, *descriptors: OperatorDescriptor, twin: str = "", **shared: Any
) -> tuple[OperatorDescriptor, ...]:
    """Return the descriptors of an operator module, with the defaults that follow from its path filled in.

    Args:
        module: ``__name__`` of the operator module. Its folder is the category.
        descriptors: incomplete descriptors. Hooks that are left out become ``infer_NAME``, ``NAME_samples``,
            ``NAME_reference``, ``NAME_terms`` if the rule has terms, and ``NAME`` for the composition of a layer.
            ``"helpers:infer_mean"`` is in a module of the same folder, ``"..shapes:infer_same"`` one folder up. The
            default signature is ``input -> out``; the default source of a rule is the operator's page. An alias may
            name its tensors: ``"Add: A, B -> C"``.
        twin: module of the hooks that need NumPy, ``MODULE_reference`` by default; several modules may share one.
        shared: values for the fields that a descriptor leaves at their defaults.
    """
    package, _, name = module.rpartition(".")
    complete = []
    for descriptor in descriptors:
        missing = {key: value for key, value in shared.items() if getattr(descriptor, key) == getattr(_EMPTY, key)}
        complete.append(_completed(package, name, twin or f"{name}_reference", replace(descriptor, **missing)))
    return tuple(complete)


# A field that equals that of an empty descriptor counts as left out.
_EMPTY = OperatorDescriptor(name="")


def _completed(package: str, module: str, twin: str, descriptor: OperatorDescriptor) -> OperatorDescriptor:
    """Return the descriptor with import paths for hooks, parsed aliases, and defaults; see :func:`in_module`."""
    family = package.rpartition(".")[2]
    named = {key: hook for key in (*_WITHOUT_NUMPY, *_WITH_NUMPY) if isinstance(hook := getattr(descriptor, key), str)}
    hooks = {
        "infer": f"infer_{descriptor.name}",
        "samples": f"{descriptor.name}_samples",
        "reference": f"{descriptor.name}_reference",
        **({"composition": descriptor.name} if descriptor.parts else {}),
        **({"terms": f"{descriptor.name}_terms"} if descriptor.rule and descriptor.rule.kind in _WITH_TERMS else {}),
        **named,
    }
    changes: dict[str, Any] = {
        key: _import_path(hook, package, twin if key in _WITH_NUMPY else module) for key, hook in hooks.items()
    }
    aliases = {name: tensors for name, _, tensors in (alias.partition(": ") for alias in descriptor.aliases)}
    changes["aliases"] = tuple(aliases)
    changes["alias_tensors"] = {name: tensors for name, tensors in aliases.items() if tensors}
    if descriptor.category == _EMPTY.category:
        changes["category"] = family
    if descriptor.signature == _EMPTY.signature:
        changes["signature"] = "input -> out"
    if descriptor.rule is not None and not descriptor.rule.source:
        changes["rule"] = replace(descriptor.rule, source=f"docs/operators/{family}.md#{descriptor.name}")
    return replace(descriptor, **changes)


def _import_path(hook: str, package: str, module: str) -> str:
    """Return the import path of a hook: ``..module:name`` one folder up, ``module:name``, or a name in ``module``."""
    if hook.startswith(".."):
        return f"{package.rpartition('.')[0]}.{hook.removeprefix('..')}"
    return f"{package}.{hook}" if ":" in hook else f"{package}.{module}:{hook}"


def attribute(declaration: str, description: str, *, choices: tuple[Any, ...] = ()) -> Attribute:
    """Build an attribute from a declaration like that of a parameter: ``"dim|axis: int = -1"``.

    Names after a bar are aliases. An attribute without a default is required. Types are those of :class:`Attribute`.
    """
    names, _, rest = declaration.partition(": ")
    kind, _, default = rest.partition(" = ")
    name, *aliases = names.split("|")
    return Attribute(
        name=name,
        type=kind,
        default=literal_eval(default) if default else REQUIRED,
        choices=choices,
        aliases=tuple(aliases),
        description=description,
    )


def exact(source: str, formula: str = "") -> Rule:
    """Build a rule for results that are rounded once from the exact value."""
    return Rule(kind=RuleClass.EXACT, source=source, formula=formula)


def movement(source: str, formula: str = "") -> Rule:
    """Build a rule for results that are copied bits."""
    return Rule(kind=RuleClass.MOVEMENT, source=source, formula=formula)


def ulp(ceiling: float, source: str, formula: str = "", *, cpu: float | None = None) -> Rule:
    """Build a rule with a ceiling in ulp, and a lower one for CPUs in ``cpu``; ``formula`` describes further terms."""
    return Rule(kind=RuleClass.ULP, ulp=ceiling, cpu_ulp=cpu, source=source, formula=formula)


def accumulate(formula: str) -> Rule:
    """Build a rule for sums; ``formula`` describes the terms that the operator's ``terms`` hook computes."""
    return Rule(kind=RuleClass.ACCUMULATE, source=SUMS, formula=formula)


def composed(formula: str) -> Rule:
    """Build a rule for an error budget; ``formula`` describes the budget that the ``terms`` hook computes."""
    return Rule(kind=RuleClass.COMPOSED, formula=formula)
