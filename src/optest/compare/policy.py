"""Which rule judges an output: the built-in class rule, or what a user's layer puts in its place (DESIGN §4.5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from optest.compare import Expected
from optest.compare.assert_close import close_tolerance, fitting_tolerance, zeros_are_within
from optest.compare.bounds import (
    Budget,
    Law,
    accumulate_law,
    against_rounded,
    arithmetic_of,
    budget_of,
    composed_law,
    few_values,
    growth_of_sums,
    terms_repeat,
    ulp_law,
)
from optest.spec import (
    DType,
    ErrorBudget,
    Kind,
    Layer,
    Numerics,
    OperatorDescriptor,
    Rule,
    RuleClass,
    RuleUsed,
    Terms,
    TestCase,
    ToleranceLayer,
    dtype,
)

NAMING_LAYERS = frozenset({Layer.OPERATOR, Layer.CASE, Layer.COMMAND_LINE})
"""Layers that name a case or an operator; only these relax what has one right answer."""

BUILT_IN = "operator"
REMEMBERED = 4096
_MOVES, _EXACT, _ULP, _ACCUMULATE = RuleClass.MOVEMENT, RuleClass.EXACT, RuleClass.ULP, RuleClass.ACCUMULATE
_CLOSE = RuleClass.CLOSE


class Method(str, Enum):
    """How errors are compared with what is allowed."""

    BITS = "bits"
    EXACT = "exact"
    TOLERANCE = "tolerance"
    LAW = "law"


class NoRule(Exception):
    """Nothing says what is allowed for this output; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What is allowed for one output, and by whom."""

    used: RuleUsed
    method: Method
    rtol: float = 0.0
    atol: float = 0.0
    mismatch_ratio: float = 0.0
    signed_zeros: bool = False
    """A zero of the wrong sign is a wrong element."""
    law: Law | None = None
    budget: Budget = field(default_factory=Budget)


def resolve(
    case: TestCase, expected: Expected, index: int, numerics: Numerics, inputs: Sequence[Any] | None
) -> Allowance:
    """Return the rule for one output.

    Raises:
        NoRule: if the operator has no rule for floats and no tolerance is stated, or its terms are missing.
    """
    allowance = _resolve(case, expected, index, numerics, inputs)
    if case.tolerances and expected.dtype.is_float and _signs_are_strict(case, expected, index):
        return _with_formula(dataclasses.replace(allowance, signed_zeros=True), "a zero has its sign (signed_zeros)")
    return allowance


def defines_signs(case: TestCase, expected: Expected) -> bool:
    """Whether the operator defines the sign of a zero in this output, which is none of its gradients."""
    return case.descriptor.signed_zeros and not expected.name.startswith("grad.")


def _signs_are_strict(case: TestCase, expected: Expected, index: int) -> bool:
    """Whether the highest layer that speaks of signed zeros wants them; where the operator defines none, only layers
    that name the case or operator count, and the reference has the sign."""
    speaking = [
        layer
        for layer in case.tolerances
        if layer.tolerance.signed_zeros is not None
        and _applies(layer, case.descriptor, index, expected.name)
        and (layer.layer in NAMING_LAYERS or defines_signs(case, expected))
    ]
    if not speaking:
        return False
    highest = max(speaking, key=lambda layer: (layer.layer, layer.output is not None))
    return highest.tolerance.signed_zeros == "strict"


def _resolve(
    case: TestCase, expected: Expected, index: int, numerics: Numerics, inputs: Sequence[Any] | None
) -> Allowance:
    rule = expected.rule or case.descriptor.rule
    kind = _class_of(rule, expected.dtype)
    sums_exactly = kind is _ACCUMULATE and is_integer_exact(case, expected, numerics, inputs)
    tolerances = judging(case, rule)
    if tolerances:
        one_answer = sums_exactly or kind is _MOVES or kind is _EXACT
        stated = remembered_tolerance(
            tolerances, case.descriptor, index, expected.name, one_answer, needs_its_name(case, expected)
        )
        if stated is not None and not _is_too_wide(stated, expected):
            return stated if expected.rule is None else _with_formula(stated, expected.rule.formula)
    if kind is None:
        raise NoRule(
            f"operator {case.descriptor.name} has no rule for {expected.dtype} and no tolerance is stated; "
            f"state rtol and atol, or give its descriptor a rule"
        )
    if sums_exactly:
        return _INTEGER_EXACT
    if kind is _MOVES:
        return _with_alternatives(_MOVEMENT, case.descriptor, expected)
    if kind is _EXACT:
        only = _EXACT_FLOATS if expected.dtype.precision else _EXACT_INTEGERS
        return _with_alternatives(only, case.descriptor, expected)
    assert rule is not None
    if kind is _CLOSE:
        return _with_formula(_close(case, expected, rule), rule.formula if case.reference is None else "")
    terms = expected.terms
    if rule.kind is _ULP and isinstance(terms, ErrorBudget) and not np.any(terms.worst):
        terms = None  # nothing cancels here
    if terms is None:
        if rule.kind is not _ULP:
            raise NoRule(_without("Terms or an ErrorBudget", case, expected))
        return _law(case, rule, expected, numerics, None, count=None, few=False)[0]
    if rule.kind is _ACCUMULATE:
        if not isinstance(terms, Terms):
            raise NoRule(_without("Terms", case, expected))
        count = terms.count if type(terms.count) is int else None if np.ndim(terms.count) else int(terms.count)
        few = False
        if count is not None:  # where roundings repeat, errors of the sum add up
            unit = dtype(numerics.accumulator or "float32").unit_roundoff
            growth = growth_of_sums(terms, count, expected.value, unit)
            few = (inputs is not None and few_values(inputs, growth)) or terms_repeat(terms, growth)
        allowance, adds_up = _law(case, rule, expected, numerics, terms, count=count, few=few)
        return dataclasses.replace(allowance, budget=budget_of(terms, numerics, adds_up=adds_up))
    if not isinstance(terms, ErrorBudget):
        raise NoRule(_without("an ErrorBudget", case, expected))
    allowance, _ = _law(case, rule, expected, numerics, terms, count=None, few=False)
    cut = _cut_by_budget(case, numerics, terms)
    arithmetic = arithmetic_of(_operand_dtypes(case, expected.dtype), expected.dtype, numerics, sums=True)
    coarser = 0.0 if cut is None else cut.unit_roundoff / arithmetic.unit_roundoff
    return dataclasses.replace(allowance, budget=budget_of(terms, numerics, adds_up=False, coarser=coarser))


def judging(case: TestCase, rule: Rule | None) -> tuple[ToleranceLayer, ...]:
    """The layers that may replace the output's rule."""
    if rule is None or not rule.stands:
        return case.tolerances
    return tuple([layer for layer in case.tolerances if layer.layer not in (Layer.PLAN, Layer.CASE)])


