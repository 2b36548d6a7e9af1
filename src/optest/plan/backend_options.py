"""Options of backends in plans and flags (`backend_config`): their names, positions and unused ones."""

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
    """Note a problem for each `backend_config` section, in a plan or in --attr, of a backend that is not in `known`."""
    for context in contexts:
        with ledger.reading(context.source):
            for path in _option_paths(context.document) if context.document is not None else ():
                if path[-1] not in known:
                    ledger.unknown(path, UnknownName("backend", str(path[-1]), known))
    for name in contexts[-1].flags.get("backend_config", ()):
        if name not in known:
            ledger.unknown("--attr", UnknownName("backend", name, known))


def configured_backends(document: PlanDocument | None, request: CaseRequest) -> dict[str, str]:
    """Return the backends that a plan, its includes or --attr set options for, each with FILE:LINE of the first."""
    first_uses: dict[str, str] = {}
    for plan in document.family() if document is not None else ():
        for path in _option_paths(plan):
            first_uses.setdefault(str(path[-1]), plan.where(path))
    for key in request.attributes:
        head, _, rest = key.partition(".")
        if head == "backend_config" and rest:
            first_uses.setdefault(rest.partition(".")[0], "--attr")
    return first_uses


def unused_options(cases: Sequence[TestCase]) -> list[str]:
    """Return a note for each backend with options in cases that have no options for the backend that they run on."""
    # A section for another backend is usual in shared plans; without one for the own, its name may be misspelt.
    counts: Counter[tuple[str, str]] = Counter()
    for case in cases:
        if case.backend_config and case.backend.name not in case.backend_config:
            counts.update((name, case.backend.name) for name in case.backend_config)
    return [
        f"backend_config.{name} is not used by backend {running}: {count} case{'s' if count > 1 else ''}"
        for (name, running), count in counts.items()
    ]


def _option_paths(document: PlanDocument) -> Iterator[Path]:
    """Yield the path of each `backend_config.NAME` section in defaults, cases and product axes."""
    for path, part, combination in document.parts():
        for name in part.get("backend_config", {}):
            section = (*path, "backend_config", name)
            yield section if combination is None else combination[0].place(combination[1], section)


def foreign_options_hint(case: TestCase) -> str:
    """Return a hint if the case sets options of other backends only, else ""."""
    others = [name for name in case.backend_config if name != case.backend.name]
    if case.backend.name in case.backend_config or not others:
        return ""
    return f"backend_config sets options of {' and '.join(others)}, but the backend is {case.backend.name}"


def config_place(case: TestCase, path: Path, context: PlanContext, entry: Entry, problem: str) -> Place:
    """Return the position of the option that a driver's problem names, in the last layer with it or its backend."""
    if context.document is None:
        return ""
    name, keys = case.backend.name, keys_in(problem, case.backend.name)
    layers: list[tuple[Place, Entry]] = [(("defaults",), context.document.defaults), (path, entry), ("", context.flags)]
    sections = {place: layer["backend_config"].get(name) for place, layer in layers if "backend_config" in layer}
    setting = [place for place, section in sections.items() if keys and keys[0] in (section or ())]
    having = [place for place, section in sections.items() if place and section is not None]
    # The last layer decides, so its text is the one to correct.
    for place in (*reversed(setting), *reversed(having)):
        return place and (*place, "backend_config", name, *(keys if setting else ()))
    return path or ("defaults", "backend_config", name)


def keys_in(problem: str, backend: str) -> Path:
    """Return the keys that a driver's problem names: ``("inputs",)`` of ``backend_config.NAME.inputs[0] is …``."""
    # A driver knows no positions: it reports each problem as text that begins with the key.
    key = problem.partition(" ")[0].removeprefix(f"backend_config.{backend}")
    return tuple(key[1:].partition("[")[0].split(".")) if key.startswith(".") else ()
