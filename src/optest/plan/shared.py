"""What is the same for every case of a request: target, defaults, the flags' part of attributes and options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optest.errors import UnknownName, UsageError
from optest.plan.forms import ToleranceChoice, read_generator
from optest.plan.request import CaseRequest
from optest.plan.source import Source
from optest.plan.statement import COMMAND_LINE, Entry, Ledger, Place
from optest.spec import BackendTarget, Layer, ToleranceLayer

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument

__all__ = ["RUNS_CODE", "Shared", "gather_shared"]


RUNS_CODE = (
    *("command", "build", "prepare", "cleanup", "pre_run", "post_run", "env"),
    *("library", "mapping", "profile", "headers"),
)
"""Keys of a backend's options that start programs, change what they start, or say which C is loaded, and how called."""


@dataclass(slots=True, kw_only=True)
class Shared:
    """What is the same for every case of a request."""

    document: PlanDocument | None
    """The plan that the cases stand in; None for cases made of flags alone."""
    target: BackendTarget
    is_target_known: bool
    defaults: Entry
    base_dir: str
    allowed_folders: tuple[str, ...]
    """Where the paths of an untrusted plan may lead; () for everywhere."""
    attributes: Mapping[str, Any]
    """The command line's, without those that go into ``backend_config``."""
    backend_config: Mapping[str, Mapping[str, Any]]
    """The command line's."""
    plan_tolerance: ToleranceChoice | None
    plan_tolerance_where: str
    flag_tolerance: ToleranceLayer | None
    default_origins: Mapping[str, str]
    flag_origins: Mapping[str, str]
    default_seed: int

    @property
    def source(self) -> Source | None:
        return self.document.source if self.document is not None else None

    @property
    def mixes_mappings(self) -> bool:
        """Whether attributes or options come from elsewhere than the case."""
        return bool(self.attributes or self.backend_config) or not self.defaults.keys().isdisjoint(
            ("attributes", "backend_config")
        )


def gather_shared(
    document: PlanDocument | None,
    request: CaseRequest,
    ledger: Ledger,
    target_of: Callable[[str, str | None], BackendTarget],
) -> list[Shared]:
    """What is the same for the cases of each plan: those that are included, then the one that was asked for."""
    attributes, config = _split_attributes(request, ledger)
    flag_tolerance = None
    if request.tolerance is not None:
        flag_tolerance = ToleranceLayer(layer=Layer.COMMAND_LINE, tolerance=request.tolerance, where="--tolerance")
    with ledger.reading(document.source if document is not None else None):
        target = _target(document, request, ledger, target_of)
    for plan in document.family()[:-1] if document is not None else ():
        _require_same_target(plan, document, request, ledger)
    flag_origins = _flag_origins(request)
    allowed = _allowed_folders(document, request, config)

    def of(plan: PlanDocument | None) -> Shared:
        defaults: Entry = plan.defaults if plan is not None else {}
        where = plan.where(("defaults", "tolerance")) if plan is not None and "tolerance" in defaults else ""
        return Shared(
            document=plan,
            target=target or BackendTarget(name="unknown"),
            is_target_known=target is not None,
            defaults=defaults,
            base_dir=plan.folder() if plan is not None else "",
            allowed_folders=allowed,
            attributes=attributes,
            backend_config=config,
            plan_tolerance=defaults.get("tolerance"),
            plan_tolerance_where=where,
            flag_tolerance=flag_tolerance,
            default_origins=_default_origins(plan, document),
            flag_origins=flag_origins,
            default_seed=defaults.get("seed", plan.seed if plan is not None else 0),
        )

    return [of(plan) for plan in (document.family() if document is not None else [None])]


def _allowed_folders(
    document: PlanDocument | None, request: CaseRequest, config: Mapping[str, Mapping[str, Any]]
) -> tuple[str, ...]:
    """The folder of an untrusted plan, and whatever the command line itself names as a path."""
    if document is None or not request.untrusted:
        return ()
    own = os.path.realpath(os.path.dirname(document.path) or ".")
    paths = [each for options in config.values() for key, value in options.items() for each in _paths_in(key, value)]
    if request.generator:
        choice = read_generator(request.generator)
        paths += [str(choice.every.parameters.get("path", ""))] if choice.every is not None else []
    return tuple(dict.fromkeys((own, *(os.path.join(own, each) for each in paths if each))))


def _paths_in(key: str, value: Any) -> Iterator[str]:
    """Text of the command line's options that may be a path, up to its first token; words of commands are none."""
    if isinstance(value, Mapping):
        yield from (path for each in value.values() for path in _paths_in(key, each))
    elif isinstance(value, (list, tuple)):
        yield from (path for each in value for path in _paths_in(key, each))
    elif isinstance(value, str) and key not in RUNS_CODE:
        fixed, token, _ = value.partition("{")
        yield os.path.dirname(fixed) if token else fixed


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
        place: Place = f"--{key}" if getattr(request, key) or document is None else (key,)
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


def _flag_origins(request: CaseRequest) -> dict[str, str]:
    stated = {
        "dtypes": request.dtypes,
        "generator": request.generator,
        "reference": request.reference,
        "tolerance": request.tolerance is not None,
        "seed": request.seed is not None,
        "timeout": request.timeout_s is not None,
        "retries": request.retries is not None,
        "backend": request.backend,
        "chip": request.chip,
    }
    return {key: COMMAND_LINE for key, value in stated.items() if value}
