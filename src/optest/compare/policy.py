"""Choice of the tolerance rule for an output: the built-in class rule, or a user's tolerance in place of it."""

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

# Layers that name a case or an operator; only these relax what has one correct result.
NAMING_LAYERS = frozenset({Layer.OPERATOR, Layer.CASE, Layer.COMMAND_LINE})

BUILT_IN = "operator"
REMEMBERED = 4096
_MOVES, _EXACT, _ULP, _ACCUMULATE = RuleClass.MOVEMENT, RuleClass.EXACT, RuleClass.ULP, RuleClass.ACCUMULATE
_CLOSE = RuleClass.CLOSE


class Method(str, Enum):
    """How errors are compared with the allowance."""

    BITS = "bits"
    EXACT = "exact"
    TOLERANCE = "tolerance"
    LAW = "law"


class NoRule(Exception):
    """No rule or tolerance applies to an output; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Tolerance rule for one output, and its origin."""

    used: RuleUsed
    method: Method
    rtol: float = 0.0
    atol: float = 0.0
    mismatch_ratio: float = 0.0
    # A zero of the wrong sign is a wrong element.
    signed_zeros: bool = False
    law: Law | None = None
    budget: Budget = field(default_factory=Budget)


def resolve(
    case: TestCase, expected: Expected, index: int, numerics: Numerics, inputs: Sequence[Any] | None
) -> Allowance:
    """Return the rule for output number ``index``, with strict signs of zeros if a tolerance requires them.

    Raises:
        NoRule: if the operator has no rule for floats and no tolerance is set, or its terms are missing.
    """
    allowance = _allowance_of_errors(case, expected, index, numerics, inputs)
    if case.tolerances and expected.dtype.is_float and _signs_are_strict(case, expected, index):
        return _with_formula(dataclasses.replace(allowance, signed_zeros=True), "a zero has its sign (signed_zeros)")
    return allowance


def defines_signs(case: TestCase, expected: Expected) -> bool:
    """Return whether the operator defines the sign of a zero in this output; it does not for gradients."""
    return case.descriptor.signed_zeros and not expected.name.startswith("grad.")


def _signs_are_strict(case: TestCase, expected: Expected, index: int) -> bool:
    """Return whether the highest layer that sets signed_zeros requires them.

    If the operator defines no signs, only layers that name the case or operator count; the reference has the sign.
    """
    deciding = [
        layer
        for layer in case.tolerances
        if layer.tolerance.signed_zeros is not None
        and _applies(layer, case.descriptor, index, expected.name)
        and (layer.layer in NAMING_LAYERS or defines_signs(case, expected))
    ]
    if not deciding:
        return False
    highest = max(deciding, key=lambda layer: (layer.layer, layer.output is not None))
    return highest.tolerance.signed_zeros == "strict"


def _allowance_of_errors(
    case: TestCase, expected: Expected, index: int, numerics: Numerics, inputs: Sequence[Any] | None
) -> Allowance:
    """Return the rule for an output: a user's tolerance if one applies, else that of the operator's class.

    Raises:
        NoRule: as in :func:`resolve`.
    """
    rule = expected.rule or case.descriptor.rule
    kind = _class_of(rule, expected.dtype)
    sums_exactly = kind is _ACCUMULATE and is_integer_exact(case, expected, numerics, inputs)
    tolerances = applicable_layers(case, rule)
    if tolerances:
        has_one_answer = sums_exactly or kind in (_MOVES, _EXACT)
        tolerance = remembered_tolerance(
            tolerances, case.descriptor, index, expected.name, has_one_answer, needs_its_name(case, expected)
        )
        if tolerance is not None and not _is_too_wide(tolerance, expected):
            return tolerance if expected.rule is None else _with_formula(tolerance, expected.rule.formula)
    if kind is None:
        raise NoRule(
            f"operator {case.descriptor.name} has no rule for {expected.dtype} and no tolerance is set; "
            f"set rtol and atol, or give its descriptor a rule"
        )
    if sums_exactly:
        return _INTEGER_EXACT
    if kind is _MOVES:
        return _with_formula_of_alternatives(_MOVEMENT, case.descriptor, expected)
    if kind is _EXACT:
        only = _EXACT_FLOATS if expected.dtype.precision else _EXACT_INTEGERS
        return _with_formula_of_alternatives(only, case.descriptor, expected)
    assert rule is not None
    if kind is _CLOSE:
        return _with_formula(_close(case, expected, rule), rule.formula if case.reference is None else "")
    return _by_law(case, rule, expected, numerics, inputs)


