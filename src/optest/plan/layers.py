"""Layers that set a case's values (defaults, case, command line): their precedence, and the position of each value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from optest.errors import UnknownName, UsageError
from optest.plan.operator_lookup import KnownOperator, Operators
from optest.plan.problems import Ledger, Place
from optest.plan.request import CaseRequest
from optest.plan.untrusted import allowed_folders
from optest.plan.values import Layout, ToleranceChoice, read_generator
from optest.plan.yaml_source import Path, Source
from optest.spec import BackendTarget, Fill, TestCase

if TYPE_CHECKING:
    from optest.plan.expansion import CommonParts
    from optest.plan.fills import FillCheck
    from optest.plan.product import Rows
    from optest.plan.schema import PlanDocument

_T = TypeVar("_T")
# The values that one layer sets, by the keys of a case.
Entry: TypeAlias = Mapping[str, Any]

# The flag that sets each key.
FLAGS = {
    "attributes": "--attr",
    "backend_config": "--attr",
    "chip": "--chip",
    "backend": "--backend",
    "dtypes": "--dtype",
    "generator": "--generator",
    "op": "--op",
    "reference": "--reference",
    "retries": "--retries",
    "seed": "--seed",
    "shapes": "--shape",
    "timeout": "--timeout",
    "tolerance": "--tolerance",
}
# Keys whose values in case and defaults are merged; of every other key the case's value replaces the default.
_MERGED_KEYS = ("attributes", "backend_config", "generator")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHost:
    """Services of other packages for plans: operators, the backend, checks of fills, hooks and options."""

    operators: Operators
    # The backend that cases run on, or the error if it or its chip does not exist.
    target: BackendTarget | UsageError
    # Raises UsageError or UnknownName for a fill that does not exist or has wrong parameters.
    check_fill: Callable[[Fill], object]
    # Raises UsageError for an import path of a generator or reference that cannot be imported.
    check_hook: Callable[[str], object] = lambda _: None
    # Returns the problems of a case's backend_config.
    check_backend: Callable[[TestCase], Sequence[str]] = lambda _: ()
    # Returns the dtypes by tensor that backend options imply, for cases without `dtypes`.
    dtypes_of: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda _: {}
    # Keys that backend_config may have; None does not check them.
    backend_names: Collection[str] | None = None
    # Time limit of cases without `timeout`.
    default_timeout_s: float | None = None


@dataclass(slots=True, kw_only=True)
class PlanContext:
    """Data that all cases of one plan share, or all cases of flags without a plan."""

    # None for cases built from flags only.
    document: PlanDocument | None
    request: CaseRequest
    host: PlanHost
    target: BackendTarget
    is_target_known: bool
    # Values of the command line, in the form of a case.
    flags: Entry
    # Folders that paths of an untrusted plan may be in; () for all.
    allowed_folders: tuple[str, ...]
    # Where defaults, seed and backend are written.
    origins: Mapping[str, str]
    ledger: Ledger
    fills: FillCheck
    # Values of the configuration file, in the form of a plan's defaults.
    config: Entry
    defaults: Entry = field(init=False)
    base_dir: str = field(init=False)
    source: Source | None = field(init=False)
    seed: int = field(init=False)
    # Some value of the plan could not be read.
    has_unread: bool = field(init=False)

    def __post_init__(self) -> None:
        document = self.document
        set_keys = document.model_fields_set if document is not None else ()
        # A top-level key of the plan, such as seed, is not in its defaults, but still overrides the configuration.
        config = {key: value for key, value in self.config.items() if key not in set_keys}
        self.defaults = _merge_deeply(config, document.defaults if document is not None else {})
        self.base_dir = document.folder() if document is not None else ""
        self.source = document.source if document is not None else None
        self.seed = document.seed if document is not None else 0
        self.has_unread = document is not None and document.has_unread


def below(place: Place, key: str) -> Place:
    return place if isinstance(place, str) else (*place, key)


class Statement:
    """All layers of one case; ``path`` is () for a case built from flags."""

    __slots__ = ("_entry", "_make_entry", "common", "context", "doubtful", "ledger", "operator", "path", "rows")

    def __init__(
        self,
        operator: KnownOperator,
        path: Path,
        context: PlanContext,
        entry: Entry | Callable[[], Entry],
        common: CommonParts | None = None,
        rows: Rows = (),
    ) -> None:
        self.operator, self.path, self.context, self.ledger = operator, path, context, context.ledger
        # A cache of parts that combinations of a product share, by their rows.
        self.common, self.rows = common, rows
        self._make_entry = entry if callable(entry) else None
        self._entry = None if callable(entry) else entry
        # Keys that are unreadable or wrong, which must not cause further problems.
        self.doubtful: set[str] = set()
        if context.document is not None and context.has_unread:
            # A case that sets the key itself replaces the unreadable default, unless the two are merged.
            of_defaults = context.document.unread(("defaults",))
            self.doubtful |= {key for key in of_defaults if key in _MERGED_KEYS or key not in self.entry}
            self.doubtful.update(context.document.unread(path) if path else ())

    @property
    def entry(self) -> Entry:
        """The values of the case itself; those of a product's combination are assembled on first access."""
        if self._entry is None:
            assert self._make_entry is not None
            self._entry = self._make_entry()
        return self._entry

    @property
    def flags(self) -> Entry:
        return self.context.flags

    def shared(self, part: Hashable, keys: Collection[str], make: Callable[[Statement], _T]) -> _T:
        """Return ``make(self)``, cached for combinations of a product in which these keys have the same values."""
        return make(self) if self.common is None else self.common.part(self, part, keys, make)

    def layers(self, key: str, *, with_flags: bool = True) -> list[tuple[Place, Any]]:
        """Return position and value of each layer that sets ``key``, the lowest first."""
        layers: list[tuple[Place, Any]] = []
        if key in self.context.defaults:
            layers.append((("defaults", key), self.context.defaults[key]))
        if key in self.entry:
            layers.append(((*self.path, key), self.entry[key]))
        if with_flags and key in self.flags:
            layers.append((FLAGS[key], self.flags[key]))
        return layers

    def value_and_place(self, key: str, *, with_flags: bool = True) -> tuple[Any, Place]:
        """Return value and position of the highest layer that sets ``key``; None and the case's if none does."""
        for place, value in reversed(self.layers(key, with_flags=with_flags)):
            return value, place
        return None, self.place(key)

    def value(self, key: str, default: Any = None) -> Any:
        """Return the value of the highest layer that sets ``key``, else ``default``."""
        value, _ = self.value_and_place(key)
        return default if value is None else value

    def place(self, key: str) -> Place:
        """Return the position of ``key`` in the case, whether it is set or not; its flag without a plan."""
        return (*self.path, key) if self.path else FLAGS.get(key, "")

    def locate(self, name: str, place: Place) -> tuple[str, int] | None:
        """Return side and index of a tensor; note a problem and return None for an unknown name."""
        return self.ledger.attempt(place, self.operator.locate, name)

    def by_tensor(
        self, by_name: Mapping[str, _T], place: Place, what: str, *, side: str = ""
    ) -> Iterator[tuple[tuple[str, int], Place, _T]]:
        """Yield side and index, position, and value for each tensor name; note wrong or repeated names."""
        seen: set[tuple[str, int]] = set()
        for name, value in by_name.items():
            here = below(place, name)
            tensor = self.locate(name, here)
            if tensor is None:
                continue
            if side not in ("", tensor[0]):
                self.ledger.problem(here, f"{name} is an {tensor[0]}, but {what}s are for {side}s")
            elif tensor in seen:
                self.ledger.problem(here, f"the {what} of {tensor[0]}{tensor[1]} is set twice", "remove one of them")
            else:
                seen.add(tensor)
                yield tensor, here, value

    def backend_config(self) -> dict[str, Mapping[str, Any]]:
        """Return the options by backend, merged key by key; the command line's also within nested mappings."""
        merged: dict[str, Mapping[str, Any]] = dict(self.context.defaults.get("backend_config", {}))
        for backend, options in self.entry.get("backend_config", {}).items():
            merged[backend] = {**merged.get(backend, {}), **options}
        for backend, options in self.flags.get("backend_config", {}).items():
            merged[backend] = _merge_deeply(merged.get(backend, {}), options)
        return merged

    def implied_dtypes(self) -> Mapping[str, str]:
        """Return the dtypes by tensor that the backend's options imply, for cases without ``dtypes``."""
        if "backend_config" in self.doubtful:
            return {}
        options = self.backend_config().get(self.context.target.name, {})
        return self.context.host.dtypes_of(options) if options else {}


