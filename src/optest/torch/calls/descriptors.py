"""Descriptors of torch's own callables, ``torch.nn.functional.softmax``: one for any dotted name, without a table.

The call itself is the attribute ``call`` (see :mod:`optest.spec.calls`); torch is asked for the rest when a case runs.
What is known of some functions before that is in their records (:mod:`optest.torch.fact_sheet`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol

from optest.registry import load_object
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass
from optest.spec.call_names import canonical
from optest.spec.calls import parse_call
from optest.torch.fact_sheet import facts_of
from optest.torch.facts import Collisions

CATEGORY = "torch call"
_ATTRIBUTES = (
    Attribute(name="call", type="str"),
    Attribute(name="grad", type="bool", default=None),
    Attribute(name="same_strides", type="bool", default=None),
)
SPREAD = "or 8 times what one rounding of every input changes"
"""Of results that torch.testing's tolerance does not know the condition of."""

_HOOKS = "optest.torch.calls.reference"
_DECOMPOSITIONS = "optest.torch.calls.decompositions"
_CONVERSIONS = "optest.torch.calls.other_right_results:conversions_out_of_range"
_COLLISIONS = "optest.torch.calls.other_right_results:one_of_collided_writes"
_READINGS = "optest.torch.calls.other_right_results:right_by_other_promotion"
_CEILING = 4.0
"""In ulp of float32, of functions that the catalogue does not know: most ceilings of its own are at most that."""
_CLOSENESS = "optest.torch.calls.closeness:as_close_as_inputs_allow"


@dataclass(frozen=True, slots=True)
class CatalogueTerms:
    """The error terms of a call, as the operator of the catalogue gives them, else that torch.testing's defaults hold.

    A call in place yields its result twice: as what it returns and as what it changed.
    """

    operator: OperatorDescriptor
    is_in_place: bool = False

    def __call__(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        found = self._of_one_call(inputs, attributes["call"])
        if isinstance(found, Rule):
            return found
        in_place = self.is_in_place or parse_call(attributes["call"]).kwargs.get("inplace") is True
        return [*found, *found] if in_place else found

    def do_not_hold(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> bool:
        """Whether torch.testing's defaults judge the call in place of the operator's rule."""
        if _why_not_of_complex(self.operator, inputs):
            return True
        has_terms = self.operator.terms is not None
        return has_terms and isinstance(_bound_or_why_not(self.operator, attributes["call"], inputs), str)

    def _of_one_call(self, inputs: Sequence[Any], text: str) -> Any:
        if why := _why_not_of_complex(self.operator, inputs):
            return _close_because(why)
        if self.operator.terms is None:
            return [None]
        call = _bound_or_why_not(self.operator, text, inputs)
        if isinstance(call, str):
            return _close_because(call)
        return load_object(self.operator.terms)(call.inputs, dict(call.attributes))


def _close_because(why: str) -> Rule:
    return Rule(kind=RuleClass.CLOSE, formula=f"{SPREAD}; the catalogue's rule cannot be asked: {why}")


def _why_not_of_complex(operator: OperatorDescriptor, inputs: Sequence[Any]) -> str:
    """Why the operator's ceilings do not hold for these inputs, nothing where they do."""
    is_ceiling = operator.rule is not None and operator.rule.kind in (RuleClass.ULP, RuleClass.COMPOSED)
    if not is_ceiling or facts_of(f"torch.{operator.name}").ceiling_holds_for_complex:
        return ""
    if all(each.dtype.kind != "c" for each in inputs):
        return ""
    return f"its ceiling for {operator.name} is that of real numbers"


@dataclass(frozen=True, slots=True)
class CatalogueAlternatives:
    """What else is right of a call's results, as the operator of the catalogue says."""

    operator: OperatorDescriptor

    def __call__(self, inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]) -> Any:
        call = _bound_or_why_not(self.operator, attributes["call"], inputs)
        if isinstance(call, str):
            return [None] * len(actual)
        return load_object(self.operator.alternatives)(call.inputs, dict(call.attributes), actual)


@dataclass(frozen=True, slots=True)
class Alternatives:
    """What else is right of a call: of its results what the catalogue's operator says, else what rounded inputs give.

    Gradients are always looked at again so; results only where nothing else is known of the call.
    """

    known: CatalogueAlternatives | None
    is_close: bool
    terms: CatalogueTerms | None = None
    ulps: float = _CEILING
    converts: bool = False
    collisions: Collisions | None = None

    @property
    def tells(self) -> bool:
        """Whether the formula of the operator's rule is about alternatives."""
        return self.known is not None

    def __call__(self, inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]) -> Any:
        count = _number_of_results(inputs, attributes, actual)
        masks: list[Any] = [None] * len(actual)
        is_close = self.is_close or (self.terms is not None and self.terms.do_not_hold(inputs, attributes))
        if is_close or attributes.get("grad"):
            masks = list(load_object(_CLOSENESS)(inputs, attributes, actual))
        results = list(actual[:count])
        if not is_close:
            found = [None] if self.known is None else list(self.known(inputs, attributes, results))
            if self.converts:
                found = list(load_object(_CONVERSIONS)(inputs, attributes["call"], results[:1]))
            masks[:count] = (found * count)[:count]  # a call in place yields its result twice
        if self.collisions is not None:
            several = load_object(_COLLISIONS)(inputs, attributes["call"], self.collisions, results)
            masks[:count] = [one if other is None else other for one, other in zip(masks, several, strict=False)]
        readings = load_object(_READINGS)(inputs, attributes["call"], results, self.ulps, self.known)
        masks[:count] = [one if other is None else other for one, other in zip(masks, readings, strict=False)]
        return masks