def _by_law(
    case: TestCase, rule: Rule, expected: Expected, numerics: Numerics, inputs: Sequence[Any] | None
) -> Allowance:
    """Return the allowance of a rule ULP, ACCUMULATE or COMPOSED, with the budget of the output's terms.

    Raises:
        NoRule: if the operator's terms are missing or of the wrong type for the rule.
    """
    terms = expected.terms
    if rule.kind is _ULP and isinstance(terms, ErrorBudget) and not np.any(terms.worst):
        terms = None  # without cancellation the budget is 0 everywhere
    if terms is None:
        if rule.kind is not _ULP:
            raise _wrong_terms("Terms or an ErrorBudget", case, expected)
        return _law(case, rule, expected, numerics, None, count=None, few=False)[0]
    if rule.kind is _ACCUMULATE:
        if not isinstance(terms, Terms):
            raise _wrong_terms("Terms", case, expected)
        count = terms.count if type(terms.count) is int else None if np.ndim(terms.count) else int(terms.count)
        few = False
        if count is not None:  # if roundings repeat, errors of the sum add up
            unit = dtype(numerics.accumulator or "float32").unit_roundoff
            growth = growth_of_sums(terms, count, expected.value, unit)
            few = (inputs is not None and few_values(inputs, growth)) or terms_repeat(terms, growth)
        allowance, adds_up = _law(case, rule, expected, numerics, terms, count=count, few=few)
        return dataclasses.replace(allowance, budget=budget_of(terms, numerics, adds_up=adds_up))
    if not isinstance(terms, ErrorBudget):
        raise _wrong_terms("an ErrorBudget", case, expected)
    allowance, _ = _law(case, rule, expected, numerics, terms, count=None, few=False)
    cut = _cut_by_budget(case, numerics, terms)
    arithmetic = arithmetic_of(_operand_dtypes(case, expected.dtype), expected.dtype, numerics, sums=True)
    coarser = 0.0 if cut is None else cut.unit_roundoff / arithmetic.unit_roundoff
    return dataclasses.replace(allowance, budget=budget_of(terms, numerics, adds_up=False, coarser=coarser))


def applicable_layers(case: TestCase, rule: Rule | None) -> tuple[ToleranceLayer, ...]:
    """Return the case's tolerances that may replace the rule: for a fixed rule, none of the plan's or case's."""
    if rule is None or not rule.fixed:
        return case.tolerances
    return tuple([layer for layer in case.tolerances if layer.layer not in (Layer.PLAN, Layer.CASE)])


def for_stored(allowance: Allowance, stored: DType) -> Allowance:
    """Return the allowance against expected values that are stored as ``stored`` in place of float64."""
    if allowance.law is None or stored.precision >= _DOUBLE:
        return allowance
    law = against_rounded(allowance.law, stored)
    return dataclasses.replace(allowance, law=law, used=dataclasses.replace(allowance.used, text=law.text))


_DOUBLE = dtype("float64").precision


def _class_of(rule: Rule | None, output: DType) -> RuleClass | None:
    """Return the rule class for an output of this dtype; None for floats of an operator without a rule."""
    if rule is None:
        return None if output.precision else _EXACT
    if output.precision or rule.kind is _MOVES:
        return rule.kind
    return _EXACT


def describe_rule(case: TestCase, index: int = 0) -> str:
    """Describe the rule of an output before the case runs, as far as it is known without inputs."""
    is_declared = index < len(case.outputs)
    output = case.outputs[index].dtype if is_declared else case.dtypes[0] if case.inputs else dtype("float32")
    names = case.descriptor.tensors.output_names(index + 1) or case.descriptor.tensors.outputs
    name = names[index] if index < len(names) else f"output{index}"
    expected = Expected(name=name, dtype=output, shape=(), value=None)
    try:
        allowance = resolve(case, expected, index, Numerics(), None)
    except NoRule as error:
        if case.descriptor.rule is None:
            return str(error)
        allowance, _ = _law(case, case.descriptor.rule, expected, Numerics(), None, count=None, few=False)
        allowance = _with_formula_of_alternatives(allowance, case.descriptor, expected)
    return f"{allowance.used.text} ({allowance.used.layer})"