def _merge_deeply(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge_deeply(merged[key], value) if both else value
    return merged


def contexts_of(document: PlanDocument | None, request: CaseRequest, fills: FillCheck) -> list[PlanContext]:
    """Return the context of each plan, included ones first; note problems of flags and backends."""
    host, ledger = fills.host, fills.ledger
    flags = _flags_of(request, ledger)
    config = _flags_of(request.below, ledger) if request.below is not None else {}
    config_keys = [*config, *(key for key in ("backend", "chip") if getattr(request.below, key, None))]
    with ledger.reading(document.source if document is not None else None):
        target = _target(document, request, host, ledger)
    for plan in document.family()[:-1] if document is not None else ():
        assert document is not None
        # A run has one backend: an included plan may name it, but no other.
        for key in ("backend", "chip"):
            named, required = getattr(plan, key), getattr(document, key) or ("numpy" if key == "backend" else "")
            if key in plan.model_fields_set and named != required and not getattr(request, key):
                with ledger.reading(plan.source):
                    used = f"is {required!r}" if required else "is not set"
                    message = f"{key} is {named!r}, but {used} in {document.path}, and a run has one {key}"
                    ledger.problem((key,), message, f"write {key}: {named} in {document.path}, or add --{key}")
    folders = allowed_folders(document, flags) if request.untrusted else ()
    return [
        PlanContext(
            document=plan,
            request=request,
            host=host,
            target=target or BackendTarget(name="unknown"),
            is_target_known=target is not None,
            flags=flags,
            allowed_folders=folders,
            config=config,
            origins={**dict.fromkeys(config_keys, request.where_below), **_default_origins(plan, document)},
            ledger=ledger,
            fills=fills,
        )
        for plan in (document.family() if document is not None else [None])
    ]


def _flags_of(request: CaseRequest, ledger: Ledger) -> dict[str, Any]:
    """Return the flags in the form of a case; note a problem for an incomplete backend_config key."""
    attributes: dict[str, Any] = {}
    config: dict[str, Any] = dict(request.backend_config)
    for key, value in request.attributes.items():
        head, *steps = key.split(".")
        if head != "backend_config":
            attributes[key] = value
        elif len(steps) < 2 or not all(steps):
            hint = "for example --attr backend_config.ascend.workdir=build"
            ledger.problem("--attr", f"{key} names no option, expected backend_config.BACKEND.OPTION", hint)
        else:
            nested = value
            for step in reversed(steps):
                nested = {step: nested}
            config = _merge_deeply(config, nested)
    generator, tolerance = request.generator, request.tolerance
    values = {
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
    return {key: value for key, value in values.items() if value is not None}


def _target(
    document: PlanDocument | None, request: CaseRequest, host: PlanHost, ledger: Ledger
) -> BackendTarget | None:
    """Return the backend of the run; None if it is unknown, which the ledger or the plan's problems report."""
    if document is not None and not request.backend and not {"backend", "chip"}.isdisjoint(document.unread(())):
        return None
    if isinstance(host.target, BackendTarget):
        return host.target
    error = host.target
    key = "chip" if isinstance(error, UnknownName) and error.kind.startswith("chip") else "backend"
    place: Place = FLAGS[key] if getattr(request, key) or document is None else (key,)
    ledger.error(place, error)
    return None


def _default_origins(plan: PlanDocument | None, main: PlanDocument | None) -> dict[str, str]:
    """Return the positions of the plan's seed and defaults, and of the main plan's backend."""
    if plan is None or main is None:
        return {}
    origins: dict[str, str] = {key: main.where((key,)) for key in ("backend", "chip") if key in main.model_fields_set}
    if "seed" in plan.model_fields_set:
        origins["seed"] = plan.where(("seed",))
    return origins | {key: f"{plan.where(('defaults', key))} defaults" for key in plan.defaults}
