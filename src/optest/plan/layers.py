"""Layers that set a case's values (defaults, case, command line): their precedence, and the position of each value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from optest.errors import UsageError
from optest.plan.operator_lookup import KnownOperator, Operators
from optest.plan.problems import Ledger, Place
from optest.plan.product import Product, Rows
from optest.plan.request import COMMAND_LINE, CaseRequest
from optest.plan.yaml_source import Path, Source
from optest.spec import BackendTarget, Fill, TestCase

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument

_T = TypeVar("_T")
# A selector of the rows that a part depends on, None if no two combinations share it; and the parts by these rows.
_Part: TypeAlias = "tuple[Callable[[Rows], Any] | None, dict[Any, Any]]"
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

    host: PlanHost
    target: BackendTarget
    ledger: Ledger
    fills: FillCheck
    # None for cases built without a plan.
    document: PlanDocument | None = None
    request: CaseRequest = field(default_factory=CaseRequest)
    is_target_known: bool = True
    # Values of the command line, in the form of a case.
    flags: Entry = field(default_factory=dict)
    # Folders that paths of an untrusted plan may be in; () for all.
    allowed_folders: tuple[str, ...] = ()
    # Where defaults, seed and backend are written.
    origins: Mapping[str, str] = field(default_factory=dict)
    # Values of the configuration file, in the form of a plan's defaults.
    config: Entry = field(default_factory=dict)
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
        self.defaults = merge_deeply(config, document.defaults if document is not None else {})
        self.base_dir = document.folder() if document is not None else ""
        self.source = document.source if document is not None else None
        self.seed = document.seed if document is not None else 0
        self.has_unread = document is not None and document.has_unread


@dataclass(slots=True)
class FillCheck:
    """Cached checks that fills and import paths exist; problems are noted in the ledger."""

    host: PlanHost
    ledger: Ledger
    good: set[str] = field(default_factory=set)
    # The error of each import path, None if it can be imported.
    hooks: dict[str, UsageError | None] = field(default_factory=dict)

    def require_hook(self, path: str, place: Place, *, untrusted: bool) -> None:
        """Note a problem if `path` cannot be imported. A path from an untrusted plan is not imported at all."""
        # A place that is text is a flag, which the user typed.
        if untrusted and not isinstance(place, str):
            return
        if path not in self.hooks:
            try:
                self.host.check_hook(path)
                self.hooks[path] = None
            except UsageError as error:
                self.hooks[path] = error
        if (problem := self.hooks[path]) is not None:
            self.ledger.error(place, problem)

    def require(self, fill: Fill, place: Place) -> None:
        """Note a problem if the fill does not exist or does not accept its parameters."""
        if not fill.parameters and fill.kind in self.good:
            return
        try:
            self.host.check_fill(fill)
        except UsageError as error:
            self.ledger.error(place, error)
        else:
            if not fill.parameters:
                self.good.add(fill.kind)


def below(place: Place, key: str) -> Place:
    """Return the position of a key of the value at ``place``; a flag has no parts."""
    return place if isinstance(place, str) else (*place, key)


class Statement:
    """All layers of one case; ``path`` is () for a case built from flags.

    ``entry`` holds the values of the case itself; a function that returns them is called on first access.
    """

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
        self.flags = context.flags
        # A cache of parts that combinations of a product share, by their rows.
        self.common, self.rows = common, rows
        if callable(entry):
            self._make_entry = entry
        else:
            self.entry = entry
        # Keys that are unreadable or wrong, which must not cause further problems.
        self.doubtful: set[str] = set()
        if context.document is not None and context.has_unread:
            # A case that sets the key itself replaces the unreadable default, unless the two are merged.
            of_defaults = context.document.unread(("defaults",))
            self.doubtful |= {key for key in of_defaults if key in _MERGED_KEYS or key not in self.entry}
            self.doubtful.update(context.document.unread(path) if path else ())

    @cached_property
    def entry(self) -> Entry:
        return self._make_entry()

    @cached_property
    def values(self) -> Entry:
        """The value of the highest layer that sets a key, by key; not for keys whose layers are merged."""
        return {**self.context.defaults, **self.entry, **self.flags}

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

    def place(self, key: str) -> Place:
        """Return the position of ``key`` in the case, whether it is set or not; its flag without a plan."""
        return (*self.path, key) if self.path else FLAGS.get(key, "")

    def place_of_value(self, key: str) -> Place:
        """Return the position of the highest layer that sets ``key``, in the case if none does."""
        layers = self.layers(key)
        return layers[-1][0] if layers else self.place(key)

    def planned_dtypes(self) -> tuple[Any, Place]:
        """Return ``dtypes`` of the plan, without those of the command line, and their position; None if not set."""
        layers = self.layers("dtypes", with_flags=False)
        return (layers[-1][1], layers[-1][0]) if layers else (None, self.place("dtypes"))

    def locate(self, name: str, place: Place) -> tuple[str, int] | None:
        """Return side and index of a tensor; note a problem and return None for an unknown name."""
        return self.ledger.attempt(place, self.operator.locate, name)

    @property
    def where(self) -> str:
        """FILE:LINE of the case, or "command line"."""
        source = self.context.source
        return f"{source.file}:{source.case_lines[int(self.path[1])]}" if source and self.path else COMMAND_LINE

    def where_of(self, key: str) -> str:
        """Return FILE:LINE of a key of the case; a key from a YAML merge (``<<``) has the line of the case."""
        source = self.context.source
        line = source.key_lines[self.path].get(key) if source and self.path else None
        return f"{source.file}:{line}" if source and line is not None else self.where

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
            merged[backend] = merge_deeply(merged.get(backend, {}), options)
        return merged

    def implied_dtypes(self) -> Mapping[str, str]:
        """Return the dtypes by tensor that the backend's options imply, for cases without ``dtypes``."""
        if "backend_config" in self.doubtful:
            return {}
        options = self.backend_config().get(self.context.target.name, {})
        return self.context.host.dtypes_of(options) if options else {}


class CommonParts:
    """Cache of case parts that combinations of one operator share, by the rows of the axes that a part depends on."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self._parts: dict[Hashable, _Part] = {}
        self._varying = {index for index, axis in enumerate(product.axes) if len(axis.rows) > 1}

    def part(self, statement: Statement, name: Hashable, keys: Collection[str], make: Callable[[Statement], _T]) -> _T:
        """Return the part `name`, cached by the keys of the case that it depends on; compute it with `make`."""
        rows_of, parts = self._parts.get(name) or self._new(name, keys)
        if rows_of is None:
            return make(statement)
        rows = rows_of(statement.rows)
        if rows in parts:
            cached: _T = parts[rows]
            return cached
        before = statement.ledger.noted
        value = make(statement)
        # A part with a problem is computed for each combination, so that each reports it.
        if statement.ledger.noted == before and not statement.doubtful:
            parts[rows] = value
        return value

    def _new(self, name: Hashable, keys: Collection[str]) -> _Part:
        axes = {axis for unit in self._product.units if unit.target[0] in keys for axis in unit.axes} & self._varying
        rows_of: Callable[[Rows], Any] | None = itemgetter(*sorted(axes)) if axes else lambda _: ()
        part = self._parts[name] = (rows_of if axes != self._varying else None, {})
        return part


def merge_deeply(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return both mappings merged; ``over`` wins if both have a key; two mappings at one key are merged as well."""
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge_deeply(merged[key], value) if both else value
    return merged
