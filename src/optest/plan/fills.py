"""Fills of a case's inputs: merge the layers of `generator`, and pass the length of sums to the integer-exact fill."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from optest.plan.layers import Statement
from optest.plan.operator_lookup import DEFAULT_FILL, in_call_order
from optest.plan.problems import Place
from optest.plan.values import GeneratorChoice, read_generator
from optest.registry import load_object
from optest.spec import Argument, Fill, OperatorDescriptor, TensorSpec, TestCase, UnfitArguments


def with_sum_lengths(
    descriptor: OperatorDescriptor,
    by_index: Mapping[int, Argument],
    outputs: Sequence[TensorSpec],
    attributes: Mapping[str, Any],
) -> tuple[Argument, ...]:
    """Return the arguments, with `terms`, the length of the operator's sums, set in each integer-exact fill."""
    arguments = tuple(by_index.values())
    if not any(x.fill.kind == "integer-exact" for x in arguments):
        return arguments
    specs = in_call_order(descriptor.tensors, {index: argument.spec for index, argument in by_index.items()})
    return tuple(
        dataclasses.replace(x, fill=_with_terms(x.fill, descriptor, specs, outputs, attributes)) for x in arguments
    )


def choose_fills(statement: Statement, present: Sequence[int]) -> tuple[str | None, Fill, dict[int, Fill]]:
    """Return the generator path (or None), the fill of all inputs, and the fills by input that override it."""
    fills = statement.context.fills
    path: str | None = None
    every = Fill(kind=DEFAULT_FILL)
    by_index: dict[int, Fill] = {}
    builtin: tuple[Place, GeneratorChoice] = ("operator", statement.operator.generator)
    # A path or a fill for all inputs replaces the layers below it, fills by input are merged.
    for place, choice in (builtin, *statement.layers("generator")):
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
    # A generator makes all inputs in one call, or none.
    if "generator" not in statement.doubtful and any(index not in by_index for index in present):
        message = f"fills by input leave out inputs, which {path} cannot generate singly"
        statement.ledger.problem(statement.place("generator"), message, "write a fill for every input")
    return None, every, by_index


def default_fill(kind: str, case: TestCase) -> Fill:
    """Return the fill that its name without parameters means in this case."""
    by_index = {case.descriptor.tensors.locate(x.path)[1]: x.spec for x in case.inputs}
    specs = in_call_order(case.descriptor.tensors, by_index)
    return _with_terms(Fill(kind=kind), case.descriptor, specs, case.outputs, case.attributes)


def operators_fills(case: TestCase) -> tuple[str | None, list[Fill]]:
    """Return the operator's generator and the fills of the case's inputs, as they are without a `generator` key."""
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
    """Return the fill, with `terms` set for integer-exact, unless that is set already or unknown."""
    if fill.kind != "integer-exact" or "terms" in fill.parameters:
        return fill
    # The fill bounds its integers by the number of terms, so that no sum exceeds the accumulator.
    terms = _sum_length(descriptor, inputs, outputs, attributes)
    return fill if terms is None else Fill(kind=fill.kind, parameters={**fill.parameters, "terms": terms})


def _sum_length(
    descriptor: OperatorDescriptor,
    inputs: Sequence[TensorSpec | None],
    outputs: Sequence[TensorSpec],
    attributes: Mapping[str, Any],
) -> int | None:
    """Return the number of terms of each output element, by the operator's hook or category; None if unknown."""
    hook = descriptor.sum_length
    if hook is not None:
        try:
            length: int = load_object(hook)(inputs, attributes)
            # Expected in cases of wrong calls, which the backend has to refuse.
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
