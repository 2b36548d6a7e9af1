"""Descriptors of torch's own callables, ``torch.nn.functional.softmax``: one for any dotted name, without a table.

The call itself is the attribute ``call`` (see :mod:`optest.spec.calls`); torch is asked for the rest when a case runs.
What stands here about some names is what torch's documentation promises of them: which of them move elements, convert
them, add up products of their operands, or change their first argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from optest.registry import load_object
from optest.spec import Attribute, Fault, OperatorDescriptor, Reason, Rule, RuleClass

__all__ = ["CATEGORY", "descriptor_of"]

CATEGORY = "torch call"
_HOOKS = "optest.backends.torch_calls.reference"

_MOVEMENT = """
adjoint atleast_1d atleast_2d atleast_3d broadcast_tensors broadcast_to cat chunk clone column_stack concat
concatenate contiguous detach diagonal dsplit dstack embedding expand expand_as fill flatten flip fliplr flipud
gather getitem hsplit hstack index_copy index_fill index_put index_select masked_fill masked_scatter masked_select
mH moveaxis movedim mT narrow permute pin_memory ravel repeat repeat_interleave reshape reshape_as roll rot90
scatter select select_scatter setitem slice_scatter split split_with_sizes squeeze stack swapaxes swapdims t take
take_along_dim tensor_split tile transpose tril triu unbind unflatten unfold unsqueeze view view_as vsplit vstack
where
"""
_CONVERSION = """
bfloat16 bool byte char double float half int long short to type type_as
"""
_CONTRACTION = """
bmm chain_matmul conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d dot einsum inner linear
matmul mm mv tensordot vdot
"""
_NOT_IN_PLACE = ("and_", "or_", "not_")
"""Operators of Python whose underscore keeps them apart from keywords."""

_OPERATORS_IN_PLACE = """
setitem iadd isub imul itruediv ifloordiv imod ipow iand ior ixor
"""


@dataclass(frozen=True, slots=True)
class CatalogueTerms:
    """The error terms of a call, as the operator of the catalogue gives them.

    A call in place yields its result twice: as what it returns and as what it changed.
    """

    operator: OperatorDescriptor
    is_in_place: bool = False

    def __call__(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        call = _bound(self.operator, attributes, inputs)
        found = _function(self.operator.terms)(call.inputs, dict(call.attributes))
        return [*found, *found] if self.is_in_place else found


@dataclass(frozen=True, slots=True)
class CatalogueAlternatives:
    """What else is right of a call, as the operator of the catalogue says."""

    operator: OperatorDescriptor

    def __call__(self, inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]) -> Any:
        call = _bound(self.operator, attributes, inputs)
        return _function(self.operator.alternatives)(call.inputs, dict(call.attributes), actual)


def _bound(operator: OperatorDescriptor, attributes: Mapping[str, Any], inputs: Sequence[Any]) -> Any:
    """Torch is asked for the names of arguments, so what asks it is loaded when a case runs."""
    try:
        return load_object("optest.backends.torch_calls.binding:bound")(operator, attributes["call"], inputs)
    except ValueError as error:
        raise Fault(Reason.BAD_CASE, f"no rule is known for the call: {error}; state rtol and atol") from None


def _function(hook: Any) -> Callable[..., Any]:
    found: Callable[..., Any] = load_object(hook) if isinstance(hook, str) else hook
    return found


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
    last = _last(name)
    own = _rule(last)
    known = catalogue.get(last) if own is None and catalogue is not None and last in catalogue else None
    terms: Any = f"{_HOOKS}:terms" if last in _CONTRACTION.split() else None
    if known is not None and known.terms is not None:
        terms = CatalogueTerms(known, _is_in_place(name))
    return OperatorDescriptor(
        name=name,
        category=CATEGORY,
        signature="*input -> *output",
        attributes=(Attribute(name="call", type="str"),),
        reference=f"{_HOOKS}:expected",
        terms=terms,
        rule=own or (_CLOSE if known is None or known.rule is None else known.rule),
        alternatives=CatalogueAlternatives(known) if known is not None and known.alternatives is not None else None,
        domain="optest.backends.torch_calls.indices:domain",
        mutates=("input0",) if _is_in_place(name) else (),
    )


def _last(name: str) -> str:
    """``matmul`` of ``torch.ops.aten.matmul.default``; an in-place form goes by the name of the other."""
    parts = name.split(".")
    if parts[:2] == ["torch", "ops"]:
        parts = parts[:4]
    return parts[-1].rstrip("_") if not parts[-1].startswith("__") else parts[-1].strip("_")


def _is_in_place(name: str) -> bool:
    parts = name.split(".")
    if parts[:2] == ["torch", "ops"]:
        parts = parts[:4]
    last = parts[-1]
    if last in _NOT_IN_PLACE:
        return False
    return (last.endswith("_") and not last.endswith("__")) or last in _OPERATORS_IN_PLACE.split()


_CLOSE = Rule(kind=RuleClass.CLOSE)


def _rule(name: str) -> Rule | None:
    if name in _MOVEMENT.split():
        return Rule(kind=RuleClass.MOVEMENT)
    if name in _CONVERSION.split():
        return Rule(kind=RuleClass.EXACT)
    if name in _CONTRACTION.split():
        return Rule(kind=RuleClass.ACCUMULATE, stands=True)
    return None
