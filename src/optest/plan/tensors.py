"""Tensors of a case: shapes and layouts of its inputs, and the outputs that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice, product
from typing import Any, TypeAlias

from optest.errors import UsageError
from optest.plan.dtypes import default_dtypes, input_dtypes
from optest.plan.layers import Statement
from optest.plan.operator_lookup import KnownOperator, in_call_order
from optest.plan.problems import Place
from optest.plan.values import Layout
from optest.spec import DType, TensorSpec, UnfitArguments, format_shape

# By side and index, ``("input", 0)``, each with where it is written.
Layouts: TypeAlias = Mapping[tuple[str, int], tuple[Layout, Place]]


def read_layouts(statement: Statement) -> Layouts:
    """Return the layouts by side and index; shapes of the command line replace the plan's for the same tensor."""
    shapes: Mapping[str, Layout] = statement.entry.get("shapes", {})
    in_entry = statement.by_tensor(shapes, (*statement.path, "shapes"), "shape")
    layouts = {tensor: (layout, place) for tensor, place, layout in in_entry}
    for name, layout in statement.flags.get("shapes", {}).items():
        tensor = statement.locate(name, "--shape")
        if tensor is not None:
            layouts[tensor] = layout, "--shape"
    # Elementwise operators need one shape only: other required inputs have the same.
    first = layouts.get(("input", 0))
    if first is not None and statement.operator.descriptor.category in ("elementwise", "activation"):
        for index in range(1, statement.operator.required_inputs):
            layouts.setdefault(("input", index), (Layout(first[0].shape), statement.place("shapes")))
    return layouts


def input_specs(statement: Statement, layouts: Layouts) -> dict[int, TensorSpec] | None:
    """Return the specs of the case's inputs by index; note a problem and return None if a shape is missing or wrong."""
    present = sorted(index for side, index in layouts if side == "input")
    if "shapes" not in statement.doubtful:
        last = max(present, default=-1)
        # Nearly all cases have their inputs, and a product has many cases.
        is_complete = last + 1 == len(present) >= statement.operator.required_inputs
        every = range(0 if is_complete else max(len(statement.operator.descriptor.tensors.inputs), last + 1))
        missing = [x for x in every if x not in present and _is_needed(statement.operator, x, last)]
        if missing:
            _note_missing(statement, layouts, missing)
            statement.doubtful.add("shapes")
    dtypes = statement.shared(("dtypes", *present), _DECIDE_DTYPES, lambda _: input_dtypes(statement, present))
    if dtypes is None:
        statement.doubtful.add("dtypes")
        # With possible dtypes the layouts can still be checked.
        dtypes = default_dtypes(statement.operator, present, {})
    specs: dict[int, TensorSpec] = {}
    for index, chosen in zip(present, dtypes, strict=True):
        (shape, strides, offset), place = layouts["input", index]
        try:
            specs[index] = TensorSpec(dtype=chosen, shape=shape, strides=strides, offset=offset)
        except ValueError as error:
            statement.ledger.problem(place, str(error))
            statement.doubtful.add("shapes")
    return None if "shapes" in statement.doubtful else specs


# A backend's options may imply dtypes, and a refused call may have any.
_DECIDE_DTYPES = ("dtypes", "backend_config", "expects_error")


def _note_missing(statement: Statement, layouts: Layouts, missing: Sequence[int]) -> None:
    """Note a problem that names the missing shapes, with an example of shapes that the operator accepts."""
    shapes = (*statement.entry.get("shapes", ()), *statement.flags.get("shapes", ()))
    if not all(statement.operator.knows(name) for name in shapes):
        # The misspelt name, which is reported, may be the missing one.
        return
    signature = statement.operator.descriptor.tensors
    listed = ", ".join(f"input{index} ({signature.input_name(index)})" for index in missing)
    present = {index: layout.shape for (side, index), (layout, _) in layouts.items() if side == "input"}
    example = _example_shapes(statement, present, missing)
    if not example:
        hint = ""
    elif statement.path:
        hint = "shapes: {" + ", ".join(f"input{index}: {list(shape)}" for index, shape in example.items()) + "}"
    else:
        hint = "for example " + " ".join(f"--shape input{index}={format_shape(x)}" for index, x in example.items())
    place = statement.place("shapes")
    statement.ledger.problem(place, f"{statement.operator.name} needs a shape of {listed}", hint)


_SIMPLE_SHAPES = ((2, 3), (3, 3), (4,), (), (2, 2, 2), (2, 2, 2, 2))
_MOST_TRIED = 1000


