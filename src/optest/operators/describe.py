"""The words in which operator modules describe their operators; hooks are short names that become import paths.

An operator module (``operators/FAMILY/NAME.py``) holds what needs no NumPy: descriptors, inference, samples. Its twin
(``NAME_reference.py``) holds what does: references, error terms, alternatives. Here are also the dtype variants,
attributes and sources that many of them share.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Mapping
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

_WITHOUT_NUMPY = ("infer", "samples", "sum_length", "operations", "domain")
_WITH_TERMS = (RuleClass.ACCUMULATE, RuleClass.COMPOSED)
_WITH_NUMPY = ("reference", "terms", "alternatives", "may_refuse", "composition")


def in_module(
    module: str, *descriptors: OperatorDescriptor, twin: str = "", **shared: Any
) -> tuple[OperatorDescriptor, ...]:
    """The descriptors of the operator module of this name, with what follows from name and place filled in.

    The category is the folder's name, the signature ``input -> out``. Hooks are functions of the module or, if they
    need NumPy, of its ``twin``, which several small modules may share. Those left out are ``infer_NAME``,
    ``NAME_samples``, ``NAME_reference``, ``NAME_terms`` where the rule has terms, and ``NAME`` for the composition of a
    layer; ``"helpers:infer_mean"`` is of a module beside it, ``"..shapes:infer_same"`` of one above. A composed rule
    has its source on the operator's page. An alias may say what its tensors are called under it: ``"Add: A, B -> C"``.
    ``shared`` are the fields of all descriptors that state none of their own.
    """
    package, _, own = module.rpartition(".")
    return tuple(_placed(package, own, twin or f"{own}_reference", _with_shared(each, shared)) for each in descriptors)


def _with_shared(stated: OperatorDescriptor, shared: Mapping[str, Any]) -> OperatorDescriptor:
    return replace(
        stated, **{name: value for name, value in shared.items() if getattr(stated, name) == getattr(_EMPTY, name)}
    )


_EMPTY = OperatorDescriptor(name="")


def _placed(package: str, module: str, twin: str, stated: OperatorDescriptor) -> OperatorDescriptor:
    family = package.rpartition(".")[2]
    hooks = {
        "infer": f"infer_{stated.name}",
        "samples": f"{stated.name}_samples",
        "reference": f"{stated.name}_reference",
        **({"composition": stated.name} if stated.parts else {}),
        **({"terms": f"{stated.name}_terms"} if stated.rule and stated.rule.kind in _WITH_TERMS else {}),
        **{name: hook for name in (*_WITHOUT_NUMPY, *_WITH_NUMPY) if isinstance(hook := getattr(stated, name), str)},
    }
    changes: dict[str, Any] = {
        name: _path(hook, package, twin if name in _WITH_NUMPY else module) for name, hook in hooks.items()
    }
    aliases = {name: tensors for name, _, tensors in (each.partition(": ") for each in stated.aliases)}
    changes["aliases"] = tuple(aliases)
    changes["alias_tensors"] = {name: tensors for name, tensors in aliases.items() if tensors}
    if stated.category == _EMPTY.category:
        changes["category"] = family
    if stated.signature == _EMPTY.signature:
        changes["signature"] = "input -> out"
    if stated.rule is not None and not stated.rule.source:
        changes["rule"] = replace(stated.rule, source=f"docs/operators/{family}.md#{stated.name}")
    return replace(stated, **changes)


def _path(hook: str, package: str, module: str) -> str:
    """Relative to the folder of the module, as in an import statement."""
    if hook.startswith(".."):
        return f"{package.rpartition('.')[0]}.{hook.removeprefix('..')}"
    return f"{package}.{hook}" if ":" in hook else f"{package}.{module}:{hook}"


def attribute(declaration: str, description: str, *, choices: tuple[Any, ...] = ()) -> Attribute:
    """An attribute, declared as a parameter is: ``"dim|axis: int = -1"``, where further names are aliases.

    One without a default is required. The types are those of :class:`Attribute`.
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
    return Rule(kind=RuleClass.EXACT, source=source, formula=formula)


def movement(source: str, formula: str = "") -> Rule:
    return Rule(kind=RuleClass.MOVEMENT, source=source, formula=formula)


def ulp(ceiling: float, source: str, formula: str = "", *, cpu: float | None = None) -> Rule:
    return Rule(kind=RuleClass.ULP, ulp=ceiling, cpu_ulp=cpu, source=source, formula=formula)


def accumulate(formula: str) -> Rule:
    return Rule(kind=RuleClass.ACCUMULATE, source=SUMS, formula=formula)


def composed(formula: str) -> Rule:
    return Rule(kind=RuleClass.COMPOSED, formula=formula)