def _built_in(name: str, text: str, method: Method) -> Allowance:
    return Allowance(used=RuleUsed(name=name, layer=BUILT_IN, text=text), method=method)


_MOVEMENT = _built_in("movement", "elements only move: the same bits, NaN for NaN", Method.BITS)
_EXACT_INTEGERS = _built_in("exact", "one correct result", Method.EXACT)
_EXACT_FLOATS = _built_in("exact", "only one correct result: the exact one, rounded once", Method.EXACT)
_INTEGER_EXACT = _built_in(
    "integer-exact", "integer-exact inputs: every order of summation gives the exact sum, rounded once", Method.EXACT
)


def _with_formula_of_alternatives(
    allowance: Allowance, descriptor: OperatorDescriptor, expected: Expected
) -> Allowance:
    """Append the formula of the output's rule, or that of the operator if it describes alternatives, to the text."""
    if expected.rule is not None:
        return _with_formula(allowance, expected.rule.formula)
    if descriptor.rule is None or not _formula_describes_alternatives(descriptor):
        return allowance
    return _with_formula(allowance, descriptor.rule.formula)


def _formula_describes_alternatives(descriptor: OperatorDescriptor) -> bool:
    return descriptor.alternatives is not None and getattr(descriptor.alternatives, "tells", True)


def _with_formula(allowance: Allowance, formula: str) -> Allowance:
    """Append ``formula``, if any, to the text of the rule."""
    if not formula:
        return allowance
    used = dataclasses.replace(allowance.used, text=f"{allowance.used.text}; {formula}")
    return dataclasses.replace(allowance, used=used)


def _is_too_wide(tolerance: Allowance, expected: Expected) -> bool:
    """Return whether zeros pass by a user's tolerance for an output with its own rule CLOSE."""
    # Such an output is a gradient: a tolerance that was chosen for results ignores how small gradients may be.
    if expected.rule is None or expected.rule.kind is not _CLOSE or expected.value is None:
        return False
    return zeros_are_within(np.asarray(expected.value), tolerance.rtol, tolerance.atol, tolerance.mismatch_ratio)


def needs_its_name(case: TestCase, expected: Expected) -> bool:
    """Return whether a tolerance must name this output: integers of an operator with floating outputs (or inputs)."""
    # ``rtol: 0.01`` is meant for values, not for the indices next to them.
    known = case.outputs or tuple([argument.spec for argument in case.inputs])
    return not expected.dtype.is_inexact and any(spec.dtype.is_inexact for spec in known)


def _close(case: TestCase, expected: Expected, rule: Rule) -> Allowance:
    """Return the allowance of the rule or of ``torch.testing.assert_close``, reduced if zeros would pass by it.

    Raises:
        NoRule: for a dtype without a tolerance in torch.
    """
    output = expected.dtype
    default = rule.close or close_tolerance(output)
    tolerance = fitting_tolerance(output, expected.value, rule.close)
    if tolerance is None:
        raise NoRule(
            f"operator {case.descriptor.name} has no rule, and torch.testing has no tolerance for {output}; "
            f"set rtol and atol"
        )
    rtol, atol = tolerance
    smaller = " (as large as rtol of the largest, or zeros would pass)" * (tolerance != default)
    numbers = f"rtol={rtol:g}, atol={atol:g}{smaller}"
    whose = rule.source if rule.close else "torch.testing"
    text = f"{whose}'s default for {output}: |err| <= atol + rtol·|expected|, {numbers}"
    used = RuleUsed(name=_CLOSE.value, layer=BUILT_IN, text=text)
    return Allowance(used=used, method=Method.TOLERANCE, rtol=rtol, atol=atol)


_CachedTolerance = tuple[tuple[ToleranceLayer, ...], OperatorDescriptor, "Allowance | None"]
_tolerances: dict[tuple[Any, ...], _CachedTolerance] = {}


# Layers and descriptors are looked up by identity, which is why an entry keeps them alive.


