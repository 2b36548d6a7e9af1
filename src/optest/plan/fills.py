"""Who makes the inputs of a case: the layers of ``generator`` merged, and what a fill has to know of its operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optest.errors import UsageError
from optest.plan.layers import PlanHost, Statement
from optest.plan.operator_lookup import DEFAULT_FILL, at_their_places
from optest.plan.problems import Ledger, Place
from optest.plan.values import GeneratorChoice, read_generator
from optest.registry import load_object
from optest.spec import Argument, Fill, OperatorDescriptor, TensorSpec, TestCase, UnfitArguments


@dataclass(slots=True)
class FillCheck:
    """Whether a fill, or what an import path names, exists; looked up once for each."""

    host: PlanHost
    ledger: Ledger
    good: set[str] = field(default_factory=set)
    hooks: dict[str, UsageError | None] = field(default_factory=dict)
    """What is wrong with each import path, None if nothing."""

    def require_hook(self, path: str, place: Place, *, untrusted: bool) -> None:
        """An import path has to lead somewhere before a case runs; what an untrusted plan names is not imported."""
        if untrusted and not isinstance(place, str):
            return
        if path not in self.hooks:
            try:
                self.host.check_hook(path)
                self.hooks[path] = None
            except UsageError as error:
                self.hooks[path] = error
        if (wrong := self.hooks[path]) is not None:
            self.ledger.error(place, wrong)

    def require(self, fill: Fill, place: Place) -> None:
        if not fill.parameters and fill.kind in self.good:
            return
        try:
            self.host.check_fill(fill)
        except UsageError as error:
            self.ledger.error(place, error)
        else:
            if not fill.parameters:
                self.good.add(fill.kind)


def with_lengths_of_sums(
    descriptor: OperatorDescriptor,
    by_index: Mapping[int, Argument],
    outputs: Sequence[TensorSpec],
    attributes: Mapping[str, Any],
) -> tuple[Argument, ...]:
    """The arguments; a fill that needs the length of the operator's sums, integer-exact, is told it."""
    arguments = tuple(by_index.values())
    if not any(each.fill.kind == "integer-exact" for each in arguments):
        return arguments
    specs = at_their_places(descriptor.tensors, {index: argument.spec for index, argument in by_index.items()})
    return tuple(
        dataclasses.replace(each, fill=_with_terms(each.fill, descriptor, specs, outputs, attributes))
        for each in arguments
    )


def choose_fills(statement: Statement, present: Sequence[int]) -> tuple[str | None, Fill, dict[int, Fill]]:
    """Merge the layers: a fill or path for all inputs replaces what stands below it, fills by input add up."""
    fills = statement.context.fills
    path: str | None = None
    every = Fill(kind=DEFAULT_FILL)
    by_index: dict[int, Fill] = {}
    operators: tuple[Place, GeneratorChoice] = ("operator", statement.operator.generator)
    for place, choice in (operators, *statement.layers("generator")):
        if choice.path is not None:
            path, every, by_index = choice.path, Fill(kind=DEFAULT_FILL), {}
            if place != "operator":
                fills.require_hook(path, place, untrusted=statement.context.request.untrusted)
        elif choice.every is not None:
            path, every, by_index = None, choice.every, {}
            fills.require(every, place)
        else:
            for (_, index), here, fill in statement.by_tensor(choice.by_tensor, place, "fill", side="input"):
                fills.require(fill, here)
                by_index[index] = fill
    if path is None or not by_index:
        return path, every, by_index
    if "generator" not in statement.doubtful and any(index not in by_index for index in present):
        message = f"fills by input leave inputs to {path}, which makes all inputs or none"
        statement.ledger.problem(statement.place("generator"), message, "state a fill for every input")
    return None, every, by_index


def default_fill(kind: str, case: TestCase) -> Fill:
    """The fill that a plan or flag means by its bare name in this case."""
    by_index = {case.descriptor.tensors.locate(each.path)[1]: each.spec for each in case.inputs}
    specs = at_their_places(case.descriptor.tensors, by_index)
    return _with_terms(Fill(kind=kind), case.descriptor, specs, case.outputs, case.attributes)


def operators_fills(case: TestCase) -> tuple[str | None, list[Fill]]:
    """The generator and the fills of the inputs of this case if nobody stated any."""
    choice = read_generator(case.descriptor.generator or DEFAULT_FILL)
    every = choice.every or Fill(kind=DEFAULT_FILL)
    locate = case.descriptor.tensors.locate
    by_path = {f"input{locate(name)[1]}": fill for name, fill in choice.by_tensor.items()}
    fills = [by_path.get(argument.path, every) for argument in case.inputs]
    return choice.path, [default_fill(fill.kind, case) if not fill.parameters else fill for fill in fills]


def _with_terms(
    fill: Fill,
    descriptor: OperatorDescriptor,
    inputs: Sequence[TensorSpec | None],
    outputs: Sequence[TensorSpec],
    attributes: Mapping[str, Any],
) -> Fill:
    """Tell the integer-exact fill how many terms a sum has, so that all sums stay within the accumulator."""
    if fill.kind != "integer-exact" or "terms" in fill.parameters:
        return fill
    terms = _terms(descriptor, inputs, outputs, attributes)
    return fill if terms is None else Fill(kind=fill.kind, parameters={**fill.parameters, "terms": terms})


def _terms(
    descriptor: OperatorDescriptor,
    inputs: Sequence[TensorSpec | None],
    outputs: Sequence[TensorSpec],
    attributes: Mapping[str, Any],
) -> int | None:
    """Length of the sum in each output element: what the operator says, else what its category tells, if it does.

    None too where the inputs do not fit each other, which a case that has to be refused is meant to do.
    """
    hook = descriptor.sum_length
    if hook is not None:
        try:
            length: int = load_object(hook)(inputs, attributes)
        except UnfitArguments:
            return None
        return length
    first = inputs[0] if inputs else None
    if first is None:
        return None
    if descriptor.category == "contraction" and first.rank:
        is_transposed = first.rank > 1 and attributes.get("trans_a") is True
        return first.shape[-2 if is_transposed else -1]
    if descriptor.category == "reduction" and outputs:
        return first.elements // max(outputs[0].elements, 1)
    return None
