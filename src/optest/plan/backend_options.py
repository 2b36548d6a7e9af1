"""Options of backends that plans and flags state: of which backend, where, and which of them nobody reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from optest.errors import UnknownName
from optest.plan.layers import Entry, PlanContext
from optest.plan.problems import Ledger, Place
from optest.plan.request import CaseRequest
from optest.plan.yaml_source import Path
from optest.spec import TestCase

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument


def check_backend_names(contexts: Sequence[PlanContext], known: Collection[str], ledger: Ledger) -> None:
    """Options are of backends that exist."""
    for context in contexts:
        with ledger.reading(context.source):
            for place in _option_places(context.document) if context.document is not None else ():
                if place[-1] not in known:
                    ledger.unknown(place, UnknownName("backend", str(place[-1]), known))
    for name in contexts[-1].flags.get("backend_config", ()):
        if name not in known:
            ledger.unknown("--attr", UnknownName("backend", name, known))


def configured_backends(document: PlanDocument | None, request: CaseRequest) -> dict[str, str]:
    """The backends that a plan with its includes, or ``--attr``, states options of, each with where it first does."""
    found: dict[str, str] = {}
    for each in document.family() if document is not None else ():
        for place in _option_places(each):
            found.setdefault(str(place[-1]), each.where(place))
    for key in request.attributes:
        head, _, rest = key.partition(".")
        if head == "backend_config" and rest:
            found.setdefault(rest.partition(".")[0], "--attr")
    return found


def unused_options(cases: Sequence[TestCase]) -> list[str]:
    """A note for every backend that cases state options of, none of them being for the backend that they run on."""
    counts: Counter[tuple[str, str]] = Counter()
    for case in cases:
        if case.backend_config and case.backend.name not in case.backend_config:
            counts.update((name, case.backend.name) for name in case.backend_config)
    return [
        f"backend_config.{name} is not used by backend {running}: {count} case{'s' if count > 1 else ''}"
        for (name, running), count in counts.items()
    ]


def _option_places(document: PlanDocument) -> Iterator[Path]:
    """Every place that names a backend to state options of it."""
    for path, part, combination in document.parts():
        for name in part.get("backend_config", {}):
            place = (*path, "backend_config", name)
            yield place if combination is None else combination[0].place(combination[1], place)


def options_of_others(case: TestCase) -> str:
    """A hint that the options are those of another backend."""
    others = [name for name in case.backend_config if name != case.backend.name]
    if case.backend.name in case.backend_config or not others:
        return ""
    return f"backend_config states options of {' and '.join(others)}, but the backend is {case.backend.name}"


def config_place(case: TestCase, path: Path, context: PlanContext, entry: Entry, problem: str) -> Place:
    """Return the position of the option that a driver's problem names: in the last layer that sets it, or has others.

    ``entry`` is the content of the case. On the command line it is an option of the backend or ``--attr``.
    """
    if context.document is None:
        return ""
    name, keys = case.backend.name, keys_in(problem, case.backend.name)
    layers: list[tuple[Place, Entry]] = [(("defaults",), context.document.defaults), (path, entry), ("", context.flags)]
    sections = {place: layer["backend_config"].get(name) for place, layer in layers if "backend_config" in layer}
    setting = [place for place, section in sections.items() if keys and keys[0] in (section or ())]
    for place in (*reversed(setting), *(each for each in reversed(sections) if each and sections[each] is not None)):
        return place and (*place, "backend_config", name, *(keys if setting else ()))
    return path or ("defaults", "backend_config", name)


def keys_in(problem: str, backend: str) -> Path:
    """Return the keys that a driver's problem names: ``("inputs",)`` of ``backend_config.NAME.inputs[0] is …``."""
    key = problem.partition(" ")[0].removeprefix(f"backend_config.{backend}")
    return tuple(key[1:].partition("[")[0].split(".")) if key.startswith(".") else ()