def remembered_tolerance(
    layers: tuple[ToleranceLayer, ...],
    descriptor: OperatorDescriptor,
    index: int,
    output: str,
    one_answer: bool,
    by_name: bool,
) -> Allowance | None:
    """Return :func:`tolerance_of_layers` from a cache, since many cases share the same layers."""
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
    """Return the tolerance that users set for an output, None if none applies.

    The highest layer replaces the class rule entirely; a field that it omits comes from the next lower layer that sets
    it, else it is 0. Within one layer, an entry that names the output precedes one for all outputs. With ``one_answer``
    only layers that name the case or operator count, with ``by_name`` only entries that name the output.
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
    values: dict[str, Any] = {"rtol": 0.0, "atol": 0.0, "mismatch_ratio": 0.0}
    for layer in reversed(applying):
        fields = layer.tolerance.fields()
        values |= {name: float(fields[name]) for name in values.keys() & fields.keys()}
    highest, ratio = applying[0], values["mismatch_ratio"]
    text = f"|err| <= atol + rtol·|expected|, rtol={values['rtol']:g}, atol={values['atol']:g}"
    text += f", mismatch_ratio={ratio:g}" if ratio else ""
    text += f" (at {highest.where})" if highest.where else ""
    used = RuleUsed(name="tolerance", layer=highest.layer.phrase, text=text)
    return Allowance(used=used, method=Method.TOLERANCE, **values)


def _applies(layer: ToleranceLayer, descriptor: OperatorDescriptor, index: int, output: str) -> bool:
    """Return whether a layer is for all outputs or names this one: by its name, ``outputN`` or the signature's name."""
    if layer.output is None or layer.output == output or layer.output == f"output{index}":
        return True
    names = descriptor.tensors.output_names(index + 1) or descriptor.tensors.outputs
    return index < len(names) and layer.output == names[index]


def is_integer_exact(case: TestCase, expected: Expected, numerics: Numerics, inputs: Sequence[Any] | None) -> bool:
    """Return whether all orders of summation agree: integers whose Σ|terms| the accumulator holds exactly."""
    # The fill promises it, but attributes such as ``alpha=0.3``, a narrow accumulator or cut operands may break the
    # promise, so the terms count, too. Winograd and FFT sum other terms; the quotients of a mean are no whole numbers,
    # although they may happen to add up to one.
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
        bool((np.abs(np.asarray(array, dtype=np.float64)) <= 2.0**cut.precision).all())
        for array in inputs
        if array is not None
    )


_TF32 = DType(name="tf32", kind=Kind.FLOAT, bits=32, precision=11, emin=-126, emax=127)


def _cut_operands(case: TestCase, numerics: Numerics) -> DType | None:
    """Return the dtype to which the backend cuts float32 operands of a contraction, None if it does not."""
    if numerics.operands == "float32" or len(case.inputs) < 2:
        return None
    if all(entry.name not in ("float32", "complex64") for entry in case.dtypes):
        return None
    return _TF32 if numerics.operands == "tf32" else dtype(numerics.operands)


def _cut_by_budget(case: TestCase, numerics: Numerics, terms: Any) -> DType | None:
    """Return the dtype of :func:`_cut_operands` if the operator's budget contains the cost of cutting, else None."""
    has_cost = isinstance(terms, ErrorBudget) and terms.of_operands is not None
    return _cut_operands(case, numerics) if has_cost else None


def _wrong_terms(required: str, case: TestCase, expected: Expected) -> NoRule:
    return NoRule(
        f"the terms of {case.descriptor.name} for {expected.name} are {type(expected.terms).__name__}, expected "
        f"{required}; give the descriptor a terms hook, or set rtol and atol"
    )


def _operand_dtypes(case: TestCase, output: DType) -> Sequence[DType]:
    """Return the operand dtypes that the arithmetic is at least as wide as."""
    if not case.descriptor.is_promoting:
        return case.dtypes
    # A 0-d operand does not widen the arithmetic of tensors with a narrower result (torch.result_type).
    specs = [argument.spec for argument in case.inputs]
    return tuple([spec.dtype for spec in specs if spec.shape or spec.dtype.precision <= output.precision])


# Rules and numerics are looked up by identity, which is why an entry keeps them alive.
_laws: dict[tuple[Any, ...], tuple[Rule, Numerics, tuple[Allowance, bool]]] = {}


def _law(
    case: TestCase,
    rule: Rule,
    expected: Expected,
    numerics: Numerics,
    terms: Any,
    *,
    count: int | None,
    few: bool,
) -> tuple[Allowance, bool]:
    """Return the allowance of a class rule without its budget, and whether errors add up; both are cached.

    They are the same for all cases with the same rule, dtypes, numerics and k.
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
        if rule.formula and _formula_describes_alternatives(case.descriptor):
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
