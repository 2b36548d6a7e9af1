"""Which entry of a mapping answers which samples of an operator, and in which dtypes they are asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress

from optest.clib.library.binding import bind_case
from optest.clib.library.case_tensors import with_specs
from optest.clib.library.layouts import Gap
from optest.clib.library.mapping import LibraryMapping
from optest.clib.library.mapping_words import SAME
from optest.clib.library.operator_mapping import OperatorMapping
from optest.spec import Sample, TestCase, dtype

_USUAL = "float32"
Owned = Sequence[tuple[Sample, TestCase]]


def in_its_dtypes(
    own: Owned, mapping: LibraryMapping, lack: Callable[[TestCase], str | None]
) -> list[tuple[Sample, TestCase]]:
    """The samples of float32 in other dtypes, where functions are chosen by dtype and none is for float32, or tensors
    of theirs (such as indices) have others: most samples of the catalogue are of float32 and int64, and a library of
    doubles would be asked next to nothing."""
    alternatives = mapping.entries(own[0][1].descriptor)
    has_usual = any(_USUAL in entry.functions for entry in alternatives)
    if any(entry.function for entry in alternatives) or (
        has_usual and not any(entry.dtypes_of for entry in alternatives)
    ):
        return []
    found: dict[str, tuple[Sample, TestCase]] = {}
    for entry in alternatives:
        shared = _USUAL if has_usual else next(iter(entry.functions))
        for sample, case in own:
            dtypes = _dtypes_in(case, entry, shared)
            if dtypes is None or not case.outputs:
                continue
            retyped = {**sample.case, "dtypes": dtypes}
            typed = zip(case.inputs, dtypes, strict=True)
            other = with_specs(
                case, {each.name: dataclasses.replace(each.spec, dtype=dtype(name)) for each, name in typed}
            )
            if other is not None and lack(other) is None:
                found.setdefault(repr(retyped), (dataclasses.replace(sample, case=retyped), other))
    return list(found.values())


def _dtypes_in(case: TestCase, entry: OperatorMapping, shared: str) -> list[str] | None:
    """Those of the inputs as the function has them; None where they are that already, or are none of the usual."""
    given = [each.spec.dtype.name for each in case.inputs]
    if any(each.spec.dtype.name != _USUAL for each in case.inputs if each.name not in entry.dtypes_of):
        return None
    dtypes = [_as_taken(each.spec.dtype.name, entry.dtypes_of.get(each.name), shared) for each in case.inputs]
    return None if dtypes == given else dtypes


def _as_taken(own: str, allowed: Sequence[str] | None, shared: str) -> str:
    if allowed is None:
        return shared
    named = [shared if each == SAME else each for each in allowed]
    return own if own in named else named[0]


def own_by_entry(
    own: Owned, mapping: LibraryMapping, lack: Callable[[TestCase], str | None]
) -> list[tuple[OperatorMapping, Owned]]:
    """The operator's own samples by the function that answers them; those that none answers are left out."""
    alternatives = mapping.entries(own[0][1].descriptor)
    answered: list[list[tuple[Sample, TestCase]]] = [[] for _ in alternatives]
    for sample, case in own:
        if case.outputs and lack(case) is None:
            with suppress(Gap):  # of a configuration that cannot be used, which is told with every case
                answered[alternatives.index(bind_case(case, mapping).entry)].append((sample, case))
    return list(zip(alternatives, answered, strict=True))
