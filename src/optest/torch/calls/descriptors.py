"""Operator descriptors for any dotted torch name, such as ``torch.nn.functional.softmax``, without a table.

The call itself is the attribute ``call`` (see :mod:`optest.spec.calls`); torch is consulted when a case runs. Facts
that are needed before that are in :mod:`optest.torch.fact_sheet`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from optest.registry import load_object
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass
from optest.spec.call_names import canonical
from optest.spec.calls import parse_call
from optest.torch.fact_sheet import facts_of
from optest.torch.facts import Collisions

if TYPE_CHECKING:
    from optest.operators import OperatorRegistry

CATEGORY = "torch call"
_ATTRIBUTES = (
    Attribute(name="call", type="str"),
    Attribute(name="grad", type="bool", default=None),
    Attribute(name="same_strides", type="bool", default=None),
)
# Tolerance of results whose condition torch.testing's tolerance does not consider.
SPREAD = "or 8 times what one rounding of every input changes"
_HOOKS = "optest.torch.calls.reference"
_DECOMPOSITIONS = "optest.torch.calls.decompositions"
_CONVERSIONS = "optest.torch.calls.other_right_results:conversions_out_of_range"
_COLLISIONS = "optest.torch.calls.other_right_results:one_of_collided_writes"
_READINGS = "optest.torch.calls.other_right_results:right_by_other_promotion"
# Ulp of float32 for functions outside the catalogue: most of its own ceilings are at most that.
_CEILING = 4.0
_CLOSENESS = "optest.torch.calls.rounded_steps:as_close_as_inputs_allow"


@dataclass(frozen=True, slots=True)
class CatalogueTerms:
    """Error terms of a call from the catalogue's operator, or a CLOSE rule (torch.testing's defaults) without them."""

    operator: OperatorDescriptor
    is_in_place: bool = False

    def __call__(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        terms = self._terms_or_rule(inputs, attributes["call"])
        if isinstance(terms, Rule):
            return terms
        # An in-place call yields its result twice: as its return value and as the changed input.
        in_place = self.is_in_place or parse_call(attributes["call"]).kwargs.get("inplace") is True
        return [*terms, *terms] if in_place else terms

    def do_not_hold(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> bool:
        """Return whether torch.testing's defaults replace the operator's rule for this call."""
        if _why_ceiling_fails(self.operator, inputs):
            return True
        has_terms = self.operator.terms is not None
        return has_terms and isinstance(_bound_or_why_not(self.operator, attributes["call"], inputs), str)

    def _terms_or_rule(self, inputs: Sequence[Any], text: str) -> Any:
        if why := _why_ceiling_fails(self.operator, inputs):
            return _close_because(why)
        if self.operator.terms is None:
            return [None]
        call = _bound_or_why_not(self.operator, text, inputs)
        if isinstance(call, str):
            return _close_because(call)
        return load_object(self.operator.terms)(call.inputs, dict(call.attributes))


def _close_because(why: str) -> Rule:
    return Rule(kind=RuleClass.CLOSE, formula=f"{SPREAD}; the catalogue's rule does not apply: {why}")


def _why_ceiling_fails(operator: OperatorDescriptor, inputs: Sequence[Any]) -> str:
    """Return the reason why the operator's ceiling in ulp does not hold for complex inputs; "" if it does."""
    is_ceiling = operator.rule is not None and operator.rule.kind in (RuleClass.ULP, RuleClass.COMPOSED)
    if not is_ceiling or facts_of(f"torch.{operator.name}").ceiling_holds_for_complex:
        return ""
    if all(array.dtype.kind != "c" for array in inputs):
        return ""
    return f"its ceiling for {operator.name} holds for real numbers only"


@dataclass(frozen=True, slots=True)
class CatalogueAlternatives:
    """Masks of alternative correct results of a call, from the catalogue's operator."""

    operator: OperatorDescriptor

    def __call__(self, inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]) -> Any:
        call = _bound_or_why_not(self.operator, attributes["call"], inputs)
        if isinstance(call, str):
            return [None] * len(actual)
        return load_object(self.operator.alternatives)(call.inputs, dict(call.attributes), actual)


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Masks of alternative correct outputs of a call.

    For results: those of the catalogue's operator, of conversions out of range, of collided writes, and of the other
    promotion of Python numbers; without a rule, closeness under rounded inputs. For gradients: the latter.
    """

    known: CatalogueAlternatives | None
    is_close: bool
    terms: CatalogueTerms | None = None
    ulps: float = _CEILING
    converts: bool = False
    collisions: Collisions | None = None

    @property
    def tells(self) -> bool:
        """Return whether the formula of the operator's rule describes alternatives."""
        return self.known is not None

    def __call__(self, inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]) -> Any:
        count = _number_of_results(inputs, attributes, actual)
        masks: list[Any] = [None] * len(actual)
        is_close = self.is_close or (self.terms is not None and self.terms.do_not_hold(inputs, attributes))
        if is_close or attributes.get("grad"):
            masks = list(load_object(_CLOSENESS)(inputs, attributes, actual))
        results = list(actual[:count])
        if not is_close:
            known = [None] if self.known is None else list(self.known(inputs, attributes, results))
            if self.converts:
                known = list(load_object(_CONVERSIONS)(inputs, attributes["call"], results[:1]))
            masks[:count] = (known * count)[:count]  # an in-place call yields its result twice
        further = [load_object(_READINGS)(inputs, attributes["call"], results, self.ulps, self.known)]
        if self.collisions is not None:
            further.insert(0, load_object(_COLLISIONS)(inputs, attributes["call"], self.collisions, results))
        for replacements in further:
            masks[:count] = [old if new is None else new for old, new in zip(masks, replacements, strict=False)]
        return masks


