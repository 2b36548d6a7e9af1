"""Names that references and comparison rest on, watched: whoever replaces one is found out, and it is put back.

Watched are the modules of NumPy, ml_dtypes and optest, ``math`` and ``builtins``, and of optest's own modules the
functions (code and defaults), the classes and the dtypes. A look reads the version that CPython keeps of every
dictionary (PEP 509) and the pointers of functions, some nanoseconds each, and compares names only where these have
changed; on other Pythons it compares all names, which takes longer. It is no defence against code that knows of it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from gc import get_referents
from operator import attrgetter, is_
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from optest.registry import load_object
from optest.spec.dtypes import DTYPES

_WATCHED = ("numpy", "ml_dtypes", "math", "builtins", "optest")
_LOADED_FIRST = ("ml_dtypes:bfloat16", "optest.core.runner:execute", "optest.compare.verdict:judge")
"""Imported before anything is fixed: a plug-in that is the first to import one of them could patch it unseen."""

_MODULES_OFTEN = re.compile(
    r"optest\.(compare|core|numerics|operators|registry|spec)\b|math$|builtins$|ml_dtypes$|numpy$|numpy\.linalg"
    r"|numpy\._core\.(umath|multiarray|numeric|fromnumeric|_methods)$|numpy\.lib\._\w*(function|shape)_base_impl$"
)
_INSIDES_OFTEN = re.compile(r"optest\.compare\b|optest\.core\.(comparison|verdicts|expected)$|optest\.spec\.outcome$")
"""Modules that every look compares, and those whose functions and classes it does; the rest is for thorough looks."""

_CHANGES_BY_ITSELF = frozenset({"__warningregistry__", "__annotations__", "__abstractmethods__", "__doc__"})
_GONE = object()
_WORD_BYTES = ctypes.sizeof(ctypes.c_uint64)
_VERSION_OFFSET = 3 * _WORD_BYTES
"""Of a dictionary on CPython 3.10 to 3.13, behind the count of references, the type and the number of entries."""
_POINTERS_OF_FUNCTION = 4
"""From that to its code on: its defaults are among them on every version."""


@cache
def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Of several names: one alone would give no tuple."""
    return attrgetter(*names)


class _Names(NamedTuple):
    """What a dictionary held under each name; ``put`` stores a name in it."""

    label: str
    now: Mapping[str, Any]
    held: dict[str, Any]
    put: Callable[[str, Any], None]

    def replaced(self) -> list[str]:
        """A name that held None may have been filled in since, and one more name harms nobody."""
        names = []
        for name, value in self.held.items():
            other = self.now.get(name, _GONE)
            if other is value or name in _CHANGES_BY_ITSELF:
                continue
            if value is None:
                self.held[name] = other
                continue
            self.put(name, value)
            names.append(f"{self.label}.{name}")
        return names

    def renewed(self) -> _Names:
        return self._replace(held=dict(self.now))


class Record(NamedTuple):
    """The values of some attributes of an object, as they were."""

    label: str
    owner: Any
    names: tuple[str, ...]
    values: tuple[Any, ...]

    @classmethod
    def of(cls, label: str, owner: Any, names: tuple[str, ...]) -> Record:
        return cls(label, owner, names, _getter(names)(owner))

    def replaced(self) -> list[str]:
        """The attributes that hold another object, which are put back."""
        try:
            now = _getter(self.names)(self.owner)
        except AttributeError:  # one was deleted
            now = tuple([getattr(self.owner, name, _GONE) for name in self.names])
        if all(map(is_, now, self.values)):
            return []
        labels = []
        for name, value, other in zip(self.names, self.values, now, strict=True):
            if value is not other:
                object.__setattr__(self.owner, name, value)
                labels.append(f"{self.label}.{name}")
        return labels

    def renewed(self) -> Record:
        return Record.of(self.label, self.owner, self.names)


class _Group:
    """Things that are looked at together, each with the words of memory that tell whether it may have changed."""

    __slots__ = ("_held", "_things", "_views")

    def __init__(self) -> None:
        self._things: list[_Names | Record] = []
        self._views: list[memoryview] = []
        self._held = b""

    def add(self, thing: _Names | Record, view: memoryview) -> None:
        self._things.append(thing)
        self._views.append(view)
        self._held += view

    def replaced(self) -> list[str]:
        if _HAS_VERSIONS and b"".join(self._views) == self._held:
            return []
        names, place = [], 0
        for thing, view in zip(self._things, self._views, strict=True):
            if self._held[place : place + len(view)] != view or not _HAS_VERSIONS:
                names += thing.replaced()
            place += len(view)
        self._held = b"".join(self._views)
        return names

    def renew(self) -> None:
        """Hold what is there now."""
        if _HAS_VERSIONS and b"".join(self._views) == self._held:
            return
        self._things = [thing.renewed() for thing in self._things]
        self._held = b"".join(self._views)


