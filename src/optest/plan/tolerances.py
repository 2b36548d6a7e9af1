"""Tolerance layers of a case: for all outputs and for single ones, from defaults, case and command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from optest.plan.explain import where_key
from optest.plan.layers import Statement
from optest.plan.problems import Place
from optest.plan.tensors import no_such_output
from optest.plan.values import ToleranceChoice
from optest.spec import Layer, TensorSpec, TestCase, Tolerance, ToleranceLayer


def tolerance_layers(statement: Statement) -> tuple[ToleranceLayer, ...]:
    """Return the layers that set a tolerance, the lowest first; outputs are named by index, ``output0``."""
    layers: list[ToleranceLayer] = []
    for place, choice in statement.layers("tolerance"):
        if place == "--tolerance":
            layers += _layers_of(choice, Layer.COMMAND_LINE, place, place, statement)
        elif place == ("defaults", "tolerance"):
            where = statement.context.origins["tolerance"].removesuffix(" defaults")
            layers += _layers_of(choice, Layer.PLAN, where, place, statement)
        else:
            layers += _layers_of(choice, Layer.CASE, where_key(statement, "tolerance"), place, statement)
    return tuple(layers)


def _layers_of(
    choice: ToleranceChoice, layer: Layer, where: str, place: Place, statement: Statement
) -> Iterator[ToleranceLayer]:
    if choice.every is not None:
        yield ToleranceLayer(layer=layer, tolerance=choice.every, where=where)
    named = choice.by_output
    if layer is Layer.PLAN:
        # Defaults may name outputs of other operators of the plan.
        named = {name: tolerance for name, tolerance in named.items() if statement.operator.knows(name)}
    for (_, index), _, tolerance in statement.by_tensor(named, place, "tolerance", side="output"):
        yield ToleranceLayer(layer=layer, tolerance=tolerance, output=f"output{index}", where=where)


def check_tolerances(statement: Statement, outputs: Sequence[TensorSpec], layers: Sequence[ToleranceLayer]) -> None:
    """Note a problem for a tolerance of an output that does not exist, and for an output that needs one."""
    choice: ToleranceChoice | None = statement.entry.get("tolerance")
    for name in choice.by_output if choice is not None and outputs else ():
        side, index = statement.operator.locate(name) if statement.operator.knows(name) else ("", 0)
        if side == "output" and index >= len(outputs):
            message = no_such_output(statement, index, len(outputs))
            statement.ledger.problem((*statement.path, "tolerance", name), message)
    if statement.operator.descriptor.rule is None:
        _require_tolerance(statement, outputs, layers)


def _require_tolerance(statement: Statement, outputs: Sequence[TensorSpec], layers: Sequence[ToleranceLayer]) -> None:
    """Note a problem for the first non-empty float output without a tolerance: there is no rule to fall back on."""
    entry = statement.entry
    if "tolerance" in statement.doubtful or "skip" in entry or "expects_error" in entry:
        return
    bounded = {layer.output for layer in layers if layer.tolerance.bounds_errors}
    for index, spec in enumerate(outputs):
        if spec.dtype.precision and spec.elements and bounded.isdisjoint((None, f"output{index}")):
            output = f"output{index} of {statement.operator.name} is {spec.dtype}"
            message = f"{output}, and the operator has no tolerance rule, so the case needs a tolerance"
            in_plan = "tolerance: {rtol: 1e-3, atol: 1e-5} here or in defaults"
            hint = in_plan if statement.path else "--tolerance rtol=1e-3,..."
            # One tolerance serves all outputs, so the first problem is enough.
            place = statement.place("tolerance")
            statement.ledger.problem(place, message, f"{hint}, or a rule in the operator's descriptor")
            return


def with_signed_zeros(cases: Iterable[TestCase]) -> list[TestCase]:
    """Return the cases with strict signs of zeros (``--signed-zeros``) for operators that define these signs."""
    strict = ToleranceLayer(
        layer=Layer.COMMAND_LINE, tolerance=Tolerance(signed_zeros="strict"), where="--signed-zeros"
    )
    return [
        replace(case, tolerances=(*case.tolerances, strict)) if case.descriptor.signed_zeros else case for case in cases
    ]