def _example_shapes(
    statement: Statement, present: Mapping[int, tuple[int, ...]], missing: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    """Return input shapes that the operator accepts, with those in ``present``; {} if no simple ones fit."""
    operator = statement.operator
    every = sorted({*present, *missing})
    # The shapes of the other inputs and their transposes fit most often.
    shapes = (*present.values(), *(shape[::-1] for shape in present.values()), *_SIMPLE_SHAPES)
    candidates = dict.fromkeys(shapes)
    try:
        attributes = operator.descriptor.bind(
            {**statement.entry.get("attributes", {}), **statement.flags.get("attributes", {})}
        )
    except (UnfitArguments, UsageError):
        # The shapes that fit depend on the attributes.
        return {}
    dtypes = dict(zip(every, default_dtypes(operator, every, {}), strict=True))
    for chosen in islice(product(candidates, repeat=len(missing)), _MOST_TRIED):
        by_index = {**dict(zip(missing, chosen, strict=True)), **present}
        specs = {index: TensorSpec(dtype=dtypes[index], shape=by_index[index]) for index in every}
        with suppress(UnfitArguments, ValueError, TypeError, LookupError, ArithmeticError):
            if operator.infer is not None:
                operator.infer(in_call_order(operator.descriptor.tensors, specs), attributes)
            return {index: by_index[index] for index in every}
    return {}


def _is_needed(operator: KnownOperator, index: int, last: int) -> bool:
    """Return whether the case needs input ``index``: a required one, or a variadic one before the ``last``."""
    signature = operator.descriptor.tensors
    if signature.is_variadic and index >= len(signature.inputs) - 1:
        return index < last
    return not signature.inputs[index].optional


def output_specs(
    statement: Statement, layouts: Layouts, inputs: Mapping[int, TensorSpec], attributes: Mapping[str, Any]
) -> tuple[TensorSpec, ...]:
    """Return the inferred outputs, checked against declared ones, which replace them without inference; () if unfit."""
    operator = statement.operator
    if operator.infer is None:
        return _declared_outputs(statement, layouts, inputs)
    try:
        inferred = tuple(operator.infer(in_call_order(operator.descriptor.tensors, inputs), attributes))
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        message = str(error)
        if not isinstance(error, UnfitArguments):
            # Inference is written for valid shapes: it may also fail with an ordinary error for others.
            message = f"these inputs do not fit {operator.name}: {type(error).__name__}: {error}"
        if "expects_error" not in statement.entry:
            statement.ledger.problem(statement.place("shapes"), message)
        return ()
    _compare_outputs(statement, layouts, inferred)
    return inferred


def _compare_outputs(statement: Statement, layouts: Layouts, inferred: Sequence[TensorSpec]) -> None:
    """Note a problem for each declared shape or dtype of an output that differs from the inferred one."""
    name = statement.operator.name
    for (side, index), (layout, place) in layouts.items():
        if side != "output":
            continue
        if index >= len(inferred):
            statement.ledger.problem(place, no_such_output(statement, index, len(inferred)), "remove it")
        elif layout.shape != inferred[index].shape:
            got, want = format_shape(layout.shape), format_shape(inferred[index].shape)
            statement.ledger.problem(place, f"the shape of output{index} is {got}, but {name} returns {want}")
    if "dtypes" in statement.doubtful:
        return
    for index, (declared, place) in _output_dtypes(statement).items():
        if index >= len(inferred):
            statement.ledger.problem(place, no_such_output(statement, index, len(inferred)), "remove it")
        elif declared != inferred[index].dtype:
            want = inferred[index].dtype.name
            statement.ledger.problem(place, f"the dtype of output{index} is {declared}, but {name} returns {want}")


def no_such_output(statement: Statement, index: int, count: int) -> str:
    """Return the message for an output that this case does not have, although the operator may have it."""
    outputs = "1 output" if count == 1 else f"{count} outputs"
    return f"there is no output{index}: {statement.operator.name} returns {outputs} here"


def _declared_outputs(
    statement: Statement, layouts: Layouts, inputs: Mapping[int, TensorSpec]
) -> tuple[TensorSpec, ...]:
    """Return the declared outputs of an operator without inference; () if none is declared; note a problem for gaps."""
    declared = {index: layout for (side, index), (layout, _) in layouts.items() if side == "output"}
    if "dtypes" in statement.doubtful:
        return ()
    output_dtypes = _output_dtypes(statement)
    if not declared and not output_dtypes:
        return ()
    dtypes = {spec.dtype for spec in inputs.values()}
    common = dtypes.pop() if len(dtypes) == 1 else None
    specs = []
    signature = statement.operator.descriptor.tensors
    highest = max((*declared, *output_dtypes)) + 1
    count = highest if signature.variadic_output else max(highest, len(signature.outputs) - signature.optional_outputs)
    for index in range(count):
        layout = declared.get(index)
        chosen = output_dtypes[index][0] if index in output_dtypes else common
        if layout is None:
            message = f"the shape of output{index} is missing, but the operator cannot infer it"
            hint = f"shapes: {{..., output{index}: [2, 3]}}"
            statement.ledger.problem(statement.place("shapes"), message, hint)
        elif chosen is None:
            place = statement.place("dtypes")
            hint = f"dtypes: {{..., output{index}: float32}}"
            statement.ledger.problem(place, f"the dtype of output{index} is missing, and the inputs differ", hint)
        else:
            specs.append(TensorSpec(dtype=chosen, shape=layout.shape))
    return tuple(specs)


def _output_dtypes(statement: Statement) -> dict[int, tuple[DType, Place]]:
    """Return the dtypes of outputs in the plan, each with its position; ``--dtype`` is for inputs only."""
    by_name, place = statement.value_and_place("dtypes", with_flags=False)
    if not isinstance(by_name, dict):
        return {}
    tensors = statement.by_tensor(by_name, place, "dtype")
    return {index: (x, here) for (side, index), here, x in tensors if side == "output"}
