"""The tolerance layers of a case: for all outputs and for single ones, from defaults, case and command line."""

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
    """Every layer that states something, the lowest first; outputs go by position, ``output0``.

    Outputs that only the defaults name and this operator has not are left out, as default attributes are.
    """
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
        named = {name: tolerance for name, tolerance in named.items() if statement.operator.knows(name)}
    for (_, index), _, tolerance in statement.by_tensor(named, place, "tolerance", side="output"):
        yield ToleranceLayer(layer=layer, tolerance=tolerance, output=f"output{index}", where=where)


def check_tolerances(statement: Statement, outputs: Sequence[TensorSpec], layers: Sequence[ToleranceLayer]) -> None:
    """What is stated is of outputs that are made, and of an operator without a rule, something is stated."""
    own: ToleranceChoice | None = statement.entry.get("tolerance")
    for name in own.by_output if own is not None and outputs else ():
        side, index = statement.operator.locate(name) if statement.operator.knows(name) else ("", 0)
        if side == "output" and index >= len(outputs):
            message = no_such_output(statement, index, len(outputs))
            statement.ledger.problem((*statement.path, "tolerance", name), message)
    if statement.operator.descriptor.rule is None:
        _require_tolerance(statement, outputs, layers)


def _require_tolerance(statement: Statement, outputs: Sequence[TensorSpec], layers: Sequence[ToleranceLayer]) -> None:
    """Whoever judges a floating output has to know what is allowed; optest does not guess it."""
    entry = statement.entry
    if "tolerance" in statement.doubtful or "skip" in entry or "expects_error" in entry:
        return
    stated = {layer.output for layer in layers if layer.tolerance.bounds_errors}
    for index, spec in enumerate(outputs):
        if spec.dtype.precision and spec.elements and stated.isdisjoint((None, f"output{index}")):
            what = f"output{index} of {statement.operator.name} is {spec.dtype}"
            message = f"{what}, and the operator has no rule for it, so a tolerance should be stated"
            in_plan = "tolerance: {rtol: 1e-3, atol: 1e-5} here or in defaults"
            hint = in_plan if statement.path else "--tolerance rtol=1e-3,..."
            place = statement.place("tolerance")
            statement.ledger.problem(place, message, f"{hint}, or a rule in the operator's descriptor")
            return


def with_signed_zeros(cases: Iterable[TestCase]) -> list[TestCase]:
    """The cases with ``--signed-zeros``: where an operator defines the sign of a zero, another one is wrong."""
    return [
        replace(case, tolerances=(*case.tolerances, _STRICT)) if case.descriptor.signed_zeros else case
        for case in cases
    ]


_STRICT = ToleranceLayer(layer=Layer.COMMAND_LINE, tolerance=Tolerance(signed_zeros="strict"), where="--signed-zeros")