def for_stored(allowance: Allowance, stored: DType) -> Allowance:
    """The allowance against expected values that are kept in ``stored`` in place of float64."""
    if allowance.law is None or stored.precision >= _DOUBLE:
        return allowance
    law = against_rounded(allowance.law, stored)
    return dataclasses.replace(allowance, law=law, used=dataclasses.replace(allowance.used, text=law.text))


_DOUBLE = dtype("float64").precision


def _class_of(rule: Rule | None, output: DType) -> RuleClass | None:
    """The class that judges an output of this dtype; None for floats of an operator without a rule."""
    if rule is None:
        return None if output.precision else _EXACT
    if output.precision or rule.kind is _MOVES:
        return rule.kind
    return _EXACT


def describe_rule(case: TestCase, index: int = 0) -> str:
    """The rule for an output in words, before anything ran: as far as it is known without inputs."""
    stated = index < len(case.outputs)
    output = case.outputs[index].dtype if stated else case.dtypes[0] if case.inputs else dtype("float32")
    names = case.descriptor.tensors.output_names(index + 1) or case.descriptor.tensors.outputs
    name = names[index] if index < len(names) else f"output{index}"
    expected = Expected(name=name, dtype=output, shape=(), value=None)
    try:
        allowance = resolve(case, expected, index, Numerics(), None)
    except NoRule as error:
        if case.descriptor.rule is None:
            return str(error)
        allowance, _ = _law(case, case.descriptor.rule, expected, Numerics(), None, count=None, few=False)
        allowance = _with_alternatives(allowance, case.descriptor, expected)
    return f"{allowance.used.text} ({allowance.used.layer})"


