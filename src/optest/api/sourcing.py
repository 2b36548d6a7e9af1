"""Cases of a source that is no plan, such as torch's own samples, on the way that the cases of a plan take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from optest.errors import NothingSelected, UsageError
from optest.plan import PlanDocument, parse_dtypes
from optest.plan.from_samples import document_of
from optest.settings import Settings
from optest.sources import collected
from optest.spec import TestCase

__all__ = ["SourceDocument", "said_to_be_from", "source_documents"]

_OF_PLANS = ("plan", "shape", "attr", "generator")
"""Options that say what a source says itself."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceDocument:
    """The cases of one source as a plan, where they are from, and what has to be said of the choice."""

    plan: PlanDocument
    origin: str
    notes: tuple[str, ...]


def source_documents(settings: Settings) -> Sequence[SourceDocument]:
    """What ``--source`` asks for; ``--dtype`` narrows it.

    Raises:
        UsageError, UnknownName: for what is no source, and for options that contradict one.
        Unavailable: if a source needs what is not installed.
        NothingSelected: if it has no case of that.
    """
    for name in _OF_PLANS:
        if settings[name]:
            raise UsageError(f"--{name} stands beside --source, which makes its cases whole; drop one of them")
    stated = settings["dtype"]
    found = collected(
        settings["source"],
        dtypes=tuple(each.name for each in parse_dtypes(stated)) if stated else (),
        device=(settings["torch_device"] or "cpu").partition(":")[0],
        seed=settings["seed"] or 0,
    )
    empty = [note for each in found if not each.entries for note in each.notes]
    if empty:
        raise NothingSelected(f"--source {' '.join(settings['source'])} has no case: {'; '.join(empty)}")
    return [
        SourceDocument(plan=document_of(each.entries, each.origin), origin=each.origin, notes=each.notes)
        for each in found
    ]


def said_to_be_from(cases: Sequence[TestCase], origin: str) -> list[TestCase]:
    """The cases with a word for where they are from in the place of a file and line."""
    return [dataclasses.replace(case, where=origin, base_dir="") for case in cases]
