"""The layers that state a case (defaults, case, command line): which one decides, and where that was written."""

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
Entry: TypeAlias = Mapping[str, Any]
"""What one layer states, by the keys of a case."""

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
"""The flag that states a key."""
_ADD_UP = ("attributes", "backend_config", "generator")
"""Keys of which a case's own value is merged with that of the defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHost:
    """What plans refer to and other packages own: operators, fills, the backend, and checks of what they are given."""

    operators: Operators
    target: BackendTarget | UsageError
    """What the cases run on, or why there is no such backend or chip."""
    check_fill: Callable[[Fill], object]
    """Raises ``UsageError`` or ``UnknownName`` for a fill that does not exist or has wrong parameters."""
    check_hook: Callable[[str], object] = lambda _: None
    """Raises ``UsageError`` for an import path of a generator or reference that leads nowhere."""
    check_backend: Callable[[TestCase], Sequence[str]] = lambda _: ()
    """What is wrong with a case's ``backend_config``."""
    dtypes_of: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda _: {}
    """Dtypes by tensor that the backend's options of a case imply, for cases without ``dtypes``."""
    backend_names: Collection[str] | None = None
    """The keys that ``backend_config`` may have; None does not check them."""
    default_timeout_s: float | None = None
    """The deadline of cases for which nobody states one."""


@dataclass(slots=True, kw_only=True)
class PlanContext:
    """What is the same for every case of one plan, or for the cases of flags alone."""

    document: PlanDocument | None
    """The plan that the cases stand in; None for cases made of flags alone."""
    request: CaseRequest
    host: PlanHost
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
    config: Entry
    """What the configuration file states, as the defaults of a plan would."""
    defaults: Entry = field(init=False)
    base_dir: str = field(init=False)
    source: Source | None = field(init=False)
    seed: int = field(init=False)
    has_unread: bool = field(init=False)
    """Whether anything of the plan could not be read."""

    def __post_init__(self) -> None:
        document = self.document
        stated = document.model_fields_set if document is not None else ()
        config = {key: value for key, value in self.config.items() if key not in stated}
        self.defaults = _merged_deeply(config, document.defaults if document is not None else {})
        self.base_dir = document.folder() if document is not None else ""
        self.source = document.source if document is not None else None
        self.seed = document.seed if document is not None else 0
        self.has_unread = document is not None and document.has_unread


def below(place: Place, key: str) -> Place:
    return place if isinstance(place, str) else (*place, key)


class Statement:
    """What plan, defaults and command line state about one case; ``path`` is () for a case made of flags.

    ``doubtful`` are the keys that could not be read or turned out wrong: nothing is concluded from these any more.
    ``common`` is what a combination of a product, by its ``rows``, shares with others.
    """

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
        self.common, self.rows = common, rows
        self._make_entry = entry if callable(entry) else None
        self._entry = None if callable(entry) else entry
        self.doubtful: set[str] = set()
        if context.document is not None and context.has_unread:
            of_defaults = context.document.unread(("defaults",))
            self.doubtful |= {key for key in of_defaults if key in _ADD_UP or key not in self.entry}
            self.doubtful.update(context.document.unread(path) if path else ())

    @property
    def entry(self) -> Entry:
        """What the case itself states; that of a combination is put together when it is asked for."""
        if self._entry is None:
            assert self._make_entry is not None
            self._entry = self._make_entry()
        return self._entry

    @property
    def flags(self) -> Entry:
        return self.context.flags

    def once(self, part: Hashable, keys: Collection[str], make: Callable[[Statement], _T]) -> _T:
        """A part of the case that depends on these keys alone; combinations with the same values share it."""
        return make(self) if self.common is None else self.common.part(self, part, keys, make)

    def layers(self, key: str, *, with_flags: bool = True) -> list[tuple[Place, Any]]:
        """Every layer that states ``key``, the lowest first, and where."""
        found: list[tuple[Place, Any]] = []
        if key in self.context.defaults:
            found.append((("defaults", key), self.context.defaults[key]))
        if key in self.entry:
            found.append(((*self.path, key), self.entry[key]))
        if with_flags and key in self.flags:
            found.append((FLAGS[key], self.flags[key]))
        return found

    def value_and_place(self, key: str, *, with_flags: bool = True) -> tuple[Any, Place]:
        """The value of the highest layer that states ``key`` (None if none does) and where it was written."""
        for place, value in reversed(self.layers(key, with_flags=with_flags)):
            return value, place
        return None, self.place(key)

    def value(self, key: str, default: Any = None) -> Any:
        """The value of the highest layer that states ``key``, else ``default``."""
        found, _ = self.value_and_place(key)
        return default if found is None else found

    def place(self, key: str) -> Place:
        """Where the case states ``key``, or would."""
        return (*self.path, key) if self.path else FLAGS.get(key, "")

    def locate(self, name: str, place: Place) -> tuple[str, int] | None:
        """Side and index of a tensor; an unknown name goes into the ledger."""
        return self.ledger.found(place, self.operator.locate, name)

    def by_tensor(
        self, given: Mapping[str, _T], place: Place, what: str, *, side: str = ""
    ) -> Iterator[tuple[tuple[str, int], Place, _T]]:
        """What is stated by names of tensors: side and index, where, and the value.

        A name that is unknown, of the other side, or of a tensor that was named before goes into the ledger.
        """
        seen: set[tuple[str, int]] = set()
        for name, value in given.items():
            here = below(place, name)
            tensor = self.locate(name, here)
            if tensor is None:
                continue
            if side not in ("", tensor[0]):
                self.ledger.problem(here, f"{name} is an {tensor[0]}, but {what}s are for {side}s")
            elif tensor in seen:
                self.ledger.problem(here, f"the {what} of {tensor[0]}{tensor[1]} is stated twice")
            else:
                seen.add(tensor)
                yield tensor, here, value

    def backend_config(self) -> dict[str, Mapping[str, Any]]:
        """Options by backend, merged key by key; those of the command line deeply."""
        merged: dict[str, Mapping[str, Any]] = dict(self.context.defaults.get("backend_config", {}))
        for backend, options in self.entry.get("backend_config", {}).items():
            merged[backend] = {**merged.get(backend, {}), **options}
        for backend, options in self.flags.get("backend_config", {}).items():
            merged[backend] = _merged_deeply(merged.get(backend, {}), options)
        return merged

    def implied_dtypes(self) -> Mapping[str, str]:
        """Dtypes by tensor that the backend's options state; they serve where nobody states ``dtypes``."""
        if "backend_config" in self.doubtful:
            return {}
        options = self.backend_config().get(self.context.target.name, {})
        return self.context.host.dtypes_of(options) if options else {}


