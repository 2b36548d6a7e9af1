"""Dtypes of a case's inputs: explicit ones, those that follow from the operator, and those that it supports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from optest.errors import UnknownName
from optest.plan.layers import Statement
from optest.plan.operator_lookup import KnownOperator
from optest.plan.problems import Place
from optest.plan.values import hint_for_list
from optest.spec import DType, dtype


def input_dtypes(statement: Statement, present: Sequence[int]) -> tuple[DType, ...] | None:
    """Return a dtype for each input in `present`; note a problem and return None if one is wrong."""
    operator = statement.operator
    requested, place = statement.value_and_place("dtypes")
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
    """Return the dtype that the plan sets for each input, None if it sets none or a single one for all."""
    planned, place = statement.value_and_place("dtypes", with_flags=False)
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
