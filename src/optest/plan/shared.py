"""What is the same for every case of a request: target, defaults, the flags' part of attributes and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optest.errors import UnknownName, UsageError
from optest.plan.forms import ToleranceChoice
from optest.plan.request import CaseRequest
from optest.plan.statement import COMMAND_LINE, Entry, Ledger, Place
from optest.spec import BackendTarget, Layer, ToleranceLayer

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument

__all__ = ["Shared", "gather_shared"]


@dataclass(slots=True, kw_only=True)
class Shared:
    """What is the same for every case of a request."""

    target: BackendTarget
    is_target_known: bool
    defaults: Entry
    base_dir: str
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
) -> Shared:
    attributes, config = _split_attributes(request, ledger)
    defaults: Entry = document.defaults if document is not None else {}
    flag_tolerance = None
    if request.tolerance is not None:
        flag_tolerance = ToleranceLayer(layer=Layer.COMMAND_LINE, tolerance=request.tolerance, where="--tolerance")
    target = _target(document, request, ledger, target_of)
    return Shared(
        target=target or BackendTarget(name="unknown"),
        is_target_known=target is not None,
        defaults=defaults,
        base_dir=document.folder() if document is not None else "",
        attributes=attributes,
        backend_config=config,
        plan_tolerance=defaults.get("tolerance"),
        plan_tolerance_where=document.where(("defaults", "tolerance")) if document and "tolerance" in defaults else "",
        flag_tolerance=flag_tolerance,
        default_origins=_default_origins(document),
        flag_origins=_flag_origins(request),
        default_seed=defaults.get("seed", document.seed if document is not None else 0),
    )


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


def _default_origins(document: PlanDocument | None) -> dict[str, str]:
    if document is None:
        return {}
    found = {key: document.where((key,)) for key in ("seed", "backend", "chip") if key in document.model_fields_set}
    return found | {key: f"{document.where(('defaults', key))} defaults" for key in document.defaults}


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