def _merged_deeply(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged_deeply(merged[key], value) if both else value
    return merged


# What is the same for every case of a plan


def contexts_of(document: PlanDocument | None, request: CaseRequest, fills: FillCheck) -> list[PlanContext]:
    """The context of the cases of each plan: those that are included, then the one that includes them."""
    host, ledger = fills.host, fills.ledger
    flags = _flags_of(request, ledger)
    config = _flags_of(request.below, ledger) if request.below is not None else {}
    stated_below = [*config, *(key for key in ("backend", "chip") if getattr(request.below, key, None))]
    with ledger.reading(document.source if document is not None else None):
        target = _target(document, request, host, ledger)
    for plan in document.family()[:-1] if document is not None else ():
        assert document is not None
        # A run has one backend: a plan that is included may name it, but no other.
        for key in ("backend", "chip"):
            own, required = getattr(plan, key), getattr(document, key) or ("numpy" if key == "backend" else "")
            if key in plan.model_fields_set and own != required and not getattr(request, key):
                with ledger.reading(plan.source):
                    other = f"is {required!r}" if required else "is not stated"
                    message = f"{key} is {own!r}, but {other} in {document.path}, and a run asks one {key}"
                    ledger.problem((key,), message, f"write {key}: {own} in {document.path}, or give --{key}")
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
            origins={**dict.fromkeys(stated_below, request.where_below), **_default_origins(plan, document)},
            ledger=ledger,
            fills=fills,
        )
        for plan in (document.family() if document is not None else [None])
    ]


def _flags_of(request: CaseRequest, ledger: Ledger) -> dict[str, Any]:
    """The flags as a case of a plan would state them."""
    # Part the flags' attributes from those that go into ``backend_config``.
    attributes: dict[str, Any] = {}
    config: dict[str, Any] = dict(request.backend_config)
    for key, value in request.attributes.items():
        head, *steps = key.split(".")
        if head != "backend_config":
            attributes[key] = value
        elif len(steps) < 2 or not all(steps):
            hint = "for example --attr backend_config.ascend.workdir=build"
            ledger.problem("--attr", f"{key} should name a backend and a key", hint)
        else:
            nested = value
            for step in reversed(steps):
                nested = {step: nested}
            config = _merged_deeply(config, nested)
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


def _target(
    document: PlanDocument | None, request: CaseRequest, host: PlanHost, ledger: Ledger
) -> BackendTarget | None:
    """What the cases run on; None if that cannot be told, for a reason that stands in the ledger or in the document."""
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
    """Seed and defaults are the plan's own; the backend is that of the plan that includes it."""
    if plan is None or main is None:
        return {}
    found: dict[str, str] = {key: main.where((key,)) for key in ("backend", "chip") if key in main.model_fields_set}
    if "seed" in plan.model_fields_set:
        found["seed"] = plan.where(("seed",))
    return found | {key: f"{plan.where(('defaults', key))} defaults" for key in plan.defaults}