def _number_of_results(inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]) -> int:
    """Return how many outputs precede the gradients' mask and the gradients; all of them if there are no gradients."""
    if not attributes.get("grad"):
        return len(actual)
    entry_of = load_object("optest.numerics:dtype_of")
    named = set(parse_call(attributes["call"]).tensors())
    floating: int = sum(entry_of(inputs[index].dtype).is_inexact for index in named)
    position = len(actual) - 1 - floating
    mask = actual[position] if position >= 0 else None
    has_gradients = mask is not None and mask.dtype == bool and mask.shape == (floating,)
    return position if has_gradients else len(actual)


def _bound_or_why_not(operator: OperatorDescriptor, text: str, inputs: Sequence[Any]) -> Any:
    """Return the call bound to the catalogue operator's inputs and attributes, or the reason why it cannot be."""
    try:  # binding imports torch, so load it only when a case runs
        return load_object("optest.torch.calls.binding:bind_call")(operator, text, inputs)
    except ValueError as error:
        return str(error)


@lru_cache(maxsize=4096)
def descriptor_of(name: str, catalogue: OperatorRegistry | None = None) -> OperatorDescriptor:
    """Return the descriptor of a torch name, whether or not this torch has it.

    Its rule comes from the fact sheet, else from the operator of that name in ``catalogue``, else it is CLOSE:
    torch.testing's tolerance for the dtype of the output.
    """
    spelled = canonical(name)
    facts = facts_of(name)
    if facts.factors is not None:  # factors are checked together: their product has to be the matrix
        rule = Rule(kind=RuleClass.COMPOSED, formula=facts.factors.formula, fixed=True)
        budgets, as_right = f"{_DECOMPOSITIONS}:budgets", f"{_DECOMPOSITIONS}:as_right"
        return _call_descriptor(name=name, rule=rule, terms=budgets, alternatives=as_right)
    rule_of_facts = _RULES[facts.rule]
    is_catalogued = rule_of_facts is None and catalogue is not None and spelled.operator in catalogue
    known = catalogue.get(spelled.operator) if is_catalogued and catalogue is not None else None
    rule = rule_of_facts or (CLOSE if known is None or known.rule is None else known.rule)
    terms: Any = f"{_HOOKS}:terms" if facts.rule is RuleClass.ACCUMULATE else None
    catalogue_terms: CatalogueTerms | None = None
    if known is not None and (known.terms is not None or rule.kind is RuleClass.ULP):
        terms = catalogue_terms = CatalogueTerms(known, spelled.is_in_place)
    return _call_descriptor(
        name=name,
        terms=terms,
        rule=rule,
        alternatives=Alternatives(
            None if known is None or known.alternatives is None else CatalogueAlternatives(known),
            is_close=rule is CLOSE,
            terms=catalogue_terms,
            ulps=rule.ulp if rule.kind is RuleClass.ULP else _CEILING,
            converts=facts.rule is RuleClass.EXACT,
            collisions=facts.collisions,
        ),
        domain="optest.torch.calls.indices:index_intervals",
        mutates=("input0",) if spelled.is_in_place else (),
        promotes=known is not None and known.is_promoting,
    )


_call_descriptor = partial(
    OperatorDescriptor,
    category=CATEGORY,
    signature="*input -> *output",
    attributes=_ATTRIBUTES,
    reference=f"{_HOOKS}:compute_expected",
    reference_rejects="optest.torch.calls.refusals:require_refusal",
)
CLOSE = Rule(kind=RuleClass.CLOSE, formula=SPREAD)


_RULES: Mapping[RuleClass | None, Rule | None] = {
    None: None,
    RuleClass.MOVEMENT: Rule(kind=RuleClass.MOVEMENT),
    RuleClass.EXACT: Rule(kind=RuleClass.EXACT),
    RuleClass.ACCUMULATE: Rule(kind=RuleClass.ACCUMULATE, fixed=True),
}
