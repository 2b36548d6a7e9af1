"""The dtypes of a case's inputs: what is stated, what follows from the operator, and what it is defined for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from optest.errors import UnknownName
from optest.plan.layers import Statement
from optest.plan.operator_lookup import KnownOperator
from optest.plan.problems import Place
from optest.plan.values import several
from optest.spec import DType, dtype


def input_dtypes(statement: Statement, present: Sequence[int]) -> tuple[DType, ...] | None:
    """A dtype for each input that is there, None if something is wrong."""
    operator = statement.operator
    given, place = statement.value_and_place("dtypes")
    found: tuple[DType, ...]
    if given is None:
        implied: dict[int, DType] = {}
        for name, text in statement.implied_dtypes().items():
            with suppress(UnknownName):  # a wrong name or dtype in the backend's options is the driver's to report
                side, index = operator.locate(name)
                if side == "input":
                    implied[index] = dtype(text)
        found = default_dtypes(operator, present, implied)
    elif isinstance(given, dict):
        by_index = _dtypes_by_index(statement, given, place)
        if by_index is None:
            return None
        found = default_dtypes(operator, present, by_index)
    elif "shapes" in statement.doubtful:
        return None
    elif len(given) == 1:
        found = _one_for_all(statement, given[0], present)
    elif len(given) == len(present):
        found = tuple(given)
    else:
        inputs = ", ".join(f"input{index}" for index in present)
        counts = "1 entry" if len(present) == 1 else f"1 entry or {len(present)}"
        message = f"dtypes has {len(given)} entries, but should have {counts} ({inputs})"
        is_own = place == (*statement.path, "dtypes") and statement.ledger.combination is None
        hint = several("dtypes", [each.name for each in given]) if is_own else ""
        statement.ledger.problem(place, message, hint)
        return None
    if not statement.doubtful.isdisjoint(("shapes", "dtypes")):
        return None
    names = tuple(each.name for each in found)
    if not operator.admits(names) and "expects_error" not in statement.entry:
        message = f"{operator.name} is not defined for ({', '.join(names)})"
        statement.ledger.problem(place, message, _defined_for(operator, names))
        return None
    return found


def _one_for_all(statement: Statement, one: DType, present: Sequence[int]) -> tuple[DType, ...]:
    """``one`` for every input; a float leaves integers and bool to indices, masks and whatever else has to have them.

    That is where a flag replaces the floats of a case that states others beside them, or where the operator is not
    defined for ``one`` alone, but for it beside others.
    """
    everywhere = (one,) * len(present)
    if not one.is_inexact or "expects_error" in statement.entry:
        return everywhere
    variants = statement.operator.descriptor.dtype_variants
    if variants and statement.operator.admits(tuple(each.name for each in everywhere)):
        return everywhere
    own = _own_dtypes(statement, present) if "dtypes" in statement.flags else None
    # A call of torch declares no dtypes: its integers and bool are those that the model gave it.
    is_torch_call = statement.operator.descriptor.category == "torch call"
    if own is not None and (any(each.is_inexact for each in own) or is_torch_call):
        return tuple(_in_place_of(each, one) for each in own)
    rows = ([dtype(name) for name in variant] for variant in variants if len(variant) == len(present))
    beside = (row for row in rows if {each for each in row if each.is_inexact} == {one})
    return tuple(next(beside, everywhere))


def _in_place_of(own: DType, one: DType) -> DType:
    """``one`` for a float, for complex numbers those of such parts; where there are none they stay as they are."""
    if own.is_complex and not one.is_complex:
        name = _OF_PARTS.get(one.name)
        return own if name is None else dtype(name)
    return one if own.is_inexact else own


_OF_PARTS = {"float32": "complex64", "float64": "complex128"}


def _own_dtypes(statement: Statement, present: Sequence[int]) -> tuple[DType, ...] | None:
    """What plan and defaults state for each input, None where they state none or one for all."""
    given, place = statement.value_and_place("dtypes", with_flags=False)
    if isinstance(given, dict):
        by_index = _dtypes_by_index(statement, given, place)
        return None if by_index is None else default_dtypes(statement.operator, present, by_index)
    return tuple(given) if given is not None and len(given) == len(present) > 1 else None


def _dtypes_by_index(statement: Statement, given: Mapping[str, DType], place: Place) -> dict[int, DType] | None:
    """The inputs' dtypes by index, None if a name is unknown or stated twice."""
    before = statement.ledger.noted
    found = {tensor: each for tensor, _, each in statement.by_tensor(given, place, "dtype")}
    if statement.ledger.noted > before:
        return None
    return {index: each for (side, index), each in found.items() if side == "input"}


def default_dtypes(operator: KnownOperator, present: Sequence[int], given: Mapping[int, DType]) -> tuple[DType, ...]:
    """The first variant that goes with the dtypes that are stated; without one, the first stated dtype for all."""
    last = max(present, default=-1)
    for variant in operator.descriptor.dtype_variants:
        if 1 < len(variant) <= last:
            continue
        row = [variant[index if len(variant) > 1 else 0] for index in present]
        if all(index not in given or given[index].name == name for index, name in zip(present, row, strict=True)):
            return tuple(dtype(name) for name in row)
    fallback = next(iter(given.values()), dtype("float32"))
    return tuple(given.get(index, fallback) for index in present)


def _defined_for(operator: KnownOperator, names: Sequence[str]) -> str:
    """What fits, and where one dtype was given to all inputs, how each is given its own."""
    variants = [each for each in operator.descriptor.dtype_variants if len(each) == len(names)]
    listed = f"defined for: {variants_in_words(variants or operator.descriptor.dtype_variants)}"
    others = [each for each in variants if names[0] in each and len(set(each)) > 1]
    if len(set(names)) > 1 or not others:
        return listed
    nearest = max(others, key=lambda each: each.count(names[0]))
    return f"one for each input fits: {', '.join(nearest)}; {listed}"


_Choices = tuple[tuple[str, ...], ...]
"""For each input the dtypes of which it may have any, whatever the others have."""


def variants_in_words(variants: Iterable[Sequence[str]]) -> str:
    """``float32|float16, int64|int32`` for all four combinations; what does not go together stands behind ``;``."""
    found: list[_Choices] = [tuple((name,) for name in variant) for variant in variants]
    for place in range(max(map(len, found), default=0)):
        found = _merged(found, place)
    return "; ".join(", ".join("|".join(choices) for choices in each) for each in found)


def _merged(rows: Iterable[_Choices], place: int) -> list[_Choices]:
    """With one entry for all that differ in this place alone."""
    choices: dict[tuple[object, ...], dict[str, None]] = {}
    others: dict[tuple[object, ...], _Choices] = {}
    for each in rows:
        alike = (len(each), each[:place], each[place + 1 :])
        others.setdefault(alike, each)
        choices.setdefault(alike, {}).update(dict.fromkeys(each[place] if place < len(each) else ()))
    return [
        (*each[:place], tuple(choices[alike]), *each[place + 1 :]) if place < len(each) else each
        for alike, each in others.items()
    ]