def _number_of_results(inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]) -> int:
    """How many outputs are the call's own; behind them stand which inputs have a gradient, and the gradients.

    Where torch differentiates nothing, there are no others.
    """
    if not attributes.get("grad"):
        return len(actual)
    entry_of = load_object("optest.numerics:dtype_of")
    named = set(parse_call(attributes["call"]).tensors())
    floating: int = sum(entry_of(inputs[index].dtype).is_inexact for index in named)
    place = len(actual) - 1 - floating
    exists = actual[place] if place >= 0 else None
    has_gradients = exists is not None and exists.dtype == bool and exists.shape == (floating,)
    return place if has_gradients else len(actual)


def _bound_or_why_not(operator: OperatorDescriptor, text: str, inputs: Sequence[Any]) -> Any:
    """The call as one of the catalogue's operator, else why it is none.

    Torch is asked for the names of arguments, so what asks it is loaded when a case runs.
    """
    try:
        return load_object("optest.torch.calls.binding:bound")(operator, text, inputs)
    except ValueError as error:
        return str(error)


class Catalogue(Protocol):
    """The operators that optest knows by name."""

    def __contains__(self, name: str) -> bool: ...

    def get(self, name: str) -> OperatorDescriptor: ...


@lru_cache(maxsize=4096)
def descriptor_of(name: str, catalogue: Catalogue | None = None) -> OperatorDescriptor:
    """The descriptor of a callable of torch, whether or not this torch has it.

    Where nothing else is known of it, the rule of the operator of that name in ``catalogue`` judges it, and where there
    is none, what torch.testing allows for the dtype of the output.
    """
    spelled = canonical(name)
    facts = facts_of(name)
    if facts.factors is not None:  # whose results are looked at together
        rule = Rule(kind=RuleClass.COMPOSED, formula=facts.factors.formula, stands=True)
        budgets, as_right = f"{_DECOMPOSITIONS}:budgets", f"{_DECOMPOSITIONS}:as_right"
        return _OF_A_CALL(name=name, rule=rule, terms=budgets, alternatives=as_right)
    own = _RULES[facts.rule]
    is_catalogued = own is None and catalogue is not None and spelled.operator in catalogue
    known = catalogue.get(spelled.operator) if is_catalogued and catalogue is not None else None
    rule = own or (CLOSE if known is None or known.rule is None else known.rule)
    terms: Any = f"{_HOOKS}:terms" if facts.rule is RuleClass.ACCUMULATE else None
    of_known: CatalogueTerms | None = None
    if known is not None and (known.terms is not None or rule.kind is RuleClass.ULP):
        terms = of_known = CatalogueTerms(known, spelled.is_in_place)
    return _OF_A_CALL(
        name=name,
        terms=terms,
        rule=rule,
        alternatives=Alternatives(
            None if known is None or known.alternatives is None else CatalogueAlternatives(known),
            is_close=rule is CLOSE,
            terms=of_known,
            ulps=rule.ulp if rule.kind is RuleClass.ULP else _CEILING,
            converts=facts.rule is RuleClass.EXACT,
            collisions=facts.collisions,
        ),
        domain="optest.torch.calls.indices:domain",
        mutates=("input0",) if spelled.is_in_place else (),
        promotes=known is not None and known.is_promoting,
    )


_OF_A_CALL = partial(
    OperatorDescriptor,
    category=CATEGORY,
    signature="*input -> *output",
    attributes=_ATTRIBUTES,
    reference=f"{_HOOKS}:expected",
    refused="optest.torch.calls.refusals:refused",
)
CLOSE = Rule(kind=RuleClass.CLOSE, formula=SPREAD)


_RULES: Mapping[RuleClass | None, Rule | None] = {
    None: None,
    RuleClass.MOVEMENT: Rule(kind=RuleClass.MOVEMENT),
    RuleClass.EXACT: Rule(kind=RuleClass.EXACT),
    RuleClass.ACCUMULATE: Rule(kind=RuleClass.ACCUMULATE, stands=True),
}