class PatchWatch:
    """What is watched, as it is now; :meth:`replaced` says what is another object since."""

    __slots__ = ("_count", "_known", "_often", "_records", "_seldom")

    def __init__(self) -> None:
        for path in _LOADED_FIRST:
            load_object(path)
        self._known: set[str] = set()
        self._often, self._seldom = _Group(), _Group()
        self._count = 0
        self._add_modules()
        fields = tuple(each.name for each in dataclasses.fields(DTYPES[0]))
        self._records = [Record.of(f"dtype {each.name}", each, fields) for each in DTYPES]

    def replaced(self, *, thorough: bool = False) -> list[str]:
        """The dotted names that hold something else than they held, which are put back."""
        names = self._often.replaced()
        if thorough:
            names += self._seldom.replaced()
            for record in self._records:
                names += record.replaced()
        if len(sys.modules) != self._count:
            self._add_modules()
        return names

    def renew(self) -> None:
        """Take everything as it is now."""
        for group in (self._often, self._seldom):
            group.renew()

    def _add_modules(self) -> None:
        """Watch what has been imported since."""
        for name, module in [*sys.modules.items()]:
            if name.partition(".")[0] in _WATCHED and name not in self._known and type(module) is ModuleType:
                self._known.add(name)
                self._add_module(name, vars(module))
        self._count = len(sys.modules)

    def _add_module(self, name: str, entries: dict[str, Any]) -> None:
        group = self._often if _MODULES_OFTEN.match(name) else self._seldom
        group.add(_Names(name, entries, dict(entries), entries.__setitem__), _version_of(entries))
        if not name.startswith("optest."):
            return
        group = self._often if _INSIDES_OFTEN.match(name) else self._seldom
        for owner in [each for each in entries.values() if getattr(each, "__module__", None) == name]:
            if isinstance(owner, type):
                put = partial(type.__setattr__, owner)
                label = f"{name}.{owner.__qualname__}"
                group.add(
                    _Names(label, vars(owner), dict(vars(owner)), put), _version_of(get_referents(vars(owner))[0])
                )
                for method in [each for each in vars(owner).values() if isinstance(each, FunctionType)]:
                    _add_function(self._seldom, label, method)
            else:
                _add_function(group, name, owner)


def _add_function(group: _Group, where: str, function: Any) -> None:
    """Watch a function; also one that ``functools.wraps`` or ``lru_cache`` surrounds."""
    while function is not None:
        if isinstance(function, FunctionType):
            label = f"{where}.{function.__name__}"
            record = Record.of(label, function, ("__code__", "__defaults__", "__kwdefaults__"))
            group.add(record, _pointers_of(function))
        function = getattr(function, "__wrapped__", None)


@cache
def patch_watch() -> PatchWatch:
    """The watch of this process, which begins when it is first needed."""
    return PatchWatch()


def patched_before() -> list[str]:
    """Names of NumPy that were replaced before anything was fixed, as far as their origin shows it."""
    core, own = vars(sys.modules["numpy._core.umath"]), type(np.sum)
    names = []
    for name, value in vars(np).items():
        if isinstance(value, FunctionType):
            is_foreign = not value.__globals__["__name__"].startswith(("numpy", "contextlib"))
        else:
            is_foreign = isinstance(core.get(name), np.ufunc) and core[name] is not value and type(value) is not own
        if is_foreign:
            names.append(f"numpy.{name}")
    return names


def _version_of(entries: Any) -> memoryview:
    return _words(id(entries) + _VERSION_OFFSET, 1) if _HAS_VERSIONS else memoryview(b"")


def _pointers_of(function: FunctionType) -> memoryview:
    """The words that point to code and defaults, wherever this version of Python has them."""
    if not _HAS_VERSIONS:
        return memoryview(b"")
    count = function.__sizeof__() // _WORD_BYTES
    words = (ctypes.c_uint64 * count).from_address(id(function))
    place = [*words].index(id(function.__code__))
    return _words(id(function) + place * _WORD_BYTES, min(_POINTERS_OF_FUNCTION, count - place))


def _words(address: int, count: int) -> memoryview:
    return memoryview((ctypes.c_uint64 * count).from_address(address)).cast("B")


def _has_versions() -> bool:
    """Whether a dictionary's version lies where it is expected: seen to change with its values, and with nothing
    else."""
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14) or sys.maxsize < 1 << 32:
        return False
    probe: dict[str, Any] = {"one": 1, "two": 2}
    view = _words(id(probe) + _VERSION_OFFSET, 1)
    seen = [bytes(view)]
    for value in (3, 4):
        probe["one"] = value
        seen.append(bytes(view))
    probe.get("one")
    return len({*seen}) == len(seen) and bytes(view) == seen[-1]


_HAS_VERSIONS = _has_versions()
