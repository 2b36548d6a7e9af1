"""The tensors of a case: shapes and layouts of its inputs, and the outputs that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice, product
from typing import Any, TypeAlias

from optest.errors import UsageError
from optest.plan.dtypes import default_dtypes, input_dtypes
from optest.plan.layers import Statement
from optest.plan.operator_lookup import KnownOperator, at_their_places
from optest.plan.problems import Place
from optest.plan.values import Layout
from optest.spec import DType, TensorSpec, UnfitArguments, format_shape

Layouts: TypeAlias = Mapping[tuple[str, int], tuple[Layout, Place]]
"""By side and index, ``("input", 0)``, each with where it was written."""


def read_layouts(statement: Statement) -> Layouts:
    """Layouts by side and index; the command line's shapes replace the plan's of the same tensor.

    For elementwise operators a required input without a shape of its own takes that of the first.
    """
    shapes: Mapping[str, Layout] = statement.entry.get("shapes", {})
    in_entry = statement.by_tensor(shapes, (*statement.path, "shapes"), "shape")
    found = {tensor: (layout, place) for tensor, place, layout in in_entry}
    for name, layout in statement.flags.get("shapes", {}).items():
        tensor = statement.locate(name, "--shape")
        if tensor is not None:
            found[tensor] = layout, "--shape"
    first = found.get(("input", 0))
    if first is not None and statement.operator.descriptor.category in ("elementwise", "activation"):
        for index in range(1, statement.operator.required_inputs):
            found.setdefault(("input", index), (Layout(first[0].shape), statement.place("shapes")))
    return found


def input_specs(statement: Statement, layouts: Layouts) -> dict[int, TensorSpec] | None:
    """Specs of the inputs that are stated, by their places in the call; None if a shape is wrong.

    Where a dtype is wrong, those that could stand.
    """
    present = sorted(index for side, index in layouts if side == "input")
    if "shapes" not in statement.doubtful:
        missing = _missing(statement, present)
        if missing:
            _report_missing(statement, layouts, missing)
            statement.doubtful.add("shapes")
    dtypes = statement.once(("dtypes", *present), _DECIDE_DTYPES, lambda _: input_dtypes(statement, present))
    if dtypes is None:
        statement.doubtful.add("dtypes")
        dtypes = default_dtypes(statement.operator, present, {})
    specs: dict[int, TensorSpec] = {}
    for index, each in zip(present, dtypes, strict=True):
        (shape, strides, offset), place = layouts["input", index]
        try:
            specs[index] = TensorSpec(dtype=each, shape=shape, strides=strides, offset=offset)
        except ValueError as error:
            statement.ledger.problem(place, str(error))
            statement.doubtful.add("shapes")
    return None if "shapes" in statement.doubtful else specs


_DECIDE_DTYPES = ("dtypes", "backend_config", "expects_error")


def _missing(statement: Statement, present: Sequence[int]) -> list[int]:
    last = max(present, default=-1)
    if last + 1 == len(present) >= statement.operator.required_inputs:
        return []
    every = range(max(len(statement.operator.descriptor.tensors.inputs), last + 1))
    return [index for index in every if index not in present and _is_needed(statement.operator, index, last)]


def _report_missing(statement: Statement, layouts: Layouts, missing: Sequence[int]) -> None:
    """Say what is missing, unless a misspelt name says so already."""
    shapes = (*statement.entry.get("shapes", ()), *statement.flags.get("shapes", ()))
    if not all(statement.operator.knows(name) for name in shapes):
        return
    signature = statement.operator.descriptor.tensors
    listed = ", ".join(f"input{index} ({signature.input_name(index)})" for index in missing)
    given = {index: layout.shape for (side, index), (layout, _) in layouts.items() if side == "input"}
    shown = _example(statement, given, missing)
    if not shown:
        hint = ""
    elif statement.path:
        hint = "shapes: {" + ", ".join(f"input{index}: {list(shape)}" for index, shape in shown.items()) + "}"
    else:
        hint = "for example " + " ".join(f"--shape input{index}={format_shape(each)}" for index, each in shown.items())
    place = statement.place("shapes")
    statement.ledger.problem(place, f"{statement.operator.name} needs a shape of {listed}", hint)


_SIMPLE_SHAPES = ((2, 3), (3, 3), (4,), (), (2, 2, 2), (2, 2, 2, 2))


def _example(
    statement: Statement, given: Mapping[int, tuple[int, ...]], missing: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Shapes that the operator takes, with those that are stated; {} if no simple ones do."""
    operator = statement.operator
    every = sorted({*given, *missing})
    own = dict.fromkeys((*given.values(), *(shape[::-1] for shape in given.values()), *_SIMPLE_SHAPES))
    try:
        attributes = operator.descriptor.bind(
            {**statement.entry.get("attributes", {}), **statement.flags.get("attributes", {})}
        )
    except (UnfitArguments, UsageError):
        return {}  # what shapes fit is not known without them
    dtypes = dict(zip(every, default_dtypes(operator, every, {}), strict=True))
    for chosen in islice(product(own, repeat=len(missing)), _MOST_TRIED):
        shapes = {**dict(zip(missing, chosen, strict=True)), **given}
        specs = {index: TensorSpec(dtype=dtypes[index], shape=shapes[index]) for index in every}
        with suppress(UnfitArguments, ValueError, TypeError, LookupError, ArithmeticError):
            if operator.infer is not None:
                operator.infer(at_their_places(operator.descriptor.tensors, specs), attributes)
            return {index: shapes[index] for index in every}
    return {}


