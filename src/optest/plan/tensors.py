"""Tensors of a case: shapes, layouts and dtypes of its inputs, and the outputs that follow from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product
from typing import Any, TypeAlias

from optest.errors import UnknownName, UsageError
from optest.plan.layers import Statement
from optest.plan.operator_lookup import KnownOperator, in_call_order
from optest.plan.problems import Place
from optest.plan.values import Layout, hint_for_list
from optest.spec import DType, TensorSpec, UnfitArguments, dtype, format_shape

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
        signature = statement.operator.descriptor.tensors
        # The inputs of a variadic parameter are needed only before the last one that is present.
        first_variadic = len(signature.inputs) - 1 if signature.is_variadic else len(every)
        missing = [
            x
            for x in every
            if x not in present and (x < last if x >= first_variadic else not signature.inputs[x].optional)
        ]
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
            statement.ledger.problem(place, no_such_output(statement.operator, index, len(inferred)), "remove it")
        elif layout.shape != inferred[index].shape:
            got, want = format_shape(layout.shape), format_shape(inferred[index].shape)
            statement.ledger.problem(place, f"the shape of output{index} is {got}, but {name} returns {want}")
    if "dtypes" in statement.doubtful:
        return
    for index, (declared, place) in _output_dtypes(statement).items():
        if index >= len(inferred):
            statement.ledger.problem(place, no_such_output(statement.operator, index, len(inferred)), "remove it")
        elif declared != inferred[index].dtype:
            want = inferred[index].dtype.name
            statement.ledger.problem(place, f"the dtype of output{index} is {declared}, but {name} returns {want}")


def no_such_output(operator: KnownOperator, index: int, count: int) -> str:
    """Return the message for an output that this case does not have, although the operator may have it."""
    outputs = "1 output" if count == 1 else f"{count} outputs"
    return f"there is no output{index}: {operator.name} returns {outputs} here"


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
    by_name, place = statement.planned_dtypes()
    if not isinstance(by_name, dict):
        return {}
    tensors = statement.by_tensor(by_name, place, "dtype")
    return {index: (x, here) for (side, index), here, x in tensors if side == "output"}


def input_dtypes(statement: Statement, present: Sequence[int]) -> tuple[DType, ...] | None:
    """Return a dtype for each input in `present`; note a problem and return None if one is wrong."""
    operator = statement.operator
    requested, place = statement.values.get("dtypes"), statement.place_of_value("dtypes")
    chosen: tuple[DType, ...]
    if requested is None:
        implied: dict[int, DType] = {}
        for name, text in statement.implied_dtypes().items():
            with suppress(UnknownName):  # a wrong name or dtype in the backend's options is the driver's to report
                side, index = operator.locate(name)
                if side == "input":
                    implied[index] = dtype(text)
        chosen = default_dtypes(operator, present, implied)
    elif isinstance(requested, dict):
        by_index = _dtypes_by_index(statement, requested, place)
        if by_index is None:
            return None
        chosen = default_dtypes(operator, present, by_index)
    elif "shapes" in statement.doubtful:
        # The number of inputs is unknown.
        return None
    elif len(requested) == 1:
        chosen = _one_for_all(statement, requested[0], present)
    elif len(requested) == len(present):
        chosen = tuple(requested)
    else:
        inputs = ", ".join(f"input{index}" for index in present)
        counts = "1 entry" if len(present) == 1 else f"1 entry or {len(present)}"
        message = f"dtypes has {len(requested)} entries, expected {counts} ({inputs})"
        # A rewritten entry helps only if this case wrote the list itself.
        in_case = place == (*statement.path, "dtypes") and statement.ledger.combination is None
        hint = hint_for_list("dtypes", [x.name for x in requested]) if in_case else ""
        statement.ledger.problem(place, message, hint)
        return None
    if not statement.doubtful.isdisjoint(("shapes", "dtypes")):
        return None
    names = tuple(x.name for x in chosen)
    if not operator.supports(names) and "expects_error" not in statement.entry:
        message = f"{operator.name} is not defined for ({', '.join(names)})"
        statement.ledger.problem(place, message, _supported_dtypes_hint(operator, names))
        return None
    return chosen


def _one_for_all(statement: Statement, one: DType, present: Sequence[int]) -> tuple[DType, ...]:
    """Return `one` for every input, but a float leaves the integer and bool inputs of some calls as they are."""
    # Indices and masks: if a flag replaces the floats of a case, or if the operator needs other dtypes next to `one`.
    everywhere = (one,) * len(present)
    if not one.is_inexact or "expects_error" in statement.entry:
        return everywhere
    variants = statement.operator.descriptor.dtype_variants
    if variants and statement.operator.supports(tuple(x.name for x in everywhere)):
        return everywhere
    planned = _planned_dtypes(statement, present) if "dtypes" in statement.flags else None
    # A torch call declares no dtypes: its integers and bool are those that the model passed.
    is_torch_call = statement.operator.descriptor.category == "torch call"
    if planned is not None and (any(x.is_inexact for x in planned) or is_torch_call):
        return tuple(_replace_float(x, one) for x in planned)
    rows = ([dtype(name) for name in variant] for variant in variants if len(variant) == len(present))
    mixed = (row for row in rows if {x for x in row if x.is_inexact} == {one})
    return tuple(next(mixed, everywhere))


def _replace_float(old: DType, one: DType) -> DType:
    """Return `one` if `old` is a float, the complex dtype of such parts (if it exists) if complex, else `old`."""
    if old.is_complex and not one.is_complex:
        name = _COMPLEX_OF_PART.get(one.name)
        return old if name is None else dtype(name)
    return one if old.is_inexact else old


_COMPLEX_OF_PART = {"float32": "complex64", "float64": "complex128"}


def _planned_dtypes(statement: Statement, present: Sequence[int]) -> tuple[DType, ...] | None:
    """Return the dtype that the plan sets for each input.

    Return None if it sets none, a single one for all, or wrong ones, which become problems. Inputs that a mapping omits
    get the default dtype.
    """
    planned, place = statement.planned_dtypes()
    if isinstance(planned, dict):
        by_index = _dtypes_by_index(statement, planned, place)
        return None if by_index is None else default_dtypes(statement.operator, present, by_index)
    return tuple(planned) if planned is not None and len(planned) == len(present) > 1 else None


def _dtypes_by_index(statement: Statement, by_name: Mapping[str, DType], place: Place) -> dict[int, DType] | None:
    """Return the inputs' dtypes by index; None, with a problem noted, if a name is unknown or set twice."""
    before = statement.ledger.noted
    by_tensor = {tensor: x for tensor, _, x in statement.by_tensor(by_name, place, "dtype")}
    if statement.ledger.noted > before:
        return None
    return {index: x for (side, index), x in by_tensor.items() if side == "input"}


