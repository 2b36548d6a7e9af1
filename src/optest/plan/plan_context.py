"""What is the same for every case of a plan: who is asked, the defaults, and what the flags state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optest.errors import UnknownName, UsageError
from optest.plan.fills import FillCheck
from optest.plan.layers import FLAGS, Entry
from optest.plan.problems import Ledger, Place
from optest.plan.request import CaseRequest
from optest.plan.source import Source
from optest.plan.untrusted import allowed_folders
from optest.plan.values import Layout, ToleranceChoice, read_generator
from optest.spec import BackendTarget

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument

__all__ = ["PlanContext", "contexts_of"]


@dataclass(slots=True, kw_only=True)
class PlanContext:
    """What is the same for every case of one plan, or for the cases of flags alone."""

    document: PlanDocument | None
    """The plan that the cases stand in; None for cases made of flags alone."""
    request: CaseRequest
    target: BackendTarget
    is_target_known: bool
    flags: Entry
    """What the command line states, as a case of a plan would."""
    allowed_folders: tuple[str, ...]
    """Where the paths of an untrusted plan may lead; () for everywhere."""
    origins: Mapping[str, str]
    """Where the defaults, the seed and the backend were written."""
    ledger: Ledger
    fills: FillCheck
    dtypes_of: Callable[[Mapping[str, Any]], Mapping[str, str]]
    """Dtypes by tensor that the backend's options state."""
    default_timeout_s: float | None
    defaults: Entry = field(init=False)
    base_dir: str = field(init=False)
    source: Source | None = field(init=False)
    seed: int = field(init=False)
    has_unread: bool = field(init=False)
    """Whether anything of the plan could not be read."""

    def __post_init__(self) -> None:
        document = self.document
        self.defaults = document.defaults if document is not None else {}
        self.base_dir = document.folder() if document is not None else ""
        self.source = document.source if document is not None else None
        self.seed = document.seed if document is not None else 0
        self.has_unread = document is not None and document.has_unread


def contexts_of(
    document: PlanDocument | None,
    request: CaseRequest,
    target_of: Callable[[str, str | None], BackendTarget],
    fills: FillCheck,
    dtypes_of: Callable[[Mapping[str, Any]], Mapping[str, str]],
    default_timeout_s: float | None,
) -> list[PlanContext]:
    """The context of the cases of each plan: those that are included, then the one that was asked for."""
    ledger = fills.ledger
    flags = _flags_of(request, ledger)
    with ledger.reading(document.source if document is not None else None):
        target = _target(document, request, ledger, target_of)
    for plan in document.family()[:-1] if document is not None else ():
        _require_same_target(plan, document, request, ledger)
    folders = allowed_folders(document, flags) if request.untrusted else ()
    return [
        PlanContext(
            document=plan,
            request=request,
            target=target or BackendTarget(name="unknown"),
            is_target_known=target is not None,
            flags=flags,
            allowed_folders=folders,
            origins=_default_origins(plan, document),
            ledger=ledger,
            fills=fills,
            dtypes_of=dtypes_of,
            default_timeout_s=default_timeout_s,
        )
        for plan in (document.family() if document is not None else [None])
    ]


def _flags_of(request: CaseRequest, ledger: Ledger) -> dict[str, Any]:
    """The flags as a case of a plan would state them."""
    attributes, config = _split_attributes(request, ledger)
    generator, tolerance = request.generator, request.tolerance
    stated = {
        "dtypes": request.dtypes or None,
        "shapes": {name: Layout(shape) for name, shape in request.shapes.items()} or None,
        "attributes": attributes or None,
        "backend_config": config or None,
        "generator": read_generator(generator) if generator else None,
        "reference": request.reference,
        "tolerance": ToleranceChoice(every=tolerance) if tolerance is not None else None,
        "seed": request.seed,
        "timeout": request.timeout_s,
        "retries": request.retries,
    }
    return {key: value for key, value in stated.items() if value is not None}


def _split_attributes(request: CaseRequest, ledger: Ledger) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Part the flags' attributes from those that go into ``backend_config``."""
    attributes: dict[str, Any] = {}
    config: dict[str, dict[str, Any]] = {}
    for key, value in request.attributes.items():
        head, *steps = key.split(".")
        if head != "backend_config":
            attributes[key] = value
        elif len(steps) < 2 or not all(steps):
            hint = "for example --attr backend_config.ascend.workdir=build"
            ledger.problem("--attr", f"{key} should name a backend and a key", hint)
        else:
            _set_deeply(config, steps, value)
    return attributes, config


def _set_deeply(target: dict[str, Any], steps: Sequence[str], value: Any) -> None:
    for step in steps[:-1]:
        found = target.setdefault(step, {})
        if not isinstance(found, dict):
            found = target[step] = {}
        target = found
    target[steps[-1]] = value


def _target(
    document: PlanDocument | None,
    request: CaseRequest,
    ledger: Ledger,
    target_of: Callable[[str, str | None], BackendTarget],
) -> BackendTarget | None:
    """Who is asked; None if that cannot be told, for a reason that stands in the ledger or in the document."""
    if document is not None and not request.backend and not {"backend", "chip"}.isdisjoint(document.unread(())):
        return None
    backend = request.backend or (document.backend if document is not None else "") or "numpy"
    chip = request.chip or (document.chip if document is not None else "") or None
    try:
        return target_of(backend, chip)
    except UsageError as error:
        about_chip = isinstance(error, UnknownName) and error.kind.startswith("chip")
        key = "chip" if about_chip else "backend"
        place: Place = FLAGS[key] if getattr(request, key) or document is None else (key,)
        if isinstance(error, UnknownName):
            ledger.unknown(place, error)
        else:
            message, _, hint = str(error).partition("\n")
            ledger.problem(place, message, hint.strip().replace("\n", "\n  "))
    return None


def _require_same_target(plan: PlanDocument, asked: PlanDocument | None, request: CaseRequest, ledger: Ledger) -> None:
    """A run asks one backend: a plan that is included may name it, but no other."""
    assert asked is not None
    for key in ("backend", "chip"):
        own, wanted = getattr(plan, key), getattr(asked, key) or ("numpy" if key == "backend" else "")
        if key in plan.model_fields_set and own != wanted and not getattr(request, key):
            with ledger.reading(plan.source):
                said = f"is {wanted!r}" if wanted else "is not stated"
                message = f"{key} is {own!r}, but {said} in {asked.path}, and a run asks one {key}"
                ledger.problem((key,), message, f"write {key}: {own} in {asked.path}, or give --{key}")


def _default_origins(plan: PlanDocument | None, asked: PlanDocument | None) -> dict[str, str]:
    """Seed and defaults are the plan's own; the backend is that of the plan that was asked for."""
    if plan is None or asked is None:
        return {}
    found: dict[str, str] = {key: asked.where((key,)) for key in ("backend", "chip") if key in asked.model_fields_set}
    if "seed" in plan.model_fields_set:
        found["seed"] = plan.where(("seed",))
    return found | {key: f"{plan.where(('defaults', key))} defaults" for key in plan.defaults}
