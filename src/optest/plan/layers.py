"""The layers that state a case (defaults, case, command line): which one decides, and where that was written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from optest.errors import UnknownName
from optest.plan.operator_lookup import KnownOperator
from optest.plan.problems import Place
from optest.plan.request import COMMAND_LINE
from optest.plan.source import Path

if TYPE_CHECKING:
    from optest.plan.expansion import CommonParts
    from optest.plan.plan_context import PlanContext
    from optest.plan.product import Product, Rows

__all__ = ["FLAGS", "Entry", "Statement", "below", "origins_of", "where_key", "where_of"]

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

    def stated(self, key: str, *, with_flags: bool = True) -> tuple[Any, Place]:
        """The value of the highest layer that states ``key`` (None if none does) and where it was written."""
        if with_flags and key in self.flags:
            return self.flags[key], FLAGS[key]
        if key in self.entry:
            return self.entry[key], (*self.path, key)
        if key in self.context.defaults:
            return self.context.defaults[key], ("defaults", key)
        return None, self.place(key)

    def value(self, key: str, default: Any = None) -> Any:
        """The value of the highest layer that states ``key``, else ``default``."""
        found, _ = self.stated(key)
        return default if found is None else found

    def place(self, key: str) -> Place:
        """Where the case states ``key``, or would."""
        return (*self.path, key) if self.path else FLAGS.get(key, "")

    def locate(self, name: str, place: Place) -> tuple[str, int] | None:
        """Side and index of a tensor; an unknown name goes into the ledger."""
        try:
            return self.operator.locate(name)
        except UnknownName as error:
            self.ledger.unknown(place, error)
            return None

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
        return self.context.dtypes_of(options) if options else {}


def _merged_deeply(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged_deeply(merged[key], value) if both else value
    return merged


# Where the values of a case were written, as text


def where_of(statement: Statement) -> str:
    """The line of the case."""
    source = statement.context.source
    if source is None or not statement.path:
        return COMMAND_LINE
    return f"{source.file}:{source.case_lines[int(statement.path[1])]}"


def where_key(statement: Statement, key: str) -> str:
    """Where a key of the case stands; one that was merged in has the line of the case."""
    source = statement.context.source
    assert source is not None
    index = int(statement.path[1])
    return f"{source.file}:{source.case_key_lines[index].get(key, source.case_lines[index])}"


def origins_of(statement: Statement) -> dict[str, str]:
    """Where each stated value came from; what is not in it is the operator's or optest's default."""
    context, operator = statement.context, statement.operator
    origins = dict(context.origins)
    for key in _MAPPINGS & context.defaults.keys():
        origins.update(dict.fromkeys(_parts_of(operator, key, context.defaults[key]), context.origins[key]))
    if statement.path and context.source is not None:
        for key in statement.entry:
            origins[key] = where_key(statement, key)
        for key in _MAPPINGS & statement.entry.keys():
            origins.update(dict.fromkeys(_parts_of(operator, key, statement.entry[key]), origins[key]))
        if statement.ledger.combination is not None:
            origins.update(_origins_of_axes(statement, statement.ledger.combination[0]))
    for key, value in statement.flags.items():
        if key == "shapes":
            origins.update(dict.fromkeys((_word_of(operator, (key, name)) for name in value), COMMAND_LINE))
        else:
            origins[key] = COMMAND_LINE
            origins.update(dict.fromkeys(_parts_of(operator, key, value), COMMAND_LINE))
    for key in ("backend", "chip"):
        if getattr(context.request, key):
            origins[key] = COMMAND_LINE
    return origins


_MAPPINGS = frozenset(("attributes", "backend_config"))
"""Keys of which explain tells the parts one by one."""


def _parts_of(operator: KnownOperator, key: str, value: Any) -> Iterator[str]:
    """What ``optest explain`` calls the single attributes and options of a mapping."""
    if key == "attributes":
        yield from (_word_of(operator, (key, name)) for name in value)
    elif key == "backend_config":
        yield from (f"{key}.{backend}.{option}" for backend, options in value.items() for option in options)


def _word_of(operator: KnownOperator, target: tuple[str, ...]) -> str:
    """What ``optest explain`` calls the value at a place of a case."""
    key, *rest = target
    if key == "attributes" and rest:
        return f"attributes.{operator.attribute_names.get(rest[0], rest[0])}"
    if key == "shapes" and rest and operator.knows(rest[0]):
        side, index = operator.locate(rest[0])
        return f"{side}{index}.shape"
    return ".".join(target) if key == "backend_config" else key


def _origins_of_axes(statement: Statement, product: Product) -> dict[str, str]:
    """Where the values were written that differ from combination to combination."""
    source = statement.context.source
    assert source is not None
    origins: dict[str, str] = {}
    for unit in product.units:
        places = [f"{source.file}:{product.lines[product.axes[axis].key]} product" for axis in unit.axes]
        if unit.own_axis is None:
            names = [", ".join(product.axes[axis].names) for axis in unit.axes]
            named = [f"{name} of {place}" for name, place in zip(names, places, strict=True)]
            places = [where_key(statement, unit.target[0]), *named]
        origins[_word_of(statement.operator, unit.target)] = ", ".join(places)
    return origins