def _built_in(name: str, text: str, method: Method) -> Allowance:
    return Allowance(used=RuleUsed(name=name, layer=BUILT_IN, text=text), method=method)


_MOVEMENT = _built_in("movement", "elements only move: the same bits, NaN for NaN", Method.BITS)
_EXACT_INTEGERS = _built_in("exact", "one right answer", Method.EXACT)
_EXACT_FLOATS = _built_in("exact", "one right answer: the exact result, rounded once", Method.EXACT)
_INTEGER_EXACT = _built_in(
    "integer-exact", "integer-exact inputs: every order of summation gives the exact sum, rounded once", Method.EXACT
)


def _with_alternatives(allowance: Allowance, descriptor: OperatorDescriptor, expected: Expected) -> Allowance:
    """The same, but saying what else is right where the operator has alternatives."""
    if expected.rule is not None:
        return _with_formula(allowance, expected.rule.formula)
    if descriptor.rule is None or not _tells_alternatives(descriptor):
        return allowance
    return _with_formula(allowance, descriptor.rule.formula)


def _tells_alternatives(descriptor: OperatorDescriptor) -> bool:
    """Whether the rule's formula is about alternatives of the operator's own results."""
    return descriptor.alternatives is not None and getattr(descriptor.alternatives, "tells", True)


def _with_formula(allowance: Allowance, formula: str) -> Allowance:
    if not formula:
        return allowance
    used = dataclasses.replace(allowance.used, text=f"{allowance.used.text}; {formula}")
    return dataclasses.replace(allowance, used=used)


def _is_too_wide(stated: Allowance, expected: Expected) -> bool:
    """Whether a tolerance that is stated for results says nothing about an output with a rule of its own.

    How large a gradient is, nobody thought of who stated an atol.
    """
    if expected.rule is None or expected.rule.kind is not _CLOSE or expected.value is None:
        return False
    return zeros_are_within(np.asarray(expected.value), stated.rtol, stated.atol, stated.mismatch_ratio)


def needs_its_name(case: TestCase, expected: Expected) -> bool:
    """Whether a tolerance has to name this output: indices beside values are not meant by ``rtol: 0.01``.

    Where the outputs are not declared, the inputs tell whether there are values.
    """
    known = case.outputs or tuple([argument.spec for argument in case.inputs])
    return not expected.dtype.is_inexact and any(spec.dtype.is_inexact for spec in known)


def _close(case: TestCase, expected: Expected, rule: Rule) -> Allowance:
    """What the rule or ``torch.testing.assert_close`` allows where nobody says more; less where zeros would pass by it.

    Raises:
        NoRule: for a dtype of which torch says nothing.
    """
    output = expected.dtype
    usual = rule.close or close_tolerance(output)
    allowed = fitting_tolerance(output, expected.value, rule.close)
    if allowed is None:
        raise NoRule(
            f"operator {case.descriptor.name} has no rule, and torch.testing has no tolerance for {output}; "
            f"state rtol and atol"
        )
    rtol, atol = allowed
    smaller = " (as large as rtol of the largest, or zeros would pass)" * (allowed != usual)
    numbers = f"rtol={rtol:g}, atol={atol:g}{smaller}"
    whose = rule.source if rule.close else "torch.testing"
    text = f"{whose}'s default for {output}: |err| <= atol + rtol·|expected|, {numbers}"
    used = RuleUsed(name=_CLOSE.value, layer=BUILT_IN, text=text)
    return Allowance(used=used, method=Method.TOLERANCE, rtol=rtol, atol=atol)