_MOST_TRIED = 1000


def _is_needed(operator: KnownOperator, index: int, last: int) -> bool:
    """Whether an input has to be stated: a required one, or a variadic one that others follow."""
    signature = operator.descriptor.tensors
    if signature.is_variadic and index >= len(signature.inputs) - 1:
        return index < last
    return not signature.inputs[index].optional


def output_specs(
    statement: Statement, layouts: Layouts, inputs: Mapping[int, TensorSpec], attributes: Mapping[str, Any]
) -> tuple[TensorSpec, ...]:
    """What the operator's inference says; what the plan declares has to agree with it, or takes its place.

    A case that expects an error may have shapes that do not fit; its outputs are then not known.
    """
    operator = statement.operator
    if operator.infer is None:
        return _declared_outputs(statement, layouts, inputs)
    try:
        inferred = tuple(operator.infer(at_their_places(operator.descriptor.tensors, inputs), attributes))
    except UnfitArguments as error:
        _misfit(statement, str(error))
        return ()
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        _misfit(statement, f"these inputs do not fit {operator.name}: {type(error).__name__}: {error}")
        return ()
    _compare_outputs(statement, layouts, inferred)
    return inferred


def _misfit(statement: Statement, message: str) -> None:
    if "expects_error" not in statement.entry:
        statement.ledger.problem(statement.place("shapes"), message)


def _compare_outputs(statement: Statement, layouts: Layouts, inferred: Sequence[TensorSpec]) -> None:
    name = statement.operator.name
    for (side, index), (layout, place) in layouts.items():
        if side != "output":
            continue
        if index >= len(inferred):
            statement.ledger.problem(place, no_such_output(statement, index, len(inferred)))
        elif layout.shape != inferred[index].shape:
            got, want = format_shape(layout.shape), format_shape(inferred[index].shape)
            statement.ledger.problem(place, f"the shape of output{index} is {got}, but {name} makes {want}")
    if "dtypes" in statement.doubtful:
        return
    for index, (declared, place) in _output_dtypes(statement).items():
        if index >= len(inferred):
            statement.ledger.problem(place, no_such_output(statement, index, len(inferred)))
        elif declared != inferred[index].dtype:
            want = inferred[index].dtype.name
            statement.ledger.problem(place, f"the dtype of output{index} is {declared}, but {name} makes {want}")


def no_such_output(statement: Statement, index: int, count: int) -> str:
    """What is wrong with a statement about an output that this case has not, though the operator may have it."""
    outputs = "1 output" if count == 1 else f"{count} outputs"
    return f"there is no output{index}: {statement.operator.name} makes {outputs} here"


def _declared_outputs(
    statement: Statement, layouts: Layouts, inputs: Mapping[int, TensorSpec]
) -> tuple[TensorSpec, ...]:
    """The outputs of an operator without inference: all of them are declared, or none."""
    declared = {index: layout for (side, index), (layout, _) in layouts.items() if side == "output"}
    if "dtypes" in statement.doubtful:
        return ()
    stated = _output_dtypes(statement)
    if not declared and not stated:
        return ()
    dtypes = {spec.dtype for spec in inputs.values()}
    common = dtypes.pop() if len(dtypes) == 1 else None
    specs = []
    signature = statement.operator.descriptor.tensors
    highest = max((*declared, *stated)) + 1
    count = highest if signature.variadic_output else max(highest, len(signature.outputs) - signature.optional_outputs)
    for index in range(count):
        layout = declared.get(index)
        each = stated[index][0] if index in stated else common
        if layout is None:
            place = statement.place("shapes")
            statement.ledger.problem(
                place, f"the shape of output{index} is missing, but should be stated with the rest"
            )
        elif each is None:
            place = statement.place("dtypes")
            hint = f"dtypes: {{..., output{index}: float32}}"
            statement.ledger.problem(place, f"the dtype of output{index} is missing, and the inputs differ", hint)
        else:
            specs.append(TensorSpec(dtype=each, shape=layout.shape))
    return tuple(specs)


def _output_dtypes(statement: Statement) -> dict[int, tuple[DType, Place]]:
    """The dtypes that the plan states for outputs, and where; ``--dtype`` speaks of inputs alone."""
    stated, place = statement.value_and_place("dtypes", with_flags=False)
    if not isinstance(stated, dict):
        return {}
    return {
        index: (each, here)
        for (side, index), here, each in statement.by_tensor(stated, place, "dtype")
        if side == "output"
    }
