"""The tolerance layers of a case: for all outputs and for single ones, from defaults, case and command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from optest.plan.forms import ToleranceChoice
from optest.plan.operands import no_such_output
from optest.plan.origins import where_key
from optest.plan.shared import Shared
from optest.plan.statement import Statement
from optest.spec import Layer, TestCase, Tolerance, ToleranceLayer

__all__ = ["check_outputs_of_tolerances", "tolerance_layers", "with_signed_zeros"]


def tolerance_layers(statement: Statement, shared: Shared) -> tuple[ToleranceLayer, ...]:
    """Every layer that states something, the lowest first; outputs go by position, ``output0``.

    Outputs that only the defaults name and this operator has not are left out, as default attributes are.
    """
    layers: list[ToleranceLayer] = []
    if shared.plan_tolerance is not None:
        where = shared.plan_tolerance_where
        layers += _layers_of(shared.plan_tolerance, Layer.PLAN, where, statement, is_default=True)
    own = statement.entry.get("tolerance")
    if own is not None:
        layers += _layers_of(own, Layer.CASE, where_key(statement, "tolerance"), statement, is_default=False)
    if shared.flag_tolerance is not None:
        layers.append(shared.flag_tolerance)
    return tuple(layers)


def _layers_of(
    choice: ToleranceChoice, layer: Layer, where: str, statement: Statement, *, is_default: bool
) -> Iterator[ToleranceLayer]:
    if choice.every is not None:
        yield ToleranceLayer(layer=layer, tolerance=choice.every, where=where)
    seen: set[int] = set()
    for name, tolerance in choice.by_output.items():
        if is_default and not statement.operator.knows(name):
            continue
        place = (*(("defaults",) if is_default else statement.path), "tolerance", name)
        tensor = statement.locate(name, place)
        if tensor is None:
            continue
        side, index = tensor
        if side == "input":
            statement.ledger.problem(place, f"{name} is an input, but tolerances are for outputs")
        elif index in seen:
            statement.ledger.problem(place, f"the tolerance of output{index} is stated twice")
        else:
            seen.add(index)
            yield ToleranceLayer(layer=layer, tolerance=tolerance, output=f"output{index}", where=where)


def check_outputs_of_tolerances(statement: Statement, count: int) -> None:
    """A tolerance that the case states for an output has to have one: an operator may make fewer than it can.

    ``count`` is the number of outputs, 0 if it is not known.
    """
    own: ToleranceChoice | None = statement.entry.get("tolerance")
    if own is None or not count:
        return
    for name in own.by_output:
        side, index = statement.operator.locate(name) if statement.operator.knows(name) else ("", 0)
        if side == "output" and index >= count:
            place = (*statement.path, "tolerance", name)
            statement.ledger.problem(place, no_such_output(statement, index, count))


def with_signed_zeros(cases: Iterable[TestCase]) -> list[TestCase]:
    """The cases with ``--signed-zeros``: where an operator defines the sign of a zero, another one is wrong."""
    return [
        replace(case, tolerances=(*case.tolerances, _STRICT)) if case.descriptor.signed_zeros else case
        for case in cases
    ]


_STRICT = ToleranceLayer(layer=Layer.COMMAND_LINE, tolerance=Tolerance(signed_zeros="strict"), where="--signed-zeros")