_Stated = tuple[tuple[ToleranceLayer, ...], OperatorDescriptor, "Allowance | None"]
_tolerances: dict[tuple[Any, ...], _Stated] = {}


def remembered_tolerance(
    layers: tuple[ToleranceLayer, ...],
    descriptor: OperatorDescriptor,
    index: int,
    output: str,
    one_answer: bool,
    by_name: bool,
) -> Allowance | None:
    """:func:`tolerance_of_layers`, remembered for the layers that cases share.

    Layers and descriptor are looked up by identity, which is why the entry keeps them alive.
    """
    key = (id(descriptor), index, output, one_answer, by_name, *map(id, layers))
    cached = _tolerances.get(key)
    if cached is not None:
        return cached[2]
    allowance = tolerance_of_layers(layers, descriptor, index, output, one_answer=one_answer, by_name=by_name)
    if len(_tolerances) >= REMEMBERED:
        _tolerances.clear()
    _tolerances[key] = (layers, descriptor, allowance)
    return allowance


def tolerance_of_layers(
    layers: Iterable[ToleranceLayer],
    descriptor: OperatorDescriptor,
    index: int,
    output: str,
    *,
    one_answer: bool,
    by_name: bool = False,
) -> Allowance | None:
    """The tolerance that users state for an output, None if none does.

    The highest layer replaces the class rule as a whole; a field it leaves open comes from the next lower layer
    that states it, else it is 0. In one layer, an entry that names the output goes before one for all outputs.
    ``one_answer`` lets layers alone speak that name the case or operator, ``by_name`` entries that name the output.
    """
    applying = sorted(
        (
            layer
            for layer in layers
            if layer.tolerance.bounds_errors
            and _applies(layer, descriptor, index, output)
            and (not one_answer or layer.layer in NAMING_LAYERS)
            and (not by_name or layer.output is not None)
        ),
        key=lambda layer: (layer.layer, layer.output is not None),
        reverse=True,
    )
    if not applying:
        return None
    stated: dict[str, Any] = {"rtol": 0.0, "atol": 0.0, "mismatch_ratio": 0.0}
    for layer in reversed(applying):
        fields = layer.tolerance.fields()
        stated |= {name: float(fields[name]) for name in stated.keys() & fields.keys()}
    highest, ratio = applying[0], stated["mismatch_ratio"]
    text = f"|err| <= atol + rtol·|expected|, rtol={stated['rtol']:g}, atol={stated['atol']:g}"
    text += f", mismatch_ratio={ratio:g}" if ratio else ""
    text += f" (at {highest.where})" if highest.where else ""
    used = RuleUsed(name="tolerance", layer=highest.layer.phrase, text=text)
    return Allowance(used=used, method=Method.TOLERANCE, **stated)


def _applies(layer: ToleranceLayer, descriptor: OperatorDescriptor, index: int, output: str) -> bool:
    if layer.output is None or layer.output == output or layer.output == f"output{index}":
        return True
    names = descriptor.tensors.output_names(index + 1) or descriptor.tensors.outputs
    return index < len(names) and layer.output == names[index]


def is_integer_exact(case: TestCase, expected: Expected, numerics: Numerics, inputs: Sequence[Any] | None) -> bool:
    """Whether every order of summation gives the same bits: integers whose Σ|terms| the accumulator holds exactly.

    The fill promises it; attributes such as ``alpha=0.3``, a narrow accumulator or cut operands may break the
    promise, so the terms are asked too. Winograd and FFT sum other terms; what a mean divides is no whole number,
    although quotients may happen to add up to one.
    """
    if expected.rule is not None or all(argument.fill.kind != "integer-exact" for argument in case.inputs):
        return False
    if not numerics.direct or not isinstance(expected.terms, Terms) or expected.terms.divided:
        return False
    arithmetic = arithmetic_of(_operand_dtypes(case, expected.dtype), expected.dtype, numerics, sums=True)
    total = np.asarray(expected.terms.absolute, dtype=np.float64)
    if not bool(((total == np.floor(total)) & (total <= 2.0**arithmetic.precision)).all()):
        return False
    cut = _cut_operands(case, numerics)
    if cut is None:
        return True
    return inputs is not None and all(
        bool((np.abs(np.asarray(each, dtype=np.float64)) <= 2.0**cut.precision).all())
        for each in inputs
        if each is not None
    )