def default_dtypes(operator: KnownOperator, present: Sequence[int], chosen: Mapping[int, DType]) -> tuple[DType, ...]:
    """Return the first dtype variant that agrees with `chosen`, else `chosen`, completed by its first or float32."""
    last = max(present, default=-1)
    for variant in operator.descriptor.dtype_variants:
        # A variant for fewer inputs.
        if 1 < len(variant) <= last:
            continue
        row = [variant[index if len(variant) > 1 else 0] for index in present]
        if all(index not in chosen or chosen[index].name == name for index, name in zip(present, row, strict=True)):
            return tuple(dtype(name) for name in row)
    # No variant agrees: the operator has none, or the caller reports the mismatch.
    fallback = next(iter(chosen.values()), dtype("float32"))
    return tuple(chosen.get(index, fallback) for index in present)


def _supported_dtypes_hint(operator: KnownOperator, names: Sequence[str]) -> str:
    """Return the supported variants, and for one dtype for all inputs the closest variant that contains it."""
    variants = [x for x in operator.descriptor.dtype_variants if len(x) == len(names)]
    listed = f"supported: {variants_in_words(variants or operator.descriptor.dtype_variants)}"
    others = [x for x in variants if names[0] in x and len(set(x)) > 1]
    if len(set(names)) > 1 or not others:
        return listed
    nearest = max(others, key=lambda x: x.count(names[0]))
    return f"write one for each input, for example {', '.join(nearest)}; {listed}"


# For each input its possible dtypes, independent of the other inputs.
_Choices = tuple[tuple[str, ...], ...]


def variants_in_words(variants: Iterable[Sequence[str]]) -> str:
    """Return `float32|float16, int64|int32` for all four combinations; incompatible ones are separated by `;`."""
    rows: list[_Choices] = [tuple((name,) for name in variant) for variant in variants]
    for index in range(max(map(len, rows), default=0)):
        rows = _merge_rows(rows, index)
    return "; ".join(", ".join("|".join(choices) for choices in row) for row in rows)


def _merge_rows(rows: Iterable[_Choices], index: int) -> list[_Choices]:
    """Merge the rows that differ only at `index`, with the union of their choices there."""
    choices: dict[tuple[object, ...], dict[str, None]] = {}
    first: dict[tuple[object, ...], _Choices] = {}
    for row in rows:
        rest = (len(row), row[:index], row[index + 1 :])
        first.setdefault(rest, row)
        choices.setdefault(rest, {}).update(dict.fromkeys(row[index] if index < len(row) else ()))
    return [
        (*row[:index], tuple(choices[rest]), *row[index + 1 :]) if index < len(row) else row
        for rest, row in first.items()
    ]