_TF32 = DType(name="tf32", kind=Kind.FLOAT, bits=32, precision=11, emin=-126, emax=127)


def _cut_operands(case: TestCase, numerics: Numerics) -> DType | None:
    """The precision that float32 operands of a contraction are cut to, None if they stay as they are."""
    if numerics.operands == "float32" or len(case.inputs) < 2:
        return None
    if all(entry.name not in ("float32", "complex64") for entry in case.dtypes):
        return None
    return _TF32 if numerics.operands == "tf32" else dtype(numerics.operands)


def _cut_by_budget(case: TestCase, numerics: Numerics, terms: Any) -> DType | None:
    """The precision that operands of an operator's contractions are cut to, whose error budget says what that costs."""
    knows = isinstance(terms, ErrorBudget) and terms.of_operands is not None
    return _cut_operands(case, numerics) if knows else None


def _without(wanted: str, case: TestCase, expected: Expected) -> str:
    return (
        f"the terms of {case.descriptor.name} for {expected.name} are {type(expected.terms).__name__}, but should be "
        f"{wanted}; give the descriptor a terms hook or state rtol and atol"
    )


def _operand_dtypes(case: TestCase, output: DType) -> Sequence[DType]:
    """Dtypes that the arithmetic is at least as wide as: not that of a number without dimensions beside tensors of a
    narrower result, which does not widen it (torch.result_type)."""
    if not case.descriptor.is_promoting:
        return case.dtypes
    specs = [argument.spec for argument in case.inputs]
    return tuple([each.dtype for each in specs if each.shape or each.dtype.precision <= output.precision])


_Found = tuple[Allowance, bool]
_laws: dict[tuple[Any, ...], tuple[Rule, Numerics, _Found]] = {}


def _law(
    case: TestCase,
    rule: Rule,
    expected: Expected,
    numerics: Numerics,
    terms: Any,
    *,
    count: int | None,
    few: bool,
) -> _Found:
    """The allowance of a class rule without its budget, the same one for every case with the same rule, dtypes,
    numerics and k; and whether errors add up.

    Rules and numerics are looked up by identity, which is why the entry keeps them alive.
    """
    output, operands = expected.dtype, _operand_dtypes(case, expected.dtype)
    has_variance = isinstance(terms, ErrorBudget) and terms.variance is not None
    cuts = isinstance(terms, ErrorBudget) and terms.of_operands is not None
    names = [entry.name for entry in operands]
    key = (id(rule), id(numerics), output.name, count, few, terms is None, has_variance, cuts, *names)
    cached = _laws.get(key)
    if cached is not None:
        return cached[2]
    arithmetic = arithmetic_of(operands, output, numerics, sums=rule.kind is not _ULP)
    inputs = ", ".join(dict.fromkeys(entry.name for entry in case.dtypes))
    if rule.kind is _ULP:
        law = ulp_law(rule, output, arithmetic, numerics.processor, budgeted=isinstance(terms, ErrorBudget))
        if rule.formula and _tells_alternatives(case.descriptor):
            law = dataclasses.replace(law, text=f"{law.text}; {rule.formula}")
    elif rule.kind is _ACCUMULATE:
        cut = _cut_operands(case, numerics)
        law = accumulate_law(inputs, output, arithmetic, numerics, terms=count, few=few, cut=cut)
    else:
        cut = _cut_by_budget(case, numerics, terms)
        law = composed_law(rule, inputs, output, arithmetic, numerics, has_variance=has_variance, cut=cut)
    used = RuleUsed(name=rule.kind.value, layer=BUILT_IN, text=law.text)
    result = (Allowance(used=used, method=Method.LAW, law=law), few or numerics.accumulator_truncates)
    if len(_laws) >= REMEMBERED:
        _laws.clear()
    _laws[key] = (rule, numerics, result)
    return result
